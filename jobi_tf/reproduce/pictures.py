"""Pictures of experiments."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from jobi_tf.reproduce.experiment import METRICS
from jobi_tf.reproduce.runs import Plan, Source
from jobi_tf.reproduce.tables import MOST_GAINS, gains, ratios

MOST_CHARACTERS = 56  # of the name of a relation with its side, whose end is shown
_OURS, _PAPER = "#1f77b4", "#7f7f7f"


def draw(plan: Plan, frame: pd.DataFrame, path: Path) -> None:
    """Writes the picture of an experiment, from its `figures`, as PNG; only of data sets with a complete run."""
    sources = [x for x in plan.sources if any(run.source == x for run in plan.complete)]
    kind = {"table": _tables, "sweep": _sweeps, "relations": _relations}[plan.experiment.kind]
    with rc_context({"text.parse_math": False}):  # names may contain dollar signs
        picture = kind(plan, frame, sources)
        picture.suptitle(plan.experiment.title + (" (a quick run)" if plan.quick else ""), fontsize=11)
        picture.savefig(path, dpi=130, format="png")


def _tables(plan: Plan, frame: pd.DataFrame, sources: Sequence[Source]) -> Picture:
    """A line of dot plots for each data set, one a metric: ours with its standard deviation, the paper's beside it."""
    metrics, baseline = plan.experiment.metrics, plan.experiment.baseline
    heights = [0.32 * len(plan.experiment.rows_on(source.name)) + 0.9 for source in sources]
    picture = Picture(figsize=(2.6 * len(metrics) + 1.6, sum(heights) + 0.7), layout="constrained")
    grid = picture.subplots(len(sources), len(metrics), sharey="row", squeeze=False, height_ratios=heights)
    for line, source in zip(grid, sources, strict=True):
        shown = frame[frame["dataset"] == source.name]
        shown = ratios(shown, baseline).assign(sd=math.nan) if baseline else shown
        for metric, axis in zip(metrics, line, strict=True):
            part = shown[shown["metric"] == metric]
            places = range(len(part))
            label = "paper" if part["paper"].notna().any() else None
            axis.scatter(part["paper"], places, marker="D", s=34, facecolors="none", edgecolors=_PAPER, label=label)
            ours = {"fmt": "o", "markersize": 5, "capsize": 3, "color": _OURS, "label": "ours"}
            axis.errorbar(part["mean"], places, xerr=part["sd"], **ours)
            axis.set_xlabel(METRICS[metric] + (f" ÷ {baseline}" if baseline else ""), fontsize=9)
            axis.locator_params(axis="x", nbins=4)
            axis.set_yticks(places, part["row"], fontsize=9)
            axis.set_ylim(len(part) - 0.5, -0.5)
            _quiet(axis, "both")
        line[0].set_title(source.name, fontsize=9, loc="left")
    every: dict[str, Any] = {}
    for axis in picture.axes:
        every |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    picture.legend([*every.values()], [*every], loc="outside upper right", fontsize=8, frameon=False, ncols=2)
    return picture


def _sweeps(plan: Plan, frame: pd.DataFrame, sources: Sequence[Source]) -> Picture:
    """A chart a data set: our curves with a band of one standard deviation, the paper's dashed in the same colour."""
    assert plan.experiment.sweep is not None
    points, setting = plan.experiment.points, plan.experiment.sweep.setting
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) and x > 0 for x in points)
    across = points if numbers else range(len(points))
    picture = Picture(figsize=(5.2 * len(sources) + 0.4, 4.4), layout="constrained")
    for axis, source in zip(picture.subplots(1, len(sources), squeeze=False)[0], sources, strict=True):
        shown = frame[frame["dataset"] == source.name]
        for i, (name, row) in enumerate(shown.groupby("row", sort=False)):
            mean, spread = row["mean"], row["sd"].fillna(0)
            axis.plot(across, mean, marker="o", markersize=4, color=f"C{i}", label=name)
            axis.fill_between(across, mean - spread, mean + spread, color=f"C{i}", alpha=0.18, linewidth=0)
            if row["paper"].notna().any():
                axis.plot(across, row["paper"], linestyle="--", linewidth=1, color=f"C{i}", alpha=0.8)
        if numbers:
            axis.set_xscale("log")
        axis.set_xticks(across, [str(x) for x in points], fontsize=8)
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel(setting.replace("_", " "), fontsize=9)
        axis.set_ylabel(f"{METRICS[plan.experiment.metrics[0]]}, test", fontsize=9)
        axis.set_title(source.name, fontsize=9, loc="left")
        handles, _ = axis.get_legend_handles_labels()
        if shown["paper"].notna().any():
            handles.append(Line2D([], [], color=_PAPER, linestyle="--", linewidth=1, label="the paper's"))
        axis.legend(handles=handles, fontsize=8, frameon=False)
        _quiet(axis, "y")
    return picture


def _relations(plan: Plan, frame: pd.DataFrame, sources: Sequence[Source]) -> Picture:
    """For each data set the shares of implausible first answers, and the relations with the largest gains."""
    picture = Picture(figsize=(11, 4.4 * len(sources) + 0.4), layout="constrained")
    grid = picture.subplots(len(sources), 2, squeeze=False, width_ratios=(2, 3))
    for (left, right), source in zip(grid, sources, strict=True):
        shown = frame[frame["dataset"] == source.name]
        wrong = shown[(shown["part"] == "implausible") & (shown["metric"] == "wrong_implausible")]
        rows = [*wrong.groupby("row", sort=False)]
        for i, (name, row) in enumerate(rows):
            places = [place + (i - (len(rows) - 1) / 2) * 0.8 / len(rows) for place in range(len(row))]
            spread = row["sd"] if row["sd"].notna().all() else None
            left.bar(places, row["mean"], 0.8 / len(rows), yerr=spread, capsize=3, label=name)
        left.set_xticks(range(3), ["heads", "tails", "both"])
        left.set_ylabel("wrong first answers that are implausible", fontsize=9)
        left.set_title(source.name, fontsize=9, loc="left")
        left.set_ylim(0, 1.25 * left.get_ylim()[1])  # room for the legend
        left.legend(fontsize=8, frameon=False, loc="upper left")
        _quiet(left, "y")
        _draw_gains(plan, source, shown, right)
    return picture


def _draw_gains(plan: Plan, source: Source, frame: pd.DataFrame, axis: Axes) -> None:
    """From the baseline's Hits@1 to that of the last row."""
    baseline = plan.experiment.baseline or ""
    name = next(x.name for x in reversed(plan.experiment.rows_on(source.name)) if x.is_run and x.name != baseline)
    shown = gains(frame, baseline, name)[:MOST_GAINS]
    for place, (_, x) in enumerate(shown.iterrows()):
        axis.plot([x["hits@1_before"], x["hits@1"]], [place, place], color="0.7", linewidth=2, zorder=1)
        axis.scatter([x["hits@1_before"]], [place], s=24, color="C0", zorder=2, label=baseline)
        axis.scatter([x["hits@1"]], [place], s=24, color="C1", zorder=2, label=name)
    labels = [f"{x['at']} ({x['side']}, {x['triples']:,.0f})"[-MOST_CHARACTERS:] for _, x in shown.iterrows()]
    axis.set_yticks(range(len(shown)), labels, fontsize=7)
    axis.invert_yaxis()
    axis.set_xlabel("Hits@1 of the relations with the largest gains", fontsize=9)
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[:2], labels[:2], fontsize=8, frameon=False)
    _quiet(axis, "both")


def _quiet(axis: Axes, which: Literal["both", "x", "y"]) -> None:
    axis.grid(axis=which, color="0.92")
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
