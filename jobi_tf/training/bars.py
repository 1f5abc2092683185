"""Bars on a terminal, for whatever takes long, and how times are told. Nothing heavy is imported here."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column


def stderr_console() -> Console:
    """Returns where people are told how far it is."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def bars_on(console: Console, beside: int, longest: int) -> Progress:
    """Returns bars with a description before and a `state` behind, which are gone when they stop.

    Elsewhere than on a terminal they show nothing.

    Args:
        console: where they are drawn.
        beside: columns that are left to the words.
        longest: columns that a bar takes at most.
    """
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=max(8, min(longest, console.width - beside))),
        TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True)),
        console=console,
        refresh_per_second=5,
        transient=True,
        disable=not console.is_terminal,
    )


def duration(seconds: float) -> str:
    """Returns a time in two units at most, as `0.4 s`, `12 s`, `3 min 5 s` or `2 h 10 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
