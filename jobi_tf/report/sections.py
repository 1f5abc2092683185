"""What the sections of a report show, as plain values."""

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import SIDES
from jobi_tf.datasets.statistics import CATEGORIES, statistics
from jobi_tf.evaluation.breakdowns import FirstAnswers, reliability
from jobi_tf.evaluation.metrics import METRICS
from jobi_tf.evaluation.ranks import Ranks, rank_metrics
from jobi_tf.evaluation.reliability import Bin
from jobi_tf.report.charts import Line, line_chart
from jobi_tf.report.measured import Measured
from jobi_tf.training.config import TrainConfig

BOTH = ("both", *SIDES)
FEWEST = 10  # triples of a relation whose gain is shown, where some relation has as many
MOST_GAINS = 12
MOST_IMPLAUSIBLE = 15
CURVES = {
    "triple_loss": "triple loss",
    "pair_loss": "pair loss",
    **{f"val_{name}": f"validation {METRICS[name]}" for name in ("mrr", "hits@1", "hits@10")},
}


def ranks_of(run: Measured, side: str) -> np.ndarray:
    """Returns the ranks on a side, or on both after each other: float64 [N] or [2N]."""
    chosen = SIDES if side == "both" else (side,)
    return Ranks.concatenate([run.evaluation.ranks[x] for x in chosen]).ranks()


def first_of(run: Measured, side: str) -> FirstAnswers:
    """Returns the first answers on a side, or on both after each other."""
    return run.first[side] if side != "both" else FirstAnswers.concatenate([run.first[x] for x in SIDES])


def _on(side: str, chosen: np.ndarray) -> np.ndarray:
    """Repeats a choice of triples for `both`."""
    return np.tile(chosen, 2) if side == "both" else chosen


def labels(paths: Sequence[Path]) -> list[str]:
    """Returns the end of each path, as long as it takes to tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts))):
        ends = ["/".join(part[-length:]) for part in parts]
        if len(set(ends)) == len(ends):
            return ends
    return [str(path) for path in paths]


@dataclass(frozen=True)
class Setting:
    """A setting of all runs: its value in each, and whether that is its default."""

    name: str
    description: str
    values: tuple[str, ...]
    usual: tuple[bool, ...]


def settings(runs: Sequence[Measured]) -> dict[str, list[Setting]]:
    """Returns the settings that differ between the runs, then those off their defaults, then all others."""
    found: dict[str, list[Setting]] = {"different": [], "unusual": [], "usual": []}
    for name, field in TrainConfig.model_fields.items():
        if name not in runs[0].settings:
            continue
        values = tuple(_value(run.settings[name]) for run in runs)
        usual = tuple(name in run.usual and run.settings[name] == run.usual[name] for run in runs)
        kind = "different" if len(set(values)) > 1 else "usual" if all(usual) else "unusual"
        found[kind].append(Setting(name, field.description or "", values, usual))
    return found


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return {"None": "–", "True": "yes", "False": "no"}.get(str(value), str(value))


def curves(runs: Sequence[Measured], names: Sequence[str]) -> dict[str, Any]:
    """Returns a chart for each metric that any run recorded, by its name."""
    charts = {}
    for metric, label in CURVES.items():
        lines = []
        for number, (name, run) in enumerate(zip(names, runs, strict=True)):
            points = [(row["epoch"], row[metric]) for row in run.epochs if row.get(metric) is not None]
            lines.append(Line(name, number, points, run.best_epoch))
        if chart := line_chart(label, lines):
            charts[label] = chart
    return charts


def overall(runs: Sequence[Measured]) -> dict[str, list[dict[str, float]]]:
    """Returns the metrics of every run, by side."""
    return {side: [rank_metrics(ranks_of(run, side)) for run in runs] for side in BOTH}


def categories(runs: Sequence[Measured], graph: Graph) -> list[dict[str, Any]]:
    """Returns for each relation category its relations, its triples and the metrics of each run by side."""
    relations = runs[0].evaluation.triples[:, 1]
    of_relation = category_of(graph)
    kinds = [kind for kind in (*CATEGORIES, "unseen") if (of_relation[relations] == kind).any()]
    found = []
    for kind in kinds:
        chosen = of_relation[relations] == kind
        metrics = [{side: rank_metrics(ranks_of(run, side)[_on(side, chosen)]) for side in BOTH} for run in runs]
        counts = {"relations": len(np.unique(relations[chosen])), "triples": int(chosen.sum())}
        found.append({"name": kind, **counts, "runs": metrics})
    return found


def category_of(graph: Graph) -> np.ndarray:
    """Returns the category of each relation by its training triples, or `unseen`: str [relations]."""
    by_name = {row.name: row.category for row in statistics(graph).by_relation}
    return np.array([by_name[name] for name in graph.relations.names])


def relations(runs: Sequence[Measured], graph: Graph) -> dict[str, list[dict[str, Any]]]:
    """Returns by side a row for each relation of the split, those with the most triples first."""
    column, of_relation = runs[0].evaluation.triples[:, 1], category_of(graph)
    every, counts = np.unique(column, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    rows: dict[str, list[dict[str, Any]]] = {side: [] for side in BOTH}
    for side in BOTH:
        of_runs = [(ranks_of(run, side), first_of(run, side)) for run in runs]
        for i in order:
            chosen = _on(side, column == every[i])
            metrics = [
                {**rank_metrics(ranks[chosen]), "implausible": first.implausible_share(chosen)}
                for ranks, first in of_runs
            ]
            name, category = graph.relations[every[i]], str(of_relation[every[i]])
            rows[side].append({"name": name, "category": category, "triples": int(counts[i]), "runs": metrics})
    return rows


def implausible(runs: Sequence[Measured]) -> dict[str, list[dict[str, float]]]:
    """Returns by side, for each run, the shares of implausible first answers and how many were wrong."""
    return {side: [_shares(first_of(run, side), slice(None)) for run in runs] for side in BOTH}


def implausible_relations(runs: Sequence[Measured], graph: Graph) -> list[dict[str, Any]]:
    """Returns the sides of relations where some run has the most implausible first answers, the most first."""
    column = runs[0].evaluation.triples[:, 1]
    rows = []
    for relation in np.unique(column):
        chosen = column == relation
        for side in SIDES:
            shares = [_shares(run.first[side], chosen) for run in runs]
            row = {"name": graph.relations[relation], "side": side, "triples": int(chosen.sum()), "runs": shares}
            rows.append((max(share["count"] for share in shares), row))
    rows.sort(key=lambda row: -row[0])
    return [row for count, row in rows[:MOST_IMPLAUSIBLE] if count]


def _shares(first: FirstAnswers, chosen: np.ndarray | slice) -> dict[str, float]:
    return {
        "all": first.implausible_share(chosen),
        "of_wrong": first.implausible_share(chosen, wrong_only=True),
        "of_true": float(1 - first.true_plausible[chosen].mean()),
        "wrong": int((~first.right[chosen]).sum()),
        "count": int((~first.plausible[chosen]).sum()),
    }


def gains(baseline: Measured, run: Measured, graph: Graph) -> dict[str, Any]:
    """Compares the MRR of a run with a baseline: in all, and by relation, gains first.

    The margin is 1.96 standard errors of the mean difference over triples.
    """
    sides = [1 / ranks_of(run, side) - 1 / ranks_of(baseline, side) for side in SIDES]
    difference, column = np.mean(sides, 0), run.evaluation.triples[:, 1]  # [N]
    every, places, counts = np.unique(column, return_inverse=True, return_counts=True)
    enough = counts >= (FEWEST if counts.max() >= FEWEST else 1)
    of_relation = np.bincount(places, difference) / counts
    order = [i for i in np.argsort(-of_relation, kind="stable").tolist() if enough[i]]
    shown = order if len(order) <= 2 * MOST_GAINS else [*order[:MOST_GAINS], *order[-MOST_GAINS:]]
    mrr = {"before": _mrr_of_relations(baseline, places, counts), "after": _mrr_of_relations(run, places, counts)}
    rows = [
        {"name": graph.relations[every[i]], "triples": int(counts[i]), "gain": float(of_relation[i])}
        | {name: float(values[i]) for name, values in mrr.items()}
        for i in shown
    ]
    margin = 1.96 * float(difference.std(ddof=1)) / math.sqrt(len(difference)) if len(difference) > 1 else math.nan
    return {
        "mrr": float(difference.mean()),
        "margin": margin,
        "better": sum(of_relation[i] > 0 for i in order),
        "worse": sum(of_relation[i] < 0 for i in order),
        "compared": len(order),
        "relations": len(every),
        "largest": float(np.abs(of_relation[shown]).max()),
        "rows": rows,
    }


def _mrr_of_relations(run: Measured, places: np.ndarray, counts: np.ndarray) -> np.ndarray:
    both = np.mean([1 / ranks_of(run, side) for side in SIDES], 0)
    return np.bincount(places, both) / counts


def environments(runs: Sequence[Measured]) -> dict[str, list[str]]:
    """Returns how and where each run was made, by what is told."""
    told: dict[str, Callable[[Measured], str]] = {
        "folder": lambda run: str(run.path),
        "command": lambda run: _command(run.environment.get("command", [])),
        "begun": lambda run: str(run.environment.get("date", "")),
        "epochs": lambda run: _epochs(run),
        "training": lambda run: _time(run.epochs),
        "parameters": lambda run: f"{run.parameters:,}",
        "Python": lambda run: str(run.environment.get("python", "")),
        "platform": lambda run: str(run.environment.get("platform", "")),
        "processors": lambda run: str(run.environment.get("processors", "")),
        "packages": lambda run: ", ".join(f"{x} {y}" for x, y in run.environment.get("versions", {}).items()),
    }
    return {name: [tell(run) or "not recorded" for run in runs] for name, tell in told.items()}


def _command(words: list[str]) -> str:
    if words and Path(words[0]).stem in ("__main__", "jobi-tf"):
        words = ["jobi-tf", *words[1:]]
    return shlex.join(words)


def _epochs(run: Measured) -> str:
    if not run.epochs:
        return ""
    best = f"; the model is of epoch {run.best_epoch}" if run.best_epoch else "; none was ranked"
    return f"{run.epochs[-1]['epoch']} of {run.config.epochs} at most{best}"


def _time(epochs: list[dict[str, Any]]) -> str:
    seconds = [row["seconds"] for row in epochs if "seconds" in row]
    rates = [row["triples_per_second"] for row in epochs if "triples_per_second" in row]
    return f"{sum(seconds):,.0f} s without rankings, {np.median(rates):,.0f} triples/s (median)" if rates else ""


def calibration(run: Measured) -> tuple[float, tuple[Bin, ...]]:
    """Returns the expected calibration error of the first answers on both sides, and their bins."""
    return reliability(first_of(run, "both"))
