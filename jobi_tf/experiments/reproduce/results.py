"""The figures of an experiment: ours, over seeds, and the paper's."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jobi_tf.data.occurrences import SIDES
from jobi_tf.experiments.reproduce.experiment import Row
from jobi_tf.experiments.reproduce.plan import Plan, Source
from jobi_tf.experiments.reproduce.record import Record

OF_RELATIONS = ("hits@1", "mrr", "implausible", "wrong_implausible")
FEWEST = 10  # triples of a relation whose gain is shown, where some relation has as many


@dataclass(frozen=True)
class Figure:
    """One number.

    Args:
        dataset: name of the data set.
        row: name of the row.
        metric: what is measured.
        side: `head`, `tail` or `both`.
        at: the value along a sweep, or the relation; else None.
        values: ours, one a seed whose run is complete.
        paper: the paper's.
    """

    dataset: str
    row: str
    metric: str
    side: str
    at: Any
    values: tuple[float, ...]
    paper: float | None

    @property
    def mean(self) -> float:
        """Ours; NaN if no run is complete."""
        return statistics.fmean(self.values) if self.values else math.nan

    @property
    def sd(self) -> float:
        """Standard deviation over seeds (of a sample); NaN for fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else math.nan


def records(plan: Plan, row: Row, source: Source, number: int = 0) -> list[Record]:
    """Returns the complete runs of a row on a data set, at a point of a sweep, by seed."""
    return [run.record for run in plan.at(row, source, number) if run.record is not None]


def table(plan: Plan, source: Source) -> list[list[Figure]]:
    """Returns a list of figures for each row, one a metric."""
    experiment = plan.experiment
    return [
        [
            _figure(plan, row, source, metric, experiment.side, paper)
            for metric, paper in zip(experiment.metrics, experiment.paper(row, source.name), strict=True)
        ]
        for row in experiment.rows_on(source.name)
    ]


def sweep(plan: Plan, source: Source) -> list[list[Figure]]:
    """Returns a list of figures for each row, one a point."""
    experiment = plan.experiment
    return [
        [
            _figure(plan, row, source, experiment.metrics[0], experiment.side, paper, number)
            for number, paper in enumerate(experiment.paper(row, source.name))
        ]
        for row in experiment.rows_on(source.name)
    ]


def _figure(
    plan: Plan, row: Row, source: Source, metric: str, side: str, paper: float | None, number: int = 0
) -> Figure:
    values = tuple(record.metric(metric, side) for record in records(plan, row, source, number))
    return Figure(source.name, row.name, metric, side, plan.experiment.points[number], values, paper)


def implausible(plan: Plan, source: Source) -> list[list[Figure]]:
    """Returns for each row the shares of implausible first answers: of all and of the wrong ones, on each side."""
    return [
        [
            _figure(plan, row, source, metric, side, None)
            for metric in ("implausible", "wrong_implausible")
            for side in (*SIDES, "both")
        ]
        for row in plan.experiment.rows_on(source.name)
    ]


def focus(plan: Plan, source: Source) -> list[list[Figure]]:
    """Returns for each row the metrics of the relation that the paper looks at; nothing where it is not in test."""
    chosen = plan.experiment.focus.get(source.name)
    if chosen is None:
        return []
    found = []
    for row in plan.experiment.rows_on(source.name):
        every = records(plan, row, source)
        if any(chosen.relation not in record.content["relations"] for record in every):
            return []
        pairs = zip(plan.experiment.metrics, plan.experiment.paper(row, source.name), strict=True)
        found.append([_of_relation(every, row, source, chosen.relation, chosen.side, *pair) for pair in pairs])
    return found


def _of_relation(
    every: Sequence[Record], row: Row, source: Source, relation: str, side: str, metric: str, paper: float | None = None
) -> Figure:
    values = [record.of_relation(relation, side, metric) for record in every]
    # The share of none, where no answer is wrong, is no number.
    told = tuple(value for value in values if not math.isnan(value))
    return Figure(source.name, row.name, metric, side, relation, told, paper)


@dataclass(frozen=True)
class Gain:
    """A relation on a side, with the figures of the baseline and of another row, by metric."""

    relation: str
    side: str
    triples: int
    before: dict[str, Figure]
    after: dict[str, Figure]

    @property
    def gain(self) -> float:
        """The difference in Hits@1."""
        return self.after["hits@1"].mean - self.before["hits@1"].mean


def gains(plan: Plan, row: Row, source: Source) -> list[Gain]:
    """Compares a row with the baseline, relation by relation and side by side: the largest gain in Hits@1 first."""
    baseline = plan.experiment.row(plan.experiment.baseline or "")
    before, after = records(plan, baseline, source), records(plan, row, source)
    if not before or not after:
        return []
    found = []
    for relation, sides in before[0].content["relations"].items():
        for side, counts in sides.items():
            ours, base = (
                {metric: _of_relation(every, which, source, relation, side, metric) for metric in OF_RELATIONS}
                for every, which in ((after, row), (before, baseline))
            )
            found.append(Gain(relation, side, counts["triples"], base, ours))
    enough = [x for x in found if x.triples >= FEWEST] or found
    return sorted(enough, key=lambda x: (-x.gain, x.relation, x.side))


def all_figures(plan: Plan) -> Iterator[Figure]:
    """Yields every figure of an experiment, for CSV."""
    of_kind: dict[str, tuple[Callable[[Plan, Source], list[list[Figure]]], ...]] = {
        "table": (table,),
        "sweep": (sweep,),
        "relations": (implausible, focus),
    }
    for source in plan.sources:
        for function in of_kind[plan.experiment.kind]:
            for figures in function(plan, source):
                yield from figures
        for row in plan.experiment.rows_on(source.name) if plan.experiment.kind == "relations" else ():
            every = records(plan, row, source)
            for relation, sides in every[0].content["relations"].items() if every else ():
                for side in sides:
                    for metric in OF_RELATIONS:
                        yield _of_relation(every, row, source, relation, side, metric)
