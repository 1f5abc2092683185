"""What is shown: progress and warnings on stderr, tables and JSON on stdout. rich is imported when it is needed."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

SECONDS_BETWEEN_LINES = 30
LEAST_WIDTH_OF_TEXT = 16  # of a column that is wrapped


def print_json(value: Any) -> None:
    """Prints a value as a line of JSON."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


def warn(sentence: object) -> None:
    """Prints a warning on stderr."""
    print(f"Warning: {sentence}", file=sys.stderr)


def counts(values: Mapping[str, int]) -> str:
    """Returns numbers by name in one line, such as `272,115 train, 17,535 valid`."""
    return ", ".join(f"{count:,} {name}" for name, count in values.items())


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "", text: Sequence[str] | None = None
) -> None:
    """Prints a table: with rules on a terminal that is wide enough, as aligned lines of any length elsewhere.

    Whole numbers are printed as `12,345`, other cells as they are. The columns `text`, by default the first one, hold
    text, which is wrapped where a terminal is too narrow; the others are aligned to the right.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = _console(stderr=False)
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    for column in columns:
        left = column in (columns[:1] if text is None else text)
        table.add_column(Text(column), justify="left" if left else "right", overflow="fold", no_wrap=not left)
    for row in rows:
        table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row))
    for each in table.columns:
        longest = max(cell.cell_len for cell in (each.header, *each.cells) if isinstance(cell, Text))
        each.min_width = longest if each.no_wrap else min(longest, LEAST_WIDTH_OF_TEXT)
    if title:
        console.print(title, style="bold", soft_wrap=True)
    endless = _console(stderr=False, force_terminal=False, width=100_000)
    least = sum(column.min_width or 0 for column in table.columns) + 3 * len(columns) - 1  # with a space on both sides
    if console.is_terminal and least <= console.width:
        console.print(table)
        return
    table.box = None
    with endless.capture() as captured:
        endless.print(table)
    for line in captured.get().rstrip("\n").split("\n"):  # names may hold other line separators
        print(line.rstrip(" "))


def _console(**options: Any) -> "Console":
    from rich.console import Console

    return Console(**options, highlight=False, markup=False, emoji=False)


class Bar:
    """Progress of long work: a bar with rate and time left on a terminal, elsewhere a line every half minute.

    `total` (0 if it is unknown) counts things of a `unit`, such as `triples`; `beside` are the columns of a terminal
    that are left to the text. `total`, `update`, `reset` and `close` are as in a `tqdm` bar, so that it may be passed
    where one is expected.
    """

    def __init__(
        self, total: float, unit: str, label: str = "", console: "Console | None" = None, beside: int = 60
    ) -> None:
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        self.console = console or _console(stderr=True)
        self.total, self._unit = total, unit
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=max(8, min(40, self.console.width - beside))),
            TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True)),
            console=self.console,
            refresh_per_second=5,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task = self._bars.add_task(label, total=total or None, state="")
        self._label, self._written = label, time.monotonic()
        self.reset()

    def __enter__(self) -> "Bar":
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def reset(self, label: str = "", done: float = 0.0) -> None:
        """Begins again, with some work that was done before, and with another label if one is given."""
        self._label, self._done, self._before, self._begin = label or self._label, done, done, time.monotonic()
        self._bars.reset(self._task, completed=int(done), description=self._label, state="")

    def update(self, count: float = 1) -> None:
        """Adds finished work."""
        self.show(self._done + count)

    def show(self, done: float, note: str = "", state: str = "") -> None:
        """Shows how much is done, all in all; `note` is text after the rate, `state` text instead of rate and time."""
        self._done, now = done, time.monotonic()
        rate = (done - self._before) / max(now - self._begin, 1e-9)
        left = f"left {duration((self.total - done) / rate)}" if rate and self.total else ""
        text = state or "  ".join(filter(None, (f"{rate:,.0f} {self._unit}/s", note, left)))
        if self.console.is_terminal:
            self._bars.update(self._task, completed=done, total=self.total or None, state=text)
        elif now - self._written >= SECONDS_BETWEEN_LINES and (done < self.total or not self.total):
            of_total = f"/{self.total:,.0f}" if self.total else ""
            self.print(f"{self._label}  {done:,.0f}{of_total} {self._unit}  {text}")

    def print(self, line: str) -> None:
        """Prints a line, above the bar if there is one."""
        self.console.print(line, soft_wrap=True)
        self._written = time.monotonic()

    def close(self) -> None:
        """Removes the bar, also after an interruption; may be called more than once."""
        self._bars.stop()


class JobDisplay:
    """Prints lines on stderr about trainings in other processes; a terminal also shows the state of each that runs."""

    def __init__(self) -> None:
        self.console = _console(stderr=True)
        self._status = self.console.status("")
        self._states: dict[str, str] = {}

    def __enter__(self) -> "JobDisplay":
        return self

    def __exit__(self, *error: object) -> None:
        self._status.stop()

    def print(self, line: str) -> None:
        """Prints a line."""
        self.console.print(line, soft_wrap=True)

    def update(self, job: str, state: str | None) -> None:
        """Shows the state of a job on a terminal; None: it has ended."""
        from rich.text import Text

        self._states.pop(job, None)
        if state is not None:
            self._states[job] = state
        if not self._states:
            self._status.stop()
        elif self.console.is_terminal:
            self._status.update(Text("\n".join(f"{name}: {text}" for name, text in self._states.items())))
            self._status.start()


def duration(seconds: float) -> str:
    """Returns a time in two units at most, as `0.4 s`, `12 s`, `3 min 5 s` or `2 h 10 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
