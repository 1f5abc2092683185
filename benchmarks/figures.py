"""What a benchmark measured: repeats, their median and spread, a ratio, and what was aimed at."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Target:
    """A bound on the median of a figure, or on its ratio where it has one."""

    comparison: Literal["<", "<=", ">="]
    value: float

    def met_by(self, value: float) -> bool:
        """Tells whether `value` keeps the bound."""
        if self.comparison == ">=":
            return value >= self.value
        return value < self.value if self.comparison == "<" else value <= self.value


@dataclass(frozen=True)
class Ratio:
    """A quotient of two things that were timed in turns, one number a turn; `of` names both, as `joint / plain`."""

    of: str
    repeats: Sequence[float]

    @classmethod
    def pairwise(cls, of: str, above: Sequence[float], below: Sequence[float]) -> "Ratio":
        """Divides turn by turn, so that what slows the machine for a while slows both."""
        return cls(of, [a / b for a, b in zip(above, below, strict=True)])

    @property
    def median(self) -> float:
        """Median over the turns."""
        return statistics.median(self.repeats)


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Args:
        name: unique, `benchmark/figure`.
        what: the line's first cell.
        unit: unit of the repeats.
        repeats: every measurement, in order.
        data: name of the graph that it was measured on.
        ratio: quotient with another figure.
        target: bound on the ratio, or on the median where there is none.
        once: it takes too long to be repeated.
        note: what else a reader has to know.
    """

    name: str
    what: str
    unit: str
    repeats: Sequence[float]
    data: str
    ratio: Ratio | None = None
    target: Target | None = None
    once: bool = False
    note: str = ""

    @property
    def median(self) -> float:
        """Median of the repeats."""
        return statistics.median(self.repeats)

    @property
    def met(self) -> bool | None:
        """Whether the target was met; None without one."""
        if self.target is None:
            return None
        return self.target.met_by(self.ratio.median if self.ratio else self.median)

    def to_dict(self) -> dict[str, Any]:
        """Returns what goes into the JSON file."""
        fields: dict[str, Any] = {
            "name": self.name,
            "what": self.what,
            "data": self.data,
            "unit": self.unit,
            **_summary(self.repeats),
            "once": self.once,
        }
        if self.ratio:
            fields["ratio"] = {"of": self.ratio.of, **_summary(self.ratio.repeats)}
        if self.target:
            of = "ratio" if self.ratio else "median"
            fields["target"] = {
                "of": of,
                "comparison": self.target.comparison,
                "value": self.target.value,
                "met": self.met,
            }
        return fields | ({"note": self.note} if self.note else {})

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Figure":
        """Reads what `to_dict` gave."""
        ratio, target = fields.get("ratio"), fields.get("target")
        plain = {name: fields[name] for name in ("name", "what", "unit", "repeats", "data", "once")}
        return cls(
            **plain,
            ratio=Ratio(ratio["of"], ratio["repeats"]) if ratio else None,
            target=Target(target["comparison"], target["value"]) if target else None,
            note=fields.get("note", ""),
        )


@dataclass(frozen=True)
class Unmeasured:
    """Something that could not be measured, and why; `failed` if it should have been."""

    name: str
    reason: str
    failed: bool = False


def _summary(repeats: Sequence[float]) -> dict[str, Any]:
    return {
        "median": statistics.median(repeats),
        "min": min(repeats),
        "max": max(repeats),
        "repeats": list(map(float, repeats)),
    }
