"""Small charts as inline SVG. Colours come from the page, so that they follow its light or dark scheme."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from markupsafe import Markup

from jobi_tf.evaluation.reliability import Bin

WIDTH, HEIGHT = 380, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 40
COLOURS = 8
MOST_MARKS = 60
SMALL = 2.0  # radius


@dataclass(frozen=True)
class Line:
    """Points of a run; `number` picks its colour, `marked` is the x of the point that stands out."""

    label: str
    number: int
    points: Sequence[tuple[float, float]]
    marked: float | None = None


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`, with ticks."""

    label: str
    low: float
    high: float
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
        ticks = [i * step for i in range(first, last + 1)]
        return cls(label, ticks[0], ticks[-1], ticks)


def line_chart(name: str, lines: Sequence[Line]) -> Markup:
    """Draws a quantity by epoch, all runs in one chart; "" if there is nothing to draw."""
    lines = [_finite(line) for line in lines]
    points = [point for line in lines for point in line.points]
    if not points:
        return Markup()
    told = (f"{x.label} from {x.points[0][1]:.4g} to {x.points[-1][1]:.4g}" for x in lines if x.points)
    picture = _Picture(
        f"{name} by epoch: {'; '.join(told)}.",
        Axis.around("epoch", [x for x, _ in points], whole=True),
        Axis.around(name, [y for _, y in points]),
    )
    for line in lines:
        picture.line(line)
        few = len(line.points) <= MOST_MARKS
        for x, y in line.points:
            if few or x == line.marked or len(line.points) == 1:
                size = 4.5 if x == line.marked else SMALL
                picture.mark(x, y, size, line.number, f"{line.label}, epoch {x:g}: {y:.4f}")
    return picture.markup()


def reliability_chart(runs: Sequence[tuple[str, Sequence[Bin]]]) -> Markup:
    """Draws the share of right answers against the confidence, for runs with their bins."""
    told = "; ".join(
        f"{label}: {', '.join(f'{x.true:.0%} at {x.probability:.0%}' for x in bins)}" for label, bins in runs
    )
    tenths = [i / 5 for i in range(6)]
    axes = Axis("confidence of the first answer", 0, 1, tenths), Axis("share that is right", 0, 1, tenths)
    picture = _Picture(f"Share of right first answers by confidence. {told}.", *axes)
    picture.path([(0, 0), (1, 1)], "diagonal")
    for number, (label, bins) in enumerate(runs):
        picture.line(Line(label, number, [(x.probability, x.true) for x in bins]))
        total = sum(x.weight for x in bins)
        for x in bins:
            words = f"{label}, confidence {x.low:.1f} to {x.high:.1f}: {x.true:.1%} of {x.weight:,.0f} right"
            picture.mark(x.probability, x.true, 2.5 + 7 * math.sqrt(x.weight / total), number, words)
    return picture.markup()


class _Picture:
    """A chart under construction: frame, ticks and grid are there from the start."""

    def __init__(self, description: str, across: Axis, up: Axis):
        self.across = _scale(across, LEFT, WIDTH - RIGHT)
        self.up = _scale(up, HEIGHT - BOTTOM, TOP)
        size = {"viewBox": f"0 0 {WIDTH} {HEIGHT}"}
        self.root = Element("svg", {**size, "role": "img", "aria-label": description, "class": "chart"})
        for tick in up.ticks:
            y = self.up(tick)
            self._add("line", "grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)
            self._text(_short(tick, up.ticks), LEFT - 6, y + 4, "end")
        for tick in across.ticks:
            self._text(_short(tick, across.ticks), self.across(tick), HEIGHT - BOTTOM + 16, "middle")
        self._add("line", "axis", x1=LEFT, x2=WIDTH - RIGHT, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM)
        self._text(across.label, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "middle")

    def path(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """Draws straight lines between points."""
        places = " ".join(f"{self.across(x):.1f},{self.up(y):.1f}" for x, y in points)
        self._add("polyline", kind, points=places)

    def line(self, line: Line) -> None:
        """Draws the line of a run."""
        self.path(line.points, f"line {colour(line.number)}")

    def mark(self, x: float, y: float, size: float, number: int, words: str) -> None:
        """Draws a point that tells `words` when it is pointed at."""
        kind = f"mark {colour(number)}" + (" large" if size > SMALL else "")
        circle = self._add("circle", kind, cx=self.across(x), cy=self.up(y), r=size)
        SubElement(circle, "title").text = words

    def markup(self) -> Markup:
        """Returns the picture."""
        return Markup(ElementTree.tostring(self.root, encoding="unicode"))  # which escapes

    def _add(self, tag: str, kind: str, **attributes: object) -> Element:
        texts = {name: f"{x:.1f}" if isinstance(x, float) else str(x) for name, x in attributes.items()}
        return SubElement(self.root, tag, {"class": kind, **texts})

    def _text(self, words: str, x: float, y: float, anchor: str) -> None:
        self._add("text", "label", x=x, y=y, **{"text-anchor": anchor}).text = words


def colour(number: int) -> str:
    """Returns the class that gives a run its colour, and those beyond the number of colours a dash."""
    return f"run{number % COLOURS}" + (" dashed" if number >= COLOURS else "")


def _scale(axis: Axis, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (end - start) * (value - axis.low) / (axis.high - axis.low)


def _short(tick: float, ticks: Sequence[float]) -> str:
    digits = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9)) if len(ticks) > 1 else 0
    return f"{tick:,.{digits}f}"


def _finite(line: Line) -> Line:
    points = [(x, y) for x, y in line.points if math.isfinite(y)]
    return Line(line.label, line.number, points, line.marked)
