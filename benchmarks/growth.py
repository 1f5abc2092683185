"""How time and memory of a step grow, one thing varied at a time."""

import csv
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from .child import call
from .figures import Figure, Ratio, Unmeasured
from .setting import Setting

LABELS = {
    "entities": "entities",
    "triples": "triples of the graph",
    "negatives": "negatives a triple",
    "batch": "triples a batch",
    "dim": "d",
}


@dataclass(frozen=True)
class Point:
    """What is varied, and what is not."""

    entities: int = 100_000
    relations: int = 500
    triples: int = 2_000_000
    negatives: int = 50
    batch: int = 1000
    dim: int = 100

    @property
    def settings(self) -> dict[str, int]:
        """Settings of the training."""
        return {"negatives": self.negatives, "batch_size": self.batch, "dim": self.dim}


VARIED: dict[str, tuple[int, ...]] = {
    "entities": (15_000, 50_000, 100_000, 500_000, 1_900_000),
    "triples": (500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000),
    "negatives": (10, 25, 50, 100, 200),
    "batch": (100, 250, 500, 1000, 2000),
    "dim": (25, 50, 100, 200, 400),
}
TINY = Point(entities=64, relations=5, triples=600, negatives=5, batch=50, dim=4)
TINY_VARIED: dict[str, tuple[int, ...]] = {"entities": (64,)}  # each point is a start of TensorFlow


@dataclass(frozen=True)
class Measured:
    """A point and what was measured there."""

    varied: str
    point: Point
    seconds: list[float]
    peak: float

    @property
    def value(self) -> int:
        """Value of what is varied."""
        return getattr(self.point, self.varied)

    @property
    def step_ms(self) -> float:
        """Median time of a step."""
        return 1e3 * statistics.median(self.seconds)

    def row(self) -> dict[str, Any]:
        """Returns a row of growth.csv."""
        times = {"step_ms_min": 1e3 * min(self.seconds), "step_ms_max": 1e3 * max(self.seconds)}
        rounded = {"step_ms": self.step_ms, **times, "peak_mb": self.peak}
        return {"varied": self.varied, **asdict(self.point), **{name: round(x, 3) for name, x in rounded.items()}}


def growth(setting: Setting) -> Iterator[Figure | Unmeasured]:
    """Measures each point in a process of its own, and writes growth.csv and growth.png."""
    base, varied = (TINY, TINY_VARIED) if setting.tiny else (Point(), VARIED)
    known: dict[Point, tuple[list[float], float]] = {}
    every: list[Measured] = []
    table, picture = setting.curves / "growth.csv", setting.curves / "growth.png"
    for name, values in varied.items():
        line = []
        for value in values:
            point = replace(base, **{name: value})
            if point not in known:  # the base point lies on every line
                setting.say(f"  {name} {value:,}")
                known[point] = measure(setting, point)
            line.append(Measured(name, point, *known[point]))
        every += line
        write_table(every, table)
        yield figure(line)
    try:
        draw(every, base, picture)
    except ImportError:
        yield Unmeasured("growth/picture", f"{picture.name} needs matplotlib: pip install 'jobi-tf[plot]'")


def figure(line: list[Measured]) -> Figure:
    """Returns the last point of a line, beside the first."""
    first, last = line[0], line[-1]
    return Figure(
        f"growth/{last.varied}",
        f"JoBi step, {last.value:,} {LABELS[last.varied]}",
        "ms",
        [1e3 * x for x in last.seconds],
        f"synthetic-{last.point.entities}-{last.point.relations}-{last.point.triples}-0",
        Ratio.pairwise(f"/ {first.value:,}", last.seconds, first.seconds),
        note=f"peak memory {last.peak:,.0f} MB, {first.peak:,.0f} MB at {first.value:,}",
    )


def measure(setting: Setting, point: Point) -> tuple[list[float], float]:
    """Returns the seconds of a step, a median a round, and the peak of memory in MB."""
    size = {name: getattr(point, name) for name in ("entities", "relations", "triples")}
    folder = setting.work / "-".join(["growth", *map(str, size.values())])
    if not folder.exists():
        call("make_up", setting.say, None, {"folder": folder, "text": False, **size})
    steps = 5 if setting.tiny else 20
    arguments = {"folder": folder, "steps": steps, "repeats": setting.repeats, "settings": point.settings}
    found = call("point", setting.say, None, arguments)
    return found["seconds"], found["peak"]


def write_table(every: list[Measured], path: Path) -> None:
    """Writes growth.csv, a row a point."""
    columns = ["varied", *(f.name for f in fields(Point)), "step_ms", "step_ms_min", "step_ms_max", "peak_mb"]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(point.row() for point in every)


def draw(every: list[Measured], base: Point, path: Path) -> None:
    """Writes growth.png: a column for each thing that is varied, time above and memory below, all axes logarithmic."""
    from matplotlib.figure import Figure as Picture
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    lines = {name: [point for point in every if point.varied == name] for name in LABELS}
    lines = {name: line for name, line in lines.items() if line}
    picture = Picture(figsize=(3 * len(lines) + 1, 6), layout="constrained")
    axes = picture.subplots(2, len(lines), sharex="col", sharey="row", squeeze=False)
    for column, (name, line) in enumerate(lines.items()):
        time, memory = axes[:, column]
        values = [point.value for point in line]
        middle = [point.step_ms for point in line]
        spread = [
            [1e3 * (statistics.median(point.seconds) - min(point.seconds)) for point in line],
            [1e3 * (max(point.seconds) - statistics.median(point.seconds)) for point in line],
        ]
        time.errorbar(values, middle, spread, marker="o", markersize=4, capsize=3, color="C0")
        memory.plot(values, [point.peak / 1e3 for point in line], marker="o", markersize=4, color="C1")
        for axis in (time, memory):
            axis.set(xscale="log", yscale="log", xticks=values)
            axis.axvline(getattr(base, name), color="0.8", linewidth=0.8, zorder=0)
            axis.grid(axis="y", color="0.9")
            axis.xaxis.set_minor_formatter(NullFormatter())
            axis.xaxis.set_major_formatter(FuncFormatter(_short))
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.yaxis.set_minor_formatter(NullFormatter())
            axis.tick_params(labelsize=8)
        memory.set_xlabel(LABELS[name])
    axes[0, 0].set_ylabel("ms a step (median, min to max)")
    axes[1, 0].set_ylabel("peak memory of the process, GB")
    others = f"{_short(base.entities)} entities, {_short(base.triples)} triples, {base.negatives} negatives"
    picture.suptitle(f"JoBi ComplEx; what is not varied: {others}, batch {base.batch:,}, d = {base.dim}", fontsize=11)
    picture.savefig(path, dpi=130)


def _short(value: float, _: Any = None) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= max(size, 10_000):
            return f"{value / size:g} {unit}"
    return f"{value:,g}"
