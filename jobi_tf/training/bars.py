"""Bars on a terminal, for whatever takes long. Nothing heavy is imported here."""

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
