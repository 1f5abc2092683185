"""What the commands print: tables on stdout, progress on stderr."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.table import Column


def print_json(value: Any, indent: int | None = None) -> None:
    """Prints a value as JSON."""
    click.echo(json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False))


def warn(sentence: object) -> None:
    """Prints a warning on stderr."""
    click.echo(f"Warning: {sentence}", err=True)


def counts(values: Mapping[str, int]) -> str:
    """Returns numbers by name in one line, such as `272,115 train, 17,535 valid`."""
    return ", ".join(f"{count:,} {name}" for name, count in values.items())


def print_table(columns: Sequence["str | Column"], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Prints a table: with rules on a terminal, as aligned plain text with lines of any length elsewhere.

    Args:
        columns: headers; columns but the first are aligned to the right unless they come as `rich.table.Column`, whose
            cells are wrapped where a terminal is too narrow.
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
    if console.is_terminal:
        console.print(table)
        return
    console.width = 100_000  # a pipe has no width
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


class JobDisplay:
    """Prints lines on stderr about trainings in other processes; a terminal also shows the state of each that runs."""

    def __init__(self) -> None:
        from jobi_tf.console import stderr_console

        self.console = stderr_console()
        self._status = self.console.status("") if self.console.is_terminal else None
        self._states: dict[str, str] = {}

    def __enter__(self) -> "JobDisplay":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes the states from the terminal."""
        if self._status:
            self._status.stop()

    def print(self, line: str) -> None:
        """Prints a line."""
        self.console.print(line, soft_wrap=True)

    def update(self, job: str, state: str | None) -> None:
        """Shows the state of a job on a terminal; None: it has ended."""
        from rich.text import Text

        if state is None:
            self._states.pop(job, None)
        else:
            self._states[job] = state
        if self._status:
            self._status.update(Text("\n".join(f"{name}: {text}" for name, text in self._states.items())))
            self._status.start()
