"""Progress of long work: a bar on a terminal, plain lines elsewhere. Nothing heavy is imported here."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

SECONDS_BETWEEN_LINES = 30


def stderr_console() -> Console:
    """Returns a console for messages on stderr."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


class Bar:
    """Progress of long work: a bar with rate and time left on a terminal, elsewhere a line every half minute.

    Args:
        total: the amount of work.
        unit: what is counted, such as `triples`.
        label: what goes on.
        console: where to write; stderr by default.
        beside: columns of a terminal that are left to the text.

    Example:
        >>> with Bar(len(items), "items", "reading") as bar:
        ...     for item in items:
        ...         bar.advance()
    """

    def __init__(self, total: float, unit: str, label: str = "", console: Console | None = None, beside: int = 60):
        self.console = console or stderr_console()
        self._total, self._unit, self._label = total, unit, label
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=max(8, min(40, self.console.width - beside))),
            TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True)),
            console=self.console,
            refresh_per_second=5,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task = self._bars.add_task(label, total=total, state="")
        self._done, self._begin = 0.0, time.monotonic()
        self._written = self._begin

    def __enter__(self) -> "Bar":
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def reset(self, label: str) -> None:
        """Begins again from 0."""
        self._label, self._done, self._begin = label, 0.0, time.monotonic()
        self._bars.reset(self._task, description=label, state="")

    def advance(self, count: float = 1) -> None:
        """Adds finished work."""
        self.update(self._done + count)

    def update(self, done: float, note: str = "", state: str = "") -> None:
        """Shows how much is done.

        Args:
            done: finished work since the beginning or `reset`.
            note: text after the rate.
            state: text instead of rate, note and time left.
        """
        self._done, now = done, time.monotonic()
        rate = done / max(now - self._begin, 1e-9)
        left = duration((self._total - done) / rate) if rate else "?"
        text = state or "  ".join(filter(None, (f"{rate:,.0f} {self._unit}/s", note, f"left {left}")))
        if self.console.is_terminal:
            self._bars.update(self._task, completed=done, state=text)
        elif now - self._written >= SECONDS_BETWEEN_LINES and done < self._total:
            self.say(f"{self._label}  {done:,.0f}/{self._total:,.0f} {self._unit}  {text}")

    def say(self, line: str) -> None:
        """Writes a line, above the bar if there is one."""
        self.console.print(line, soft_wrap=True)
        self._written = time.monotonic()

    def close(self) -> None:
        """Removes the bar, also after an interruption; may be called more than once."""
        self._bars.stop()


def duration(seconds: float) -> str:
    """Returns a time in two units at most, as `0.4 s`, `12 s`, `3 min 5 s` or `2 h 10 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
