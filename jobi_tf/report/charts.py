"""What the charts of a report show, as plain values: `page.html` draws them as SVG."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from jobi_tf.evaluation.calibration import Bin

COLOURS = 8
MOST_MARKS = 60


class Axis(NamedTuple):
    """An axis from the first to the last of its `ticks`."""

    label: str
    ticks: Sequence[float]

    @classmethod
    def around(cls, label: str, values: Sequence[float], whole: bool = False) -> "Axis":
        """Returns an axis with round ticks that holds `values`; ticks are whole numbers if `whole`."""
        low, high = min(values), max(values)
        if low == high:
            low, high = low - (abs(low) * 0.1 or 1), high + (abs(high) * 0.1 or 1)
        step = 10 ** math.floor(math.log10((high - low) / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= 5)
        step = max(step, 1) if whole else step
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        return cls(label, [i * step for i in range(first, last + 1)])

    def place(self, value: float) -> float:
        """Returns where on the axis a value is, from 0 to 1."""
        return (value - self.ticks[0]) / (self.ticks[-1] - self.ticks[0])

    def text(self, tick: float) -> str:
        """Returns a tick with as many digits as the ticks need to differ."""
        digits = max(0, -math.floor(math.log10(self.ticks[1] - self.ticks[0]) + 1e-9))
        return f"{tick:,.{digits}f}"


class Mark(NamedTuple):
    """A point with a `radius` in pixels, and the text that it shows when it is pointed at."""

    x: float
    y: float
    radius: float
    text: str


class Line(NamedTuple):
    """Points of a run, and those of them that are marked."""

    points: Sequence[tuple[float, float]]
    marks: Sequence[Mark]


class Chart(NamedTuple):
    """A chart with a line for each run, which may be empty, and for screen readers a `description`."""

    description: str
    across: Axis
    up: Axis
    lines: Sequence[Line]
    diagonal: bool = False


def line_chart(name: str, runs: Sequence[tuple[str, Sequence[tuple[float, float]], float | None]]) -> Chart | None:
    """Returns a quantity by epoch, all runs in one chart; None if there is nothing to draw.

    A run is its label, its (epoch, value) and the epoch that stands out.
    """
    lines, descriptions = [], []
    for label, values, best in runs:
        points = [(x, y) for x, y in values if math.isfinite(y)]
        shown = [(x, y) for x, y in points if len(points) <= MOST_MARKS or x == best]
        marks = [Mark(x, y, 4.5 if x == best else 2, f"{label}, epoch {x:g}: {y:.4f}") for x, y in shown]
        lines.append(Line(points, marks))
        if points:
            descriptions.append(f"{label} from {points[0][1]:.4g} to {points[-1][1]:.4g}")
    every = [point for line in lines for point in line.points]
    if not every:
        return None
    across, up = Axis.around("epoch", [x for x, _ in every], whole=True), Axis.around(name, [y for _, y in every])
    return Chart(f"{name} by epoch: {'; '.join(descriptions)}.", across, up, lines)


def reliability_chart(runs: Sequence[tuple[str, Sequence[Bin]]]) -> Chart:
    """Returns the share of right answers against the confidence, for runs with their bins."""
    lines, descriptions = [], []
    for label, bins in runs:
        total, marks = sum(x.weight for x in bins), []
        for x in bins:
            text = f"{label}, confidence {x.low:.1f} to {x.high:.1f}: {x.true:.1%} of {x.weight:,.0f} right"
            marks.append(Mark(x.probability, x.true, 2.5 + 7 * math.sqrt(x.weight / total), text))
        lines.append(Line([(x.probability, x.true) for x in bins], marks))
        descriptions.append(f"{label}: {', '.join(f'{x.true:.0%} at {x.probability:.0%}' for x in bins)}")
    fifths = [i / 5 for i in range(6)]
    axes = Axis("confidence of the first answer", fifths), Axis("share that is right", fifths)
    return Chart(f"Share of right first answers by confidence. {'; '.join(descriptions)}.", *axes, lines, diagonal=True)


def colour(number: int) -> str:
    """Returns the class that gives a run its colour, and those beyond the number of colours a dash."""
    return f"run{number % COLOURS}" + (" dashed" if number >= COLOURS else "")
