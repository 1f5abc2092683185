"""Pictures of experiments."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from jobi_tf.experiments.reproduce import results
from jobi_tf.experiments.reproduce.experiment import METRICS
from jobi_tf.experiments.reproduce.plan import Plan, Source
from jobi_tf.experiments.reproduce.results import Figure
from jobi_tf.experiments.reproduce.sheets import MOST_GAINS, ratio

_OURS, _PAPER = "#1f77b4", "#7f7f7f"


def draw(plan: Plan, path: Path, title: str) -> None:
    """Writes the picture of an experiment as PNG; of data sets without a complete run it shows nothing."""
    complete = {run.source for run in plan.all_runs if run.record is not None}
    sources = [source for source in plan.sources if source in complete]
    kind = {"table": _tables, "sweep": _sweeps, "relations": _relations}[plan.experiment.kind]
    picture = kind(plan, sources)
    picture.suptitle(title, fontsize=11)
    picture.savefig(path, dpi=130, format="png")


def _tables(plan: Plan, sources: Sequence[Source]) -> Picture:
    """A line of dot plots a data set, one a metric: ours with its standard deviation, the paper's beside it."""
    metrics, lines = plan.experiment.metrics, [len(plan.experiment.rows_on(source.name)) for source in sources]
    heights = [0.32 * count + 0.9 for count in lines]
    picture = Picture(figsize=(2.6 * len(metrics) + 1.6, sum(heights) + 0.7), layout="constrained")
    grid = picture.subplots(len(sources), len(metrics), sharey="row", squeeze=False, height_ratios=heights)
    for line, source in zip(grid, sources, strict=True):
        rows = results.table(plan, source)
        base = next((row for row in rows if row[0].row == plan.experiment.baseline), None)
        for i, axis in enumerate(line):
            ours = [_point(row[i], base[i] if base else None) for row in rows]
            spread = [math.nan if base else row[i].sd for row in rows]
            papers = [_papers(row[i], base[i] if base else None) for row in rows]
            places = range(len(rows))
            label = None if all(math.isnan(x) for x in papers) else "paper"
            axis.scatter(papers, places, marker="D", s=34, facecolors="none", edgecolors=_PAPER, label=label)
            axis.errorbar(ours, places, xerr=spread, fmt="o", markersize=5, capsize=3, color=_OURS, label="ours")
            label = METRICS[metrics[i]] + (f" ÷ {plan.experiment.baseline}" if base else "")
            axis.set_xlabel(label, fontsize=9)
            axis.set_yticks(places, [row[0].row for row in rows], fontsize=9)
            axis.set_ylim(len(rows) - 0.5, -0.5)
            _quiet(axis, "both")
        line[0].set_title(source.name, fontsize=9, loc="left")
    _legend(picture)
    return picture


def _point(figure: Figure, base: Figure | None) -> float:
    return figure.mean if base is None else ratio(figure, base)[0]


def _papers(figure: Figure, base: Figure | None) -> float:
    if base is not None:
        return ratio(figure, base)[1]
    return math.nan if figure.paper is None else figure.paper


def _sweeps(plan: Plan, sources: Sequence[Source]) -> Picture:
    """A chart a data set: our curves with a band of one standard deviation, the paper's dashed in the same colour."""
    assert plan.experiment.sweep is not None
    points, setting = plan.experiment.points, plan.experiment.sweep.setting
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) and x > 0 for x in points)
    across = points if numbers else range(len(points))
    picture = Picture(figsize=(5.2 * len(sources) + 0.4, 4.4), layout="constrained")
    for axis, source in zip(picture.subplots(1, len(sources), squeeze=False)[0], sources, strict=True):
        dashed = False
        for i, row in enumerate(results.sweep(plan, source)):
            colour, means = f"C{i}", [figure.mean for figure in row]
            spread = [0 if math.isnan(figure.sd) else figure.sd for figure in row]
            axis.plot(across, means, marker="o", markersize=4, color=colour, label=row[0].row)
            low, high = ([m + sign * s for m, s in zip(means, spread, strict=True)] for sign in (-1, 1))
            axis.fill_between(across, low, high, color=colour, alpha=0.18, linewidth=0)
            if any(figure.paper is not None for figure in row):
                papers = [_papers(figure, None) for figure in row]
                axis.plot(across, papers, linestyle="--", linewidth=1, color=colour, alpha=0.8)
                dashed = True
        if numbers:
            axis.set_xscale("log")
        axis.set_xticks(across, [str(x) for x in points], fontsize=8)
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel(setting.replace("_", " "), fontsize=9)
        axis.set_ylabel(f"{METRICS[plan.experiment.metrics[0]]}, test", fontsize=9)
        axis.set_title(source.name, fontsize=9, loc="left")
        handles, _ = axis.get_legend_handles_labels()
        handles += [Line2D([], [], color=_PAPER, linestyle="--", linewidth=1, label="the paper's")] if dashed else []
        axis.legend(handles=handles, fontsize=8, frameon=False)
        _quiet(axis, "y")
    return picture


def _relations(plan: Plan, sources: Sequence[Source]) -> Picture:
    """For each data set the shares of implausible first answers, and the relations with the largest gains."""
    picture = Picture(figsize=(11, 4.4 * len(sources) + 0.4), layout="constrained")
    grid = picture.subplots(len(sources), 2, squeeze=False, width_ratios=(2, 3))
    for (left, right), source in zip(grid, sources, strict=True):
        every = results.implausible(plan, source)
        for i, figures in enumerate(every):
            wrong = [figure for figure in figures if figure.metric == "wrong_implausible"]
            places = [place + (i - (len(every) - 1) / 2) * 0.8 / len(every) for place in range(len(wrong))]
            spread = [x.sd for x in wrong] if len(wrong[0].values) > 1 else None
            left.bar(places, [x.mean for x in wrong], 0.8 / len(every), yerr=spread, capsize=3, label=wrong[0].row)
        left.set_xticks(range(3), ["heads", "tails", "both"])
        left.set_ylabel("wrong first answers that are implausible", fontsize=9)
        left.set_title(source.name, fontsize=9, loc="left")
        left.set_ylim(0, 1.25 * left.get_ylim()[1])  # room for the legend
        left.legend(fontsize=8, frameon=False, loc="upper left")
        _quiet(left, "y")
        _draw_gains(plan, source, right)
    return picture


def _draw_gains(plan: Plan, source: Source, axis: Axes) -> None:
    """From the baseline's Hits@1 to that of the last row."""
    row = next(row for row in reversed(plan.experiment.rows_on(source.name)) if row.name != plan.experiment.baseline)
    gains = results.gains(plan, row, source)[:MOST_GAINS]
    for place, gain in enumerate(gains):
        before, after = gain.before["hits@1"].mean, gain.after["hits@1"].mean
        axis.plot([before, after], [place, place], color="0.7", linewidth=2, zorder=1)
        axis.scatter([before], [place], s=24, color="C0", zorder=2, label=plan.experiment.baseline)
        axis.scatter([after], [place], s=24, color="C1", zorder=2, label=row.name)
    axis.set_yticks(range(len(gains)), [_short(f"{x.relation} ({x.side}, {x.triples:,})") for x in gains], fontsize=7)
    axis.invert_yaxis()
    axis.set_xlabel("Hits@1 of the relations with the largest gains", fontsize=9)
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[:2], labels[:2], fontsize=8, frameon=False)
    _quiet(axis, "both")


def _short(text: str, length: int = 56) -> str:
    return text if len(text) <= length else "…" + text[-length + 1 :]


def _legend(picture: Picture) -> None:
    handles, labels = picture.axes[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside upper right", fontsize=8, frameon=False, ncols=2)


def _quiet(axis: Axes, which: Literal["both", "x", "y"]) -> None:
    axis.grid(axis=which, color="0.92")
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
