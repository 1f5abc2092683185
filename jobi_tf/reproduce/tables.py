"""The figures of an experiment, ours over seeds and the paper's, and the tables of them."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from jobi_tf.data.occurrences import SIDES
from jobi_tf.errors import needs
from jobi_tf.reproduce.experiment import METRICS, Row
from jobi_tf.reproduce.runs import Plan, Source

with needs("tables of experiments need pandas", "reproduce"):
    import pandas as pd

OF_RELATIONS = ("hits@1", "mrr", "implausible", "wrong_implausible")
FEWEST = 10  # triples of a relation whose gain is shown, where some relation has as many
MOST_GAINS, MOST_LOSSES = 12, 4
NOTHING = "–"
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
        for row in plan.experiment.rows_on(source.name):
            for part, at, metric, side, paper in _places(plan, source, row):
                records = plan.records(row, source, at if part == "sweep" else None)
                relation = at if part in ("focus", "relations") else None
                found = [record.value(metric, side, relation) for record in records] or [math.nan]
                place = "none" if at is None else at  # pandas would leave such a point out
                values += [(part, source.name, row.name, place, metric, side, paper, value) for value in found]
    frame = pd.DataFrame(values, columns=[*_KEYS, "paper", "value"])
    groups = frame.astype({"paper": float, "value": float}).groupby(_KEYS, sort=False)
    values_and_paper = {"mean": ("value", "mean"), "sd": ("value", "std"), "seeds": ("value", "count")}
    return groups.agg(**values_and_paper, paper=("paper", "first")).reset_index()


def _places(plan: Plan, source: Source, row: Row) -> Iterator[tuple[str, Any, str, str, float | None]]:
    """Yields part, place, metric and side of each figure of a row, and the paper's figure."""
    experiment, side = plan.experiment, plan.experiment.side
    papers = experiment.paper(row, source.name)
    if experiment.kind == "table":
        yield from (("table", "", metric, side, x) for metric, x in zip(experiment.metrics, papers, strict=True))
    elif experiment.kind == "sweep":
        points = zip(experiment.points, papers, strict=True)
        yield from (("sweep", point, experiment.metrics[0], side, x) for point, x in points)
    else:
        shares = ("implausible", "wrong_implausible")
        yield from (("implausible", "", metric, x, None) for metric in shares for x in (*SIDES, "both"))
        focus = experiment.focus.get(source.name)
        of_source = [run.record for run in plan.complete if run.source == source and run.record]
        if focus and all(focus.relation in record.content["relations"] for record in of_source):
            for metric, paper in zip(experiment.metrics, papers, strict=True):
                yield "focus", focus.relation, metric, focus.side, paper
        for record in plan.records(row, source)[:1]:
            for relation, sides in record.content["relations"].items():
                yield from (("relations", relation, x, y, None) for y in sides for x in (*OF_RELATIONS, "triples"))


def tables(plan: Plan, frame: pd.DataFrame) -> list[Table]:
    """Returns the tables of an experiment, data set by data set, from its `figures`."""
    found: list[Table] = []
    for source in plan.sources:
        of_source = frame[frame["dataset"] == source.name]
        title = source.name + {"both": "", "head": ", heads only", "tail": ", tails only"}[plan.experiment.side]
        if plan.experiment.kind == "relations":
            found += _relations(plan, source, of_source)
        elif plan.experiment.kind == "sweep":
            found.append(_sweep(plan, source, of_source, title))
        else:
            found.append(_by_metric(plan, source, of_source, title, plan.experiment.baseline))
    return found


def number(value: float, metric: str = "", digits: int = 3) -> str:
    """Returns a number with the digits that suit its metric."""
    if math.isnan(value):
        return NOTHING
    if metric not in _TIMES:
        return f"{value:.{digits}f}"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _ours(figure: Any) -> str:
    spread = "" if math.isnan(figure.sd) else f" ± {number(figure.sd, figure.metric)}"
    return number(figure.mean, figure.metric) + spread


def ratios(frame: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Returns the figures of a table with our and the paper's `mean` and `paper` divided by those of the baseline."""
    base = frame[frame["row"] == baseline].set_index("metric")
    columns = {name: frame[name] / frame["metric"].map(base[name]) for name in ("mean", "paper")}
    return frame.assign(**columns)


def _by_metric(plan: Plan, source: Source, frame: pd.DataFrame, title: str, baseline: str | None = None) -> Table:
    """Our figures, and beside them the paper's where it has any.

    With a baseline the ratios to it are there instead, if the paper has the baseline: it measured times on other
    hardware.
    """
    names = [*frame["row"].unique()]
    columns = [("model", names)]
    for metric, group in frame.groupby("metric", sort=False):
        columns.append((METRICS[str(metric)], [*map(_ours, group.itertuples())]))
        divided = ratios(group, baseline) if baseline else None
        if divided is not None:
            columns.append((f"÷ {baseline}", [number(x, digits=2) for x in divided["mean"]]))
        if divided is not None and divided["paper"].notna().any():
            columns.append(("paper ÷", [number(x, digits=2) for x in divided["paper"]]))
        elif group["paper"].notna().any():
            columns.append(("paper", [number(x, str(metric)) for x in group["paper"]]))
    columns.append(("seeds", [_seeds(plan, source, name) for name in names]))
    titles, cells = zip(*columns, strict=True)
    return Table(title, [*titles], [[*row] for row in zip(*cells, strict=True)])


def _sweep(plan: Plan, source: Source, frame: pd.DataFrame, title: str) -> Table:
    assert plan.experiment.sweep is not None
    metric, setting = METRICS[plan.experiment.metrics[0]], plan.experiment.sweep.setting
    rows = []
    for name, group in frame.groupby("row", sort=False):
        rows.append([str(name), *map(_ours, group.itertuples()), _seeds(plan, source, str(name))])
        if group["paper"].notna().any():
            rows.append([f"{name}, paper", *map(number, group["paper"]), ""])
    return Table(title, [f"{metric} by {setting}", *map(str, plan.experiment.points), "seeds"], rows)


def _seeds(plan: Plan, source: Source, name: str) -> str:
    """Returns the number of seeds of a row that are complete, with the planned number where that is larger."""
    row, points = plan.experiment.row(name), plan.experiment.points
    done = [len(plan.records(row, source, point)) for point in points]
    wanted = len(plan.at(row, source, points[0]))
    if not wanted:
        return NOTHING
    if min(done) == wanted:
        return str(wanted)
    return f"{min(done) if min(done) == max(done) else f'{min(done)} to {max(done)}'} of {wanted}"


def _relations(plan: Plan, source: Source, frame: pd.DataFrame) -> Iterator[Table]:
    part = frame[frame["part"] == "implausible"]
    columns = ["model", *(f"{side}, {of}" for of in ("all", "wrong") for side in ("heads", "tails", "both")), "seeds"]
    rows = [
        [str(name), *map(_ours, group.itertuples()), _seeds(plan, source, str(name))]
        for name, group in part.groupby("row", sort=False)
    ]
    yield Table(f"{source.name}: share of first answers that are implausible", columns, rows)
    focus = frame[frame["part"] == "focus"]
    if len(focus):
        chosen = plan.experiment.focus[source.name]
        yield _by_metric(plan, source, focus, f"{source.name}: {chosen.relation}, {chosen.side} side")
    baseline = plan.experiment.baseline or ""
    for row in plan.experiment.rows_on(source.name):
        gained = gains(frame, baseline, row.name)
        if row.name != baseline and len(gained):
            yield _gains(f"{source.name}: {row.name} beside {baseline}", gained)


def gains(frame: pd.DataFrame, baseline: str, name: str) -> pd.DataFrame:
    """Compares a row with the baseline on one data set: each relation and side, the largest gain in Hits@1 first.

    Returns:
        The columns `at` (the relation), `side`, `triples`, `gain`, and each metric of `OF_RELATIONS` of the row, and of
        the baseline with the suffix `_before`; empty where one of them has no complete run.
    """
    part = frame[frame["part"] == "relations"]
    rows = part[part["row"] == baseline], part[part["row"] == name]
    before, after = (x.pivot(index=["at", "side"], columns="metric", values="mean") for x in rows)
    if before.empty or after.empty:
        return pd.DataFrame()
    both = after.join(before.drop(columns="triples").add_suffix("_before")).reset_index()
    both = both.assign(gain=both["hits@1"] - both["hits@1_before"])
    enough = both[both["triples"] >= FEWEST]
    return (enough if len(enough) else both).sort_values(["gain", "at", "side"], ascending=[False, True, True])


def _gains(title: str, gained: pd.DataFrame) -> Table:
    shown = gained
    if len(gained) > MOST_GAINS + MOST_LOSSES:
        shown = pd.concat([gained[:MOST_GAINS], gained[-MOST_LOSSES:]])
    metrics = ("mrr", "mrr_before", "wrong_implausible", "wrong_implausible_before")
    rows = [
        [
            *(x["at"], x["side"], f"{x['triples']:,.0f}"),
            *(number(x["hits@1"]), number(x["hits@1_before"]), f"{x['gain']:+.3f}"),
            *(number(x[column]) for column in metrics),
        ]
        for _, x in shown.iterrows()
    ]
    better, worse = (gained["gain"] > 0).sum(), (gained["gain"] < 0).sum()
    which = f" with {FEWEST} test triples or more" if gained["triples"].min() >= FEWEST else ""
    sides = f"better on {better} sides of relations and worse on {worse}, of {len(gained)}{which}"
    of_wrong = ["implausible of wrong", "baseline"]
    columns = ["relation", "side", "triples", "Hits@1", "baseline", "gain", "MRR", "baseline", *of_wrong]
    return Table(f"{title}, {sides}; the largest gains and losses", columns, rows)
