"""The figures of an experiment, ours over seeds and the paper's, and the tables of them."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from jobi_tf.data.occurrences import SIDES
from jobi_tf.errors import MissingExtraError
from jobi_tf.reproduce.experiment import METRICS, Row
from jobi_tf.reproduce.record import Record
from jobi_tf.reproduce.runs import Plan, Source

try:
    import pandas as pd
except ImportError:
    raise MissingExtraError("tables of experiments need pandas: pip install 'jobi-tf[reproduce]'") from None

OF_RELATIONS = ("hits@1", "mrr", "implausible", "wrong_implausible")
FEWEST = 10  # triples of a relation whose gain is shown, where some relation has as many
MOST_GAINS, MOST_LOSSES = 12, 4
NOTHING = "–"
_PARTS = ("table", "sweep", "implausible", "focus", "relations")
_KEYS = ["part", "dataset", "row", "at", "metric", "side"]
_TIMES = ("epoch_seconds", "step_ms", "epochs", "train_hours", "mean_rank")


class Table(NamedTuple):
    """A table of texts."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def figures(plan: Plan) -> pd.DataFrame:
    """Returns the `mean`, standard deviation (`sd`) and number (`seeds`) of our values, and the `paper`'s.

    A row for each `part` of the experiment, `dataset`, `row`, `at` (the point of a sweep, or the relation), `metric`
    and `side`. The parts are `table` and `sweep`, and of an experiment about relations `implausible`, `focus` and
    `relations`.
    """
    values: list[tuple] = []
    for source in plan.sources:
        of_source = [line for row in _rows(plan, source) for line in _values(plan, source, row)]
        values += sorted(of_source, key=lambda line: _PARTS.index(line[0]))
    frame = pd.DataFrame(values, columns=[*_KEYS, "paper", "value"])
    groups = frame.astype({"paper": float, "value": float}).groupby(_KEYS, sort=False)
    aggregated = groups.agg(
        mean=("value", "mean"), sd=("value", "std"), seeds=("value", "count"), paper=("paper", "first")
    )
    return aggregated.reset_index()


def _rows(plan: Plan, source: Source) -> list[Row]:
    return plan.experiment.rows_on(source.name)


def _records(plan: Plan, source: Source) -> list[Record]:
    return [record for row in _rows(plan, source) for record in plan.records(row, source)]


def _values(plan: Plan, source: Source, row: Row) -> Iterator[tuple]:
    """Yields each value of a row, at least one for each place."""
    experiment, records = plan.experiment, plan.records(row, source)

    def lines(part: str, at: Any, metric: str, side: str, paper: float | None, values: list[float]) -> Iterator[tuple]:
        for value in values or [math.nan]:
            yield (part, source.name, row.name, at, metric, side, paper, value)

    papers = experiment.paper(row, source.name)
    if experiment.kind == "table":
        for metric, paper in zip(experiment.metrics, papers, strict=True):
            values = [record.metric(metric, experiment.side) for record in records]
            yield from lines("table", "", metric, experiment.side, paper, values)
    elif experiment.kind == "sweep":
        metric = experiment.metrics[0]
        for number, (point, paper) in enumerate(zip(experiment.points, papers, strict=True)):
            values = [record.metric(metric, experiment.side) for record in plan.records(row, source, number)]
            yield from lines("sweep", point, metric, experiment.side, paper, values)
    else:
        for metric in ("implausible", "wrong_implausible"):
            for side in (*SIDES, "both"):
                values = [record.metric(metric, side) for record in records]
                yield from lines("implausible", "", metric, side, None, values)
        focus = experiment.focus.get(source.name)
        if focus and all(focus.relation in x.content["relations"] for x in _records(plan, source)):
            for metric, paper in zip(experiment.metrics, papers, strict=True):
                values = [record.of_relation(focus.relation, focus.side, metric) for record in records]
                yield from lines("focus", focus.relation, metric, focus.side, paper, values)
        for relation, sides in records[0].content["relations"].items() if records else ():
            for side in sides:
                for metric in (*OF_RELATIONS, "triples"):
                    values = [record.of_relation(relation, side, metric) for record in records]
                    yield from lines("relations", relation, metric, side, None, values)


def tables(plan: Plan, frame: pd.DataFrame) -> list[Table]:
    """Returns the tables of an experiment, data set by data set, from its `figures`."""
    found = []
    for source in plan.sources:
        of_source = frame[frame["dataset"] == source.name]
        if plan.experiment.kind == "relations":
            found += _relations(plan, source, of_source)
        elif plan.experiment.kind == "sweep":
            found.append(_sweep(plan, source, of_source))
        elif plan.experiment.baseline:
            found.append(_ratios(plan, source, of_source))
        else:
            found.append(_beside_the_paper(plan, source, of_source, _title(plan, source)))
    return found


def number(value: float, metric: str = "") -> str:
    """Returns a number with the digits that suit its metric."""
    if math.isnan(value):
        return NOTHING
    if metric not in _TIMES:
        return f"{value:.3f}"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _ours(figure: Any) -> str:
    spread = "" if math.isnan(figure.sd) else f" ± {number(figure.sd, figure.metric)}"
    return number(figure.mean, figure.metric) + spread


def _title(plan: Plan, source: Source) -> str:
    return source.name + {"both": "", "head": ", heads only", "tail": ", tails only"}[plan.experiment.side]


def _beside_the_paper(plan: Plan, source: Source, frame: pd.DataFrame, title: str) -> Table:
    """Our figures and the paper's in turn; the paper's column only where it has a figure."""
    columns, lines = ["model"], {name: [name] for name in frame["row"].unique()}
    for metric, group in frame.groupby("metric", sort=False):
        with_paper = bool(group["paper"].notna().any())
        columns += [METRICS[str(metric)], *["paper"] * with_paper]
        for figure in group.itertuples():
            lines[figure.row] += [_ours(figure), *[number(figure.paper, figure.metric)] * with_paper]
    return _with_seeds(plan, source, title, columns, lines)


def ratios(frame: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Returns the figures of a table with our and the paper's `mean` and `paper` divided by those of the baseline."""
    base = frame[frame["row"] == baseline].set_index("metric")
    columns = {name: frame[name] / frame["metric"].map(base[name]) for name in ("mean", "paper")}
    return frame.assign(**columns)


def _ratios(plan: Plan, source: Source, frame: pd.DataFrame) -> Table:
    """Our figures, their ratios to the baseline, and those of the paper, which measured on other hardware."""
    baseline = plan.experiment.baseline or ""
    divided = ratios(frame, baseline)
    columns, lines = ["model"], {name: [name] for name in frame["row"].unique()}
    for metric, group in frame.groupby("metric", sort=False):
        of_group = divided.loc[group.index]
        with_paper = bool(of_group["paper"].notna().any())
        columns += [METRICS[str(metric)], f"÷ {baseline}", *["paper ÷"] * with_paper]
        for figure, ratio in zip(group.itertuples(), of_group.itertuples(), strict=True):
            values = (ratio.mean, ratio.paper)[: 1 + with_paper]
            lines[figure.row] += [_ours(figure), *(NOTHING if math.isnan(x) else f"{x:.2f}" for x in values)]
    return _with_seeds(plan, source, _title(plan, source), columns, lines)


def _sweep(plan: Plan, source: Source, frame: pd.DataFrame) -> Table:
    assert plan.experiment.sweep is not None
    metric, setting = METRICS[plan.experiment.metrics[0]], plan.experiment.sweep.setting
    rows = []
    for name, group in frame.groupby("row", sort=False):
        rows.append([str(name), *map(_ours, group.itertuples()), _seeds(plan, source, str(name))])
        if group["paper"].notna().any():
            rows.append([f"{name}, paper", *map(number, group["paper"]), ""])
    return Table(_title(plan, source), [f"{metric} by {setting}", *map(str, plan.experiment.points), "seeds"], rows)


def _with_seeds(plan: Plan, source: Source, title: str, columns: list[str], lines: dict[str, list[str]]) -> Table:
    rows = [[*cells, _seeds(plan, source, name)] for name, cells in lines.items()]
    return Table(title, [*columns, "seeds"], rows)


def _seeds(plan: Plan, source: Source, name: str) -> str:
    """Returns the number of seeds of a row that are complete, with the planned number where that is larger."""
    row, points = plan.experiment.row(name), range(len(plan.experiment.points))
    done = [len(plan.records(row, source, number)) for number in points]
    wanted = len(plan.at(row, source))
    if not wanted:
        return NOTHING
    if min(done) == wanted:
        return str(wanted)
    return f"{min(done) if min(done) == max(done) else f'{min(done)} to {max(done)}'} of {wanted}"


def _relations(plan: Plan, source: Source, frame: pd.DataFrame) -> list[Table]:
    part = frame[frame["part"] == "implausible"]
    columns = ["model", *(f"{side}, {of}" for of in ("all", "wrong") for side in ("heads", "tails", "both"))]
    lines = {name: [name, *map(_ours, group.itertuples())] for name, group in part.groupby("row", sort=False)}
    title = f"{source.name}: share of first answers that are implausible"
    found = [_with_seeds(plan, source, title, columns, lines)]
    focus = frame[frame["part"] == "focus"]
    if len(focus):
        chosen = plan.experiment.focus[source.name]
        title = f"{source.name}: {chosen.relation}, {chosen.side} side"
        found.append(_beside_the_paper(plan, source, focus, title))
    baseline = plan.experiment.baseline or ""
    compared = {row.name: gains(frame, baseline, row.name) for row in _rows(plan, source) if row.name != baseline}
    return found + [_gains(plan, source, name, gained) for name, gained in compared.items() if len(gained)]


def gains(frame: pd.DataFrame, baseline: str, name: str) -> pd.DataFrame:
    """Compares a row with the baseline on one data set: each relation and side, the largest gain in Hits@1 first.

    Returns:
        The columns `at` (the relation), `side`, `triples`, `gain`, and each metric of `OF_RELATIONS` of the row, and of
        the baseline with the suffix `_before`; empty where one of them has no complete run.
    """
    part = frame[frame["part"] == "relations"]
    before, after = (
        part[part["row"] == x].pivot(index=["at", "side"], columns="metric", values="mean") for x in (baseline, name)
    )
    if before.empty or after.empty:
        return pd.DataFrame()
    both = after.join(before.drop(columns="triples"), rsuffix="_before").reset_index()
    both = both.assign(gain=both["hits@1"] - both["hits@1_before"])
    enough = both[both["triples"] >= FEWEST]
    return (enough if len(enough) else both).sort_values(["gain", "at", "side"], ascending=[False, True, True])


def _gains(plan: Plan, source: Source, name: str, gained: pd.DataFrame) -> Table:
    shown = gained
    if len(gained) > MOST_GAINS + MOST_LOSSES:
        shown = pd.concat([gained[:MOST_GAINS], gained[-MOST_LOSSES:]])
    rows = [
        [
            *(x["at"], x["side"], f"{x['triples']:,.0f}"),
            *(number(x["hits@1"]), number(x["hits@1_before"]), f"{x['gain']:+.3f}"),
            *(number(x[column]) for column in ("mrr", "mrr_before", "wrong_implausible", "wrong_implausible_before")),
        ]
        for _, x in shown.iterrows()
    ]
    better, worse = (gained["gain"] > 0).sum(), (gained["gain"] < 0).sum()
    title = (
        f"{source.name}: {name} beside {plan.experiment.baseline}, better on {better} sides of relations and worse on "
        f"{worse}, of {len(gained)} with {FEWEST} test triples or more; the largest gains and losses"
    )
    of_wrong = ["implausible of wrong", "baseline"]
    columns = ["relation", "side", "triples", "Hits@1", "baseline", "gain", "MRR", "baseline", *of_wrong]
    return Table(title, columns, rows)
