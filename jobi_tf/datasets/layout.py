"""Which columns of a file hold head, relation and tail."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobi_tf.errors import DataError, UsageError

# A first line is a header where its fields are one of these sets; the order within is head, relation, tail.
KNOWN_HEADERS = (
    ("head", "relation", "tail"),
    ("subject", "predicate", "object"),
    ("subject", "relation", "object"),
    ("source", "relation", "target"),
    ("h", "r", "t"),
    ("s", "p", "o"),
)


@dataclass(frozen=True)
class Layout:
    """Columns and header as the user gave them.

    Args:
        columns: names of the head, relation and tail columns in the header, or their positions from 1. None: a known
            header says it, else the file has three columns in this order.
        header: whether the first line is a header. None: it is one where its fields are `columns` or a known header.

    Raises:
        UsageError: the columns are not three different names, or not three different positions; or there are names
            although there is no header.
    """

    columns: tuple[str, ...] | None = None
    header: bool | None = None

    def __post_init__(self) -> None:
        if self.columns is None:
            return
        given = ",".join(self.columns)
        digits = [column.isdecimal() for column in self.columns]
        different = {int(column) if column.isdecimal() else _plain(column) for column in self.columns}
        if len(self.columns) != 3 or len(different) != 3 or "" in different:
            raise UsageError(f"expected three different columns for head, relation and tail, got {given!r}")
        if any(digits) != all(digits):
            raise UsageError(f"expected three column names or three positions, got a mixture: {given!r}")
        if all(digits) and 0 in different:
            raise UsageError(f"expected column positions that count from 1, got {given!r}")
        if not any(digits) and self.header is False:
            raise UsageError(f"columns {given!r} are looked up in a header: give positions where there is none")

    @classmethod
    def of(cls, columns: Sequence[str] | None, header: bool | None) -> "Layout":
        """Returns the layout for the arguments of `load_graph`."""
        return cls(None if columns is None else tuple(str(column).strip() for column in columns), header)

    def resolve(self, first: list[str], where: str) -> tuple[bool, int, tuple[int, int, int]]:
        """Decides on a file by its first row.

        Returns:
            Whether that row is a header, the number of fields in each row, and the places of head, relation and tail.

        Raises:
            DataError: the file has not the columns that were asked for.
        """
        fields = [_plain(field) for field in first]
        known = next((names for names in KNOWN_HEADERS if set(names) <= set(fields)), None)
        if self.columns is None:
            header = known is not None if self.header is None else self.header
            if header and len(first) != 3:
                raise DataError(
                    f"{where}:1: expected 3 columns, got {len(first)} ({_listed(first)}): "
                    f"name those of head, relation and tail"
                )
            return header, 3, _places(known, fields, where) if header and known else (0, 1, 2)
        if self.columns[0].isdecimal():
            header = known is not None if self.header is None else self.header
            places = [int(column) - 1 for column in self.columns]
            if max(places) >= len(first):
                raise DataError(f"{where}:1: expected at least {max(places) + 1} columns, got {len(first)}")
            return header, len(first), (places[0], places[1], places[2])
        wanted = tuple(_plain(column) for column in self.columns)
        missing = [column for column, plain in zip(self.columns, wanted, strict=True) if plain not in fields]
        if missing:
            raise DataError(
                f"{where}:1: expected a header with the columns {', '.join(self.columns)}, "
                f"found no {' and no '.join(missing)} in {_listed(first)}"
            )
        return True, len(first), _places(wanted, fields, where)


def _plain(field: str) -> str:
    return field.strip().casefold()


def _places(names: Sequence[str], fields: list[str], where: str) -> tuple[int, int, int]:
    for name in names:
        if fields.count(name) > 1:
            raise DataError(f"{where}:1: expected one column {name!r}, found {fields.count(name)}")
    return fields.index(names[0]), fields.index(names[1]), fields.index(names[2])


def _listed(fields: list[str]) -> str:
    text = ", ".join(map(repr, fields))
    return text if len(text) <= 80 else text[:77] + "..."
