"""Names and their ids."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rapidfuzz import process

from jobi_tf.errors import DataError


def text_of(value: Any) -> str | None:
    """Returns a name as text: bytes, as TensorFlow has them, as UTF-8, and numbers in digits; None if it is missing."""
    if isinstance(value, float | np.floating) and value.is_integer():  # an id in a column with missing ones
        value = int(value)
    itself = value == value  # False for NaN and NaT; pandas' NA is neither equal nor not
    if value is None or not isinstance(itself, bool | np.bool_) or not itself:
        return None
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)


class Vocabulary:
    """The names of all entities, or of all relations. The id of a name is its position.

    Args:
        names: distinct names, without tabs and line breaks.
        kind: `"entity"` or `"relation"`, used in messages.

    Example:
        >>> relations = Vocabulary(["capital", "currency"], kind="relation")
        >>> relations.id("currency"), relations[0]
        (1, 'capital')
    """

    def __init__(self, names: Sequence[str], kind: str):
        self.names = names
        self.kind = kind

    def __repr__(self) -> str:
        first = ", ".join(map(repr, self.names[:3]))
        return f"<Vocabulary of {len(self):,} {self.kind} names: {first}{', …' if len(self) > 3 else ''}>"

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> str:
        return self.names[index]

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def id(self, name: str | None) -> int:
        """Returns the id of `name`.

        Raises:
            DataError: the name is unknown, when the message gives the nearest spellings, or it is no text.
        """
        if not isinstance(name, str):
            raise DataError(f"expected a text as {self.kind} name, got {name!r}")
        found = self._ids.get(name)
        if found is None:
            raise DataError(self._unknown(name))
        return found

    def _unknown(self, name: str) -> str:
        near = self.nearest(name)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        return f"unknown {self.kind} {name!r}: not among the {len(self):,} of this graph{hint}"

    def ids(self, names: Iterable[str | None]) -> np.ndarray:
        """Returns the ids of `names` as int32 [N]; raises as `id` does."""
        return np.array([self.id(name) for name in names], np.int32)

    def ids_of(self, items: Any) -> np.ndarray:
        """Returns ids, which are checked, or the ids of names: int, str or bytes [N] → int32 [N].

        Raises:
            DataError: a name is unknown or missing, an id is out of range, the argument is not a list, or it has
                numbers that could be names and is not an array.
        """
        if isinstance(items, str | bytes) or not hasattr(items, "__iter__"):
            raise DataError(f"expected a list of {self.kind} names or ids, got {items!r}")
        is_array = isinstance(items, np.ndarray)
        items = np.asarray(items if hasattr(items, "__array__") else [*items])
        if items.ndim != 1:
            raise DataError(f"expected a list of {self.kind} names or ids, got the shape {list(items.shape)}")
        if items.size and items.dtype.kind in "bf":
            raise DataError(f"expected {self.kind} names or ids, got {items[0].item()!r}")
        if items.dtype.kind not in "iu":
            return self.ids(text_of(x) for x in items.tolist())
        if not is_array and (both := next((x for x in items if str(x) in self), None)) is not None:
            raise DataError(f"expected {self.kind} names as text or an array of ids, got {both}, which may be either")
        wrong = items[(items < 0) | (items >= len(self))]
        if len(wrong):
            raise DataError(f"expected {self.kind} ids from 0 to {len(self) - 1:,}, got {wrong[0]}")
        return items.astype(np.int32)

    def ids_in_file(self, path: Path) -> np.ndarray:
        """Reads a file with one name per line, and returns the ids, int32, ascending and distinct.

        Raises:
            DataError: the file cannot be read, a name is unknown, or there is none.
        """
        try:
            lines = path.read_bytes().decode("utf-8-sig").split("\n")
        except OSError as error:
            raise DataError(f"expected a file of names at {path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            number, byte = 1 + error.object.count(b"\n", 0, error.start), error.object[error.start]
            raise DataError(f"{path}:{number}: expected UTF-8, got byte 0x{byte:02x}") from None
        names = {name: number for number, line in enumerate(lines, 1) if (name := line.removesuffix("\r"))}
        if not names:
            raise DataError(f"expected one name per line in {path}, got none")
        if unknown := [name for name in names if name not in self]:
            count = f" ({len(unknown):,} unknown names in all)" if len(unknown) > 1 else ""
            raise DataError(f"{path}:{names[unknown[0]]}: {self._unknown(unknown[0])}{count}")
        return np.sort(self.ids(names))

    def nearest(self, name: str, count: int = 3) -> list[str]:
        """Returns up to `count` known names with the most similar spelling, best first."""
        matches = process.extract(name, self.names, processor=str.casefold, limit=count, score_cutoff=70)
        # Beside a near miss, matches of parts of a name are noise.
        return [match[0] for match in matches if match[1] >= matches[0][1] - 20]

    def save(self, path: Path) -> None:
        """Writes one name per line, in UTF-8."""
        path.write_text("".join(f"{name}\n" for name in self.names), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: Path, kind: str) -> "Vocabulary":
        """Reads what `save` wrote."""
        return cls(path.read_bytes().decode("utf-8").split("\n")[:-1], kind)
