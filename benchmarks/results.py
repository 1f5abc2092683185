"""Figures: made of what was measured, written as JSON, and printed as a table beside the committed ones."""

import itertools
import json
import operator
import os
import platform
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import psutil

COMMITTED = Path(__file__).with_name("figures.json")
PACKAGES = ("jobi-tf", "tensorflow", "keras", "numpy")
UNITS = {"rate": "triples/s", "ms": "ms", "seconds": "s", "MB": "MB"}
COMPARISONS = {"<": operator.lt, "<=": operator.le, ">=": operator.ge}

Measured = dict[str, list[dict[str, float]]]  # task → values of each round
Figure = dict[str, Any]  # as in the JSON file


class Line(NamedTuple):
    """A figure to make of what a suite measured."""

    name: str  # unique, `suite/figure`
    what: str  # description for the table
    task: str
    key: str  # which of the values of the task
    ratio: str = ""  # `TASK / TASK`, whose values of the same key are divided round by round
    target: str = ""  # such as `<= 1.12`, on the ratio, or on the median if there is no ratio
    unit: str = ""  # by default that of the key

    def figure(self, data: str, measured: Measured, other: Measured) -> Figure | None:
        """Returns the figure as it stands in the JSON file; None if a part of it was not measured.

        `measured` is of this checkout and the graph `data`, `other` of another checkout in the same rounds, if any.
        """
        above, _, below = (self.ratio or f"{self.task} / {self.task}").partition(" / ")
        if not {self.task, above, below} <= measured.keys():
            return None
        values = [x[self.key] for x in measured[self.task]]
        made: Figure = {"name": self.name, "what": self.what, "data": data, "unit": self.unit or UNITS[self.key]}
        made |= summary(values)
        if self.ratio:
            made["ratio"] = {"of": self.ratio, **summary(ratios(measured[above], measured[below], self.key))}
        if self.target:
            comparison, bound = self.target.split()
            of, value = ("ratio", made["ratio"]["median"]) if self.ratio else ("median", made["median"])
            met = bool(COMPARISONS[comparison](value, float(bound)))
            made["target"] = {"of": of, "comparison": comparison, "value": float(bound), "met": met}
        if self.task in other and (quotients := ratios(measured[self.task], other[self.task], self.key)):
            made["against"] = {"of": "this checkout / the other", **summary(quotients)}
        return made


def ratios(above: list[dict[str, float]], below: list[dict[str, float]], key: str) -> list[float]:
    """Returns the quotients round by round, so that what slows the machine for a while slows both."""
    return [a[key] / b[key] for a, b in zip(above, below, strict=True) if b[key]]


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Returns median, min, max and all values."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "repeats": list(values)}


def report(results: Sequence[Figure], tiny: bool, against: Path | None) -> dict[str, Any]:
    """Returns the JSON file: figures and what could not be measured, with the machine, the versions and the date."""
    cpus = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*:\s*(.+)", cpus.read_text(encoding="utf-8")) if cpus.exists() else None
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "tiny": tiny,
        "against": against and str(against),
        "machine": {
            "cpu": model[1] if model else platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
            "system": platform.platform(),
        },
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "figures": [x for x in results if "reason" not in x],
        "unmeasured": [x for x in results if "reason" in x],
    }


def table(content: Mapping[str, Any], committed: Mapping[str, Any]) -> list[dict[str, str]]:
    """Returns the rows of the table of a run, texts by column; committed figures on the same data stand beside."""
    known = {} if content["tiny"] else {(x["name"], x["data"]): x for x in committed["figures"]}
    rows = []
    for x in content["figures"]:
        row = {"what": x["what"], "median": f"{number(x['median'])} {x['unit']}"}
        row["spread"] = "once" if len(x["repeats"]) == 1 else spread(x)
        row["ratio"] = row["target"] = ""
        if ratio := x.get("ratio"):
            row["ratio"] = f"{number(ratio['median'])} ({spread(ratio)}) {ratio['of']}"
        if target := x.get("target"):
            verdict = "" if content["tiny"] else " met" if target["met"] else " missed"
            row["target"] = f"{target['comparison']} {target['value']:,g}{verdict}"
        if content["against"]:
            row["against"] = f"{x['against']['median']:.3f} ({spread(x['against'])})" if "against" in x else "–"
        row["committed"] = "–"
        if before := known.get((x["name"], x["data"])):
            change = f" ({x['median'] / before['median'] - 1:+.0%} now)" if before["median"] > 0 else ""
            ratio = f", ratio {number(before['ratio']['median'])}" if "ratio" in before else ""
            row["committed"] = f"{number(before['median'])}{change}{ratio}"
        rows.append(row)
    return rows


def title(content: Mapping[str, Any]) -> str:
    """Returns the machine, the version of TensorFlow and the day."""
    machine = content["machine"]
    memory = f"{machine['memory_bytes'] / 2**30:.0f} GB"
    versions = f"TensorFlow {content['versions']['tensorflow']}"
    return f"{machine['cpu']}, {machine['cores']} cores, {memory}, {versions}, {content['date'][:10]}"


def spread(values: Mapping[str, float]) -> str:
    """Returns the least and the greatest value."""
    return f"{number(values['min'])}–{number(values['max'])}"


def number(value: float) -> str:
    """Returns a number with about three digits, as 12,345 or 1.08."""
    size = abs(value)
    return f"{value:,.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3}f}"


def committed() -> dict[str, Any]:
    """Returns the committed figures."""
    return json.loads(COMMITTED.read_text(encoding="utf-8"))


def write_growth(figures: Sequence[Figure], folder: Path) -> None:
    """Writes growth.csv, and growth.png: time and memory of a step against what is varied, all axes logarithmic.

    Writes nothing if no step was measured.
    """
    import pandas as pd
    from matplotlib.figure import Figure as Picture
    from matplotlib.ticker import EngFormatter, LogLocator

    rows = []
    measured = [x for x in figures if x["name"].startswith("growth/") and "reason" not in x]
    if not measured:
        return
    for x, memory in itertools.pairwise(measured):
        varied, value, *of_memory = x["name"].removeprefix("growth/").split("-")
        if not of_memory:
            rows.append((varied, int(value), x["median"], x["min"], x["max"], memory["median"]))
    frame = pd.DataFrame(rows, columns=["varied", "value", "step_ms", "step_ms_min", "step_ms_max", "peak_mb"]).round(3)
    frame.to_csv(folder / "growth.csv", index=False)
    groups = frame.groupby("varied", sort=False)
    picture = Picture(figsize=(3 * len(groups) + 1, 6), layout="constrained")
    axes = picture.subplots(2, len(groups), sharex="col", sharey="row", squeeze=False)
    for (above, below), (varied, points) in zip(axes.T, groups, strict=True):
        above.fill_between(points.value, points.step_ms_min, points.step_ms_max, alpha=0.3)
        above.plot(points.value, points.step_ms, marker="o")
        below.plot(points.value, points.peak_mb / 1000, marker="o", color="C1")
        below.set(xlabel=varied, xscale="log", xticks=points.value)
        below.minorticks_off()
        below.xaxis.set_major_formatter(EngFormatter(sep=""))
    labels = ("ms a step (median, min to max)", "peak memory of the process, GB")
    for axis, label in zip(axes[:, 0], labels, strict=True):
        axis.set(yscale="log", ylabel=label)
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
        axis.yaxis.set_minor_formatter("{x:g}")
    picture.savefig(folder / "growth.png", dpi=130)
