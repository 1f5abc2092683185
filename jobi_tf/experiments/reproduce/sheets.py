"""Tables in words: the same for Markdown and the terminal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jobi_tf.experiments.reproduce import results
from jobi_tf.experiments.reproduce.experiment import METRICS
from jobi_tf.experiments.reproduce.plan import Plan, Source
from jobi_tf.experiments.reproduce.results import Figure

MOST_GAINS, MOST_LOSSES = 12, 4
NOTHING = "–"
_TIMES = ("epoch_seconds", "step_ms", "epochs", "train_hours", "mean_rank")


@dataclass(frozen=True)
class Sheet:
    """A table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sheets(plan: Plan) -> list[Sheet]:
    """Returns the tables of an experiment, data set by data set."""
    make = {"table": _table, "sweep": _sweep, "relations": _relations}[plan.experiment.kind]
    return [sheet for source in plan.sources for sheet in make(plan, source)]


def number(value: float | None, metric: str) -> str:
    """Returns a number in the digits that suit its metric."""
    if value is None or math.isnan(value):
        return NOTHING
    if metric not in _TIMES:
        return f"{value:.3f}"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def ours(figure: Figure) -> str:
    """Returns the mean, and the standard deviation if there is one."""
    spread = "" if math.isnan(figure.sd) else f" ± {number(figure.sd, figure.metric)}"
    return number(figure.mean, figure.metric) + spread


def _table(plan: Plan, source: Source) -> list[Sheet]:
    rows = results.table(plan, source)
    if plan.experiment.baseline:
        return [_ratios(plan, source, rows)]
    return [_beside_the_paper(plan, source, rows, _title(plan, source))]


def _title(plan: Plan, source: Source) -> str:
    side = {"both": "", "head": ", heads only", "tail": ", tails only"}[plan.experiment.side]
    return source.name + side


def _beside_the_paper(plan: Plan, source: Source, rows: Sequence[Sequence[Figure]], title: str) -> Sheet:
    """Ours and the paper's by turns; the paper's column only where it has a figure."""
    shown = [any(row[i].paper is not None for row in rows) for i in range(len(rows[0]))]
    columns, lines = ["model"], []
    for figure, with_paper in zip(rows[0], shown, strict=True):
        columns += [METRICS[figure.metric], *(["paper"] if with_paper else [])]
    for row in rows:
        line = [row[0].row]
        for figure, with_paper in zip(row, shown, strict=True):
            line += [ours(figure), *([number(figure.paper, figure.metric)] if with_paper else [])]
        lines.append((*line, _seeds(plan, source, row[0].row)))
    return Sheet(title, (*columns, "seeds"), tuple(lines))


def _ratios(plan: Plan, source: Source, rows: Sequence[Sequence[Figure]]) -> Sheet:
    """Ours, its ratio to the baseline, and that of the paper, which measured on other hardware."""
    base = next(row for row in rows if row[0].row == plan.experiment.baseline)
    ratios = [[ratio(*pair) for pair in zip(row, base, strict=True)] for row in rows]
    shown = [any(not math.isnan(line[i][1]) for line in ratios) for i in range(len(base))]
    columns, lines = ["model"], []
    for figure, with_paper in zip(base, shown, strict=True):
        columns += [METRICS[figure.metric], f"÷ {plan.experiment.baseline}", *(["paper ÷"] if with_paper else [])]
    for row, line in zip(rows, ratios, strict=True):
        cells = [row[0].row]
        for figure, pair, with_paper in zip(row, line, shown, strict=True):
            cells += [ours(figure), *map(_times, pair[: 1 + with_paper])]
        lines.append((*cells, _seeds(plan, source, row[0].row)))
    return Sheet(_title(plan, source), (*columns, "seeds"), tuple(lines))


def ratio(figure: Figure, reference: Figure) -> tuple[float, float]:
    """Returns our ratio of means and the paper's ratio; NaN where there is none."""
    papers = math.nan
    if figure.paper is not None and reference.paper:
        papers = figure.paper / reference.paper
    return (figure.mean / reference.mean if reference.mean else math.nan), papers


def _times(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:.2f}"


def _sweep(plan: Plan, source: Source) -> list[Sheet]:
    assert plan.experiment.sweep is not None
    lines = []
    for row in results.sweep(plan, source):
        lines.append((row[0].row, *map(ours, row), _seeds(plan, source, row[0].row)))
        if any(figure.paper is not None for figure in row):
            lines.append((f"{row[0].row}, paper", *(number(x.paper, x.metric) for x in row), ""))
    metric, setting = METRICS[plan.experiment.metrics[0]], plan.experiment.sweep.setting
    columns = (f"{metric} by {setting}", *map(str, plan.experiment.points), "seeds")
    return [Sheet(_title(plan, source), columns, tuple(lines))]


def _seeds(plan: Plan, source: Source, name: str) -> str:
    """Returns how many seeds a row stands on, with how many it should where these are more."""
    row = plan.experiment.row(name)
    places = [plan.at(row, source, i) for i in range(len(plan.experiment.points))]
    done = [sum(run.record is not None for run in runs) for runs in places]
    wanted = len(places[0])
    if not wanted:
        return NOTHING
    least, most = min(done), max(done)
    if least == wanted:
        return str(wanted)
    return f"{least if least == most else f'{least} to {most}'} of {wanted}"


def _relations(plan: Plan, source: Source) -> list[Sheet]:
    rows = results.implausible(plan, source)
    lines = [(row[0].row, *map(ours, row), _seeds(plan, source, row[0].row)) for row in rows]
    sides = ("heads", "tails", "both")
    columns = ("model", *(f"{side}, {of}" for of in ("all", "wrong") for side in sides), "seeds")
    found = [Sheet(f"{source.name}: share of first answers that are implausible", columns, tuple(lines))]
    if rows := results.focus(plan, source):
        chosen = plan.experiment.focus[source.name]
        title = f"{source.name}: {chosen.relation}, {chosen.side} side"
        found.append(_beside_the_paper(plan, source, rows, title))
    others = [row for row in plan.experiment.rows_on(source.name) if row.name != plan.experiment.baseline]
    gains = {row.name: results.gains(plan, row, source) for row in others}
    return found + [_gains(plan, source, name, rows) for name, rows in gains.items() if rows]


def _gains(plan: Plan, source: Source, name: str, gains: list[results.Gain]) -> Sheet:
    shown = gains
    if len(gains) > MOST_GAINS + MOST_LOSSES:
        shown = [*gains[:MOST_GAINS], *gains[-MOST_LOSSES:]]
    columns = (
        "relation",
        "side",
        "triples",
        "Hits@1",
        "baseline",
        "gain",
        "MRR",
        "baseline",
        "implausible of wrong",
        "baseline",
    )
    lines = [
        (
            *(gain.relation, gain.side, f"{gain.triples:,}"),
            *(number(gain.after["hits@1"].mean, ""), number(gain.before["hits@1"].mean, ""), f"{gain.gain:+.3f}"),
            *(number(which["mrr"].mean, "") for which in (gain.after, gain.before)),
            *(number(which["wrong_implausible"].mean, "") for which in (gain.after, gain.before)),
        )
        for gain in shown
    ]
    better = sum(gain.gain > 0 for gain in gains)
    worse = sum(gain.gain < 0 for gain in gains)
    title = (
        f"{source.name}: {name} beside {plan.experiment.baseline}, better on {better} sides of relations and worse on "
        f"{worse}, of {len(gains)} with {results.FEWEST} test triples or more; the largest gains and losses"
    )
    return Sheet(title, columns, tuple(lines))
