"""Figures: made of what was measured, written as JSON, and printed as a table beside the committed ones."""

import json
import operator
import os
import platform
import re
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from benchmarks.running import Line, Suite

FORMAT = 1
COMMITTED = Path(__file__).with_name("figures.json")
PACKAGES = ("jobi-tf", "tensorflow", "keras", "numpy")
UNITS = {"rate": "triples/s", "ms": "ms", "seconds": "s", "MB": "MB"}
COMPARISONS = {"<": operator.lt, "<=": operator.le, ">=": operator.ge}

Measured = dict[str, list[dict[str, float]]]  # task → values of each round
Figure = dict[str, Any]  # as in the JSON file


def figure(line: "Line", suite: "Suite", measured: Measured, other: Measured) -> Figure | None:
    """Returns a figure as it stands in the JSON file; None if a part of it was not measured.

    Args:
        line: what to make.
        suite: the suite that was measured.
        measured: what it measured of this checkout.
        other: what it measured of another checkout in the same rounds, if anything.
    """
    above, _, below = (line.ratio or f"{line.task} / {line.task}").partition(" / ")
    if not {line.task, above, below} <= measured.keys():
        return None
    made: Figure = {"name": line.name, "what": line.what, "data": suite.data, "unit": line.unit or UNITS[line.key]}
    made |= {**summary([x[line.key] for x in measured[line.task]]), "once": len(measured[line.task]) == 1}
    if line.ratio:
        made["ratio"] = {"of": line.ratio, **summary(ratios(measured[above], measured[below], line.key))}
    if line.target:
        comparison, bound = line.target.split()
        of, value = ("ratio", made["ratio"]["median"]) if line.ratio else ("median", made["median"])
        met = bool(COMPARISONS[comparison](value, float(bound)))
        made["target"] = {"of": of, "comparison": comparison, "value": float(bound), "met": met}
    if line.task in other and (values := ratios(measured[line.task], other[line.task], line.key)):
        made["against"] = {"of": "this checkout / the other", **summary(values)}
    return made


def ratios(above: list[dict[str, float]], below: list[dict[str, float]], key: str) -> list[float]:
    """Returns the quotients round by round, so that what slows the machine for a while slows both."""
    return [a[key] / b[key] for a, b in zip(above, below, strict=True) if b[key]]


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Returns median, min, max and all values."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "repeats": list(values)}


def report(results: Iterable[dict[str, Any]], tiny: bool, against: Path | None) -> dict[str, Any]:
    """Returns the JSON file: figures and what could not be measured, with the machine, the versions and the date."""
    found = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return {
        "format": FORMAT,
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "tiny": tiny,
        "against": against and str(against),
        "machine": {
            "cpu": found[1] if found else platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
            "system": platform.platform(),
            "load": os.getloadavg()[0],
        },
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "figures": [x for x in results if "reason" not in x],
        "unmeasured": [x for x in results if "reason" in x],
    }


def table(content: Mapping[str, Any], committed: Mapping[str, Any] | None = None) -> tuple[list[str], list[list[str]]]:
    """Returns the names of the columns and the rows of the table.

    Args:
        content: the JSON file of a run.
        committed: another one to stand beside it; figures on other data are left out.
    """
    columns = ["what", "median", "spread", "ratio", "target", *(["against"] if content["against"] else []), "committed"]
    known = {(x["name"], x["data"]): x for x in (committed or {"figures": []})["figures"]}
    rows = []
    for x in content["figures"]:
        row = [x["what"], f"{number(x['median'])} {x['unit']}", "once" if x["once"] else spread(x)]
        row.append(f"{number(x['ratio']['median'])} ({spread(x['ratio'])}) {x['ratio']['of']}" if "ratio" in x else "")
        if target := x.get("target"):
            verdict = "" if content["tiny"] else " met" if target["met"] else " missed"
            row.append(f"{target['comparison']} {target['value']:,g}{verdict}")
        else:
            row.append("")
        if content["against"]:
            row.append(f"{x['against']['median']:.3f} ({spread(x['against'])})" if "against" in x else "–")
        before = None if content["tiny"] else known.get((x["name"], x["data"]))
        row.append(compared(x, before) if before else "–")
        rows.append(row)
    return columns, rows


def compared(now: Figure, before: Figure) -> str:
    """Returns the committed median and ratio, and how much the median changed."""
    change = f" ({now['median'] / before['median'] - 1:+.0%} now)" if before["median"] > 0 else ""
    ratio = f", ratio {number(before['ratio']['median'])}" if "ratio" in before else ""
    return f"{number(before['median'])}{change}{ratio}"


def title(content: Mapping[str, Any]) -> str:
    """Returns the machine, the version of TensorFlow and the day."""
    machine = content["machine"]
    memory = f"{machine['memory_bytes'] / 2**30:.0f} GB"
    versions = f"TensorFlow {content['versions']['tensorflow']}"
    return f"{machine['cpu']}, {machine['cores']} cores, {memory}, {versions}, {content['date'][:10]}"


def read(path: Path) -> dict[str, Any]:
    """Reads a JSON file of figures."""
    return {"against": None, **json.loads(path.read_text(encoding="utf-8"))}


def spread(values: Mapping[str, float]) -> str:
    """Returns the least and the greatest value."""
    return f"{number(values['min'])}–{number(values['max'])}"


def number(value: float) -> str:
    """Returns a number with about three digits, as 12,345 or 1.08."""
    size = abs(value)
    return f"{value:,.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3}f}"


def write_growth(figures: Sequence[Figure], folder: Path) -> None:
    """Writes growth.csv, and growth.png: time and memory of a step against what is varied, all axes logarithmic."""
    import pandas as pd
    from matplotlib.figure import Figure as Picture
    from matplotlib.ticker import LogLocator, ScalarFormatter

    made = {x["name"]: x for x in figures if x["name"].startswith("growth/") and "reason" not in x}
    rows = [
        (*name.removeprefix("growth/").split(), x["median"], x["min"], x["max"], made[f"{name} memory"]["median"])
        for name, x in made.items()
        if not name.endswith("memory")
    ]
    frame = pd.DataFrame(rows, columns=["varied", "value", "step_ms", "step_ms_min", "step_ms_max", "peak_mb"])
    frame = frame.astype({"value": int}).round(3)
    frame.to_csv(folder / "growth.csv", index=False)
    groups = list(frame.groupby("varied", sort=False))
    picture = Picture(figsize=(3 * len(groups) + 1, 6), layout="constrained")
    axes = picture.subplots(2, len(groups), sharex="col", sharey="row", squeeze=False)
    for (above, below), (varied, points) in zip(axes.T, groups, strict=True):
        spread = [points.step_ms - points.step_ms_min, points.step_ms_max - points.step_ms]
        above.errorbar(points.value, points.step_ms, spread, marker="o", capsize=3)
        below.plot(points.value, points.peak_mb, marker="o", color="C1")
        for axis in (above, below):
            axis.set(xscale="log", yscale="log", xticks=points.value, xticklabels=[f"{x:,}" for x in points.value])
            axis.tick_params(labelsize=7)
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_major_formatter(ScalarFormatter())
            axis.minorticks_off()
            axis.grid(axis="y", color="0.9")
        below.set_xlabel(varied)
    axes[0, 0].set_ylabel("ms a step (median, min to max)")
    axes[1, 0].set_ylabel("peak memory of the process, MB")
    picture.savefig(folder / "growth.png", dpi=130)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
