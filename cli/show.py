"""Tables on stdout."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table


def print_table(columns: Sequence["str | Column"], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Prints a table: with rules on a terminal, as aligned plain text elsewhere.

    Args:
        columns: headers; columns but the first are aligned to the right unless they come as `rich.table.Column`.
        rows: cells, printed as they are.
        title: a line above.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    for i, column in enumerate(columns):
        if isinstance(column, Column):
            table.add_column(column.header, justify=column.justify, overflow="fold", no_wrap=not console.is_terminal)
        else:
            table.add_column(Text(column), justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    if title:
        console.print(title, style="bold", soft_wrap=True)
    print_whole(table, console)


def print_whole(table: "Table", console: "Console") -> None:
    """Prints a table as it is on a terminal; elsewhere as plain text, without rules, lines as long as they need."""
    if console.is_terminal:
        console.print(table)
        return
    table.box = None
    console.width = 100_000  # a pipe has no width, and cut names are of no use to who reads it
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())
