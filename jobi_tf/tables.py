"""Small results as tables: for notebooks, in Markdown, and as pandas DataFrames."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, TypeVar

from jobi_tf.errors import needs

Row = TypeVar("Row", bound=tuple)


class Table(list[Row]):
    """A list of named tuples that prints as one line, shows as a table in a notebook, and converts to a DataFrame.

    The title says what the list is, such as `tails of (Switzerland, neighbour, ?)`.
    """

    def __init__(self, rows: Sequence[Row], columns: Sequence[str], title: str):
        super().__init__(rows)
        self.columns, self.title = tuple(columns), title

    def __repr__(self) -> str:
        return f"<{self.title}: {', '.join(str(row[0]) for row in self[:3])}{', …' if len(self) > 3 else ''}>"

    def _repr_html_(self) -> str:
        return html_table(self.title, self.columns, [[_cell(x) for x in row] for row in self])

    def to_frame(self) -> Any:
        """Returns a pandas DataFrame with a row for each item."""
        return data_frame([*self], columns=self.columns)


def html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a small table for notebooks; all text is escaped."""
    header = "".join(f"<th>{escape(x)}</th>" for x in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(x)}</td>" for x in row) + "</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a table in Markdown; dictionaries and lists are written as JSON."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(map(_in_markdown, line))} |\n" for line in lines)


def _in_markdown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
    return text.replace("|", "\\|")


def data_frame(data: Any, **options: Any) -> Any:
    """Returns a pandas DataFrame; raises a `MissingExtraError` if pandas is not installed."""
    with needs("data frames need pandas", "pandas"):
        import pandas as pd
    return pd.DataFrame(data, **options)


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "" if value is None else str(value)
