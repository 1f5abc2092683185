"""All that a run of the benchmarks measured: as JSON, and as rows of a table."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from jobi_tf.errors import DataError
from jobi_tf.files import written_beside

from .figures import Figure, Unmeasured
from .machine import machine, versions

COLUMNS = ("what", "median", "spread", "ratio to what", "target", "committed")
FORMAT = 1


@dataclass
class Report:
    """Figures with the machine, the versions and the date that they belong to.

    Args:
        tiny: the figures mean nothing, as they come from benchmarks in a form that takes seconds.
        stand_in: name of the synthetic graph that took the place of FB15K-237, if one did.
        results: what was measured so far, or could not be.
    """

    tiny: bool = False
    stand_in: str | None = None
    results: list[Figure | Unmeasured] = field(default_factory=list)
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    machine: Mapping[str, Any] = field(default_factory=machine)
    versions: Mapping[str, str] = field(default_factory=versions)

    @property
    def figures(self) -> list[Figure]:
        """What was measured."""
        return [result for result in self.results if isinstance(result, Figure)]

    @property
    def unmeasured(self) -> list[Unmeasured]:
        """What was not."""
        return [result for result in self.results if isinstance(result, Unmeasured)]

    @property
    def failed(self) -> bool:
        """Whether a benchmark failed."""
        return any(result.failed for result in self.unmeasured)

    def write(self, path: Path) -> None:
        """Writes the JSON file, complete or not at all."""
        content = {
            "format": FORMAT,
            "date": self.date,
            "tiny": self.tiny,
            "stand_in": self.stand_in,
            "machine": dict(self.machine),
            "versions": dict(self.versions),
            "figures": [self._fields(figure) for figure in self.figures],
            "unmeasured": [vars(result) for result in self.unmeasured],
        }
        with written_beside(path) as beside:
            beside.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Report":
        """Reads what `write` wrote.

        Raises:
            DataError: it is damaged.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            results: list[Figure | Unmeasured] = [Figure.from_dict(fields) for fields in content["figures"]]
            results += [Unmeasured(**fields) for fields in content["unmeasured"]]
            plain = (content[name] for name in ("date", "machine", "versions"))
            return cls(content["tiny"], content["stand_in"], results, *plain)
        except (ValueError, KeyError, TypeError) as problem:
            raise DataError(f"expected figures of `jobi-tf bench` in {path}, which is damaged: {problem}") from None

    def rows(self, committed: "Report | None" = None) -> list[tuple[str, ...]]:
        """Returns the table, a row a figure in the order of `COLUMNS`."""
        return [self._row(figure, self._committed(figure, committed)) for figure in self.figures]

    def lines(self, committed: "Report | None" = None) -> list[str]:
        """Returns what stands below the table."""
        said = [f"{result.name}: {result.reason}" for result in self.unmeasured]
        said += [f"{figure.name}: {figure.note}" for figure in self.figures if figure.note]
        if self.stand_in:
            said.append(f"{_STAND_IN}: on a synthetic graph of the size of FB15K-237, which could not be had")
        if self.tiny:
            said.append("tiny forms of the benchmarks: no figure means anything")
        elif committed is None:
            said.append("no figures are committed to compare with")
        else:
            said.append(f"committed: {committed.date[:10]}, {_machine(committed)}")
        return said

    def title(self) -> str:
        """Returns what stands above the table."""
        return f"{_machine(self)}, {self.date[:10]}"

    def _committed(self, figure: Figure, committed: "Report | None") -> Figure | None:
        """Returns the committed figure of that name, if it was measured on the same data."""
        if committed is None or committed.tiny != self.tiny:
            return None
        same = (other for other in committed.figures if (other.name, other.data) == (figure.name, figure.data))
        return next(same, None)

    def _fields(self, figure: Figure) -> dict[str, Any]:
        fields = figure.to_dict()
        if self.tiny and "target" in fields:
            fields["target"]["met"] = None
        return fields

    def _row(self, figure: Figure, committed: Figure | None) -> tuple[str, ...]:
        ratio, target = "", ""
        if figure.ratio:
            ratio = f"{number(figure.ratio.median)} ({_spread(figure.ratio.repeats)}) {figure.ratio.of}"
        if figure.target:
            verdict = "" if self.tiny else " met" if figure.met else " missed"
            target = f"{figure.target.comparison} {figure.target.value:,g}{verdict}"
        return (
            figure.what + (f" {_STAND_IN}" if figure.data == self.stand_in else ""),
            f"{number(figure.median)} {figure.unit}",
            "once" if figure.once else _spread(figure.repeats),
            ratio,
            target,
            _compared(figure, committed) if committed else "–",
        )


def committed_figures() -> Report | None:
    """Returns the figures that came with this version; None if there are none."""
    path = Path(str(resources.files(__package__))) / "figures.json"
    return Report.read(path) if path.exists() else None


_STAND_IN = "†"


def _compared(figure: Figure, committed: Figure) -> str:
    change = f" ({figure.median / committed.median - 1:+.0%} now)" if committed.median > 0 else ""
    ratio = f", ratio {number(committed.ratio.median)}" if committed.ratio else ""
    return f"{number(committed.median)}{change}{ratio}"


def _spread(values: Sequence[float]) -> str:
    return f"{number(min(values))}–{number(max(values))}"


def number(value: float) -> str:
    """Returns a number with three digits or more, as 12,345 or 1.08."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


def _machine(report: Report) -> str:
    machine, versions = report.machine, report.versions
    memory = f"{machine['memory_bytes'] / 2**30:.0f} GB"
    return f"{machine['cpu']}, {machine['cores']} cores, {memory}, TensorFlow {versions['tensorflow']}"
