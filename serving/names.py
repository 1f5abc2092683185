"""Names that contain or resemble a text, for suggestions."""

from pathlib import Path

import numpy as np

from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.errors import DataError

FILES = {"entity": "entities.tsv", "relation": "relations.tsv"}
# Bytes that are searched for a text in the middle of a name, which takes a few milliseconds: those of the names with
# most triples, some 200,000. The beginnings of all names are searched.
_SEARCHED = 2**22
_COMPARED = 2**18  # bytes whose names are compared with a misspelt one, which takes longer


class NameList:
    """The names in a file with lines of id, name and number of triples, separated by tabs, after a heading.

    They are in UTF-8, each between two line breaks; millions of strings would take seven times as much memory.
    """

    def __init__(self, path: Path) -> None:
        try:
            text = _by_frequency(path)
        except (OSError, ValueError) as error:
            raise DataError(f"expected lines of id, name and number of triples in {path}: {error}") from None
        self._names, self._folded = text.encode(), text.casefold().encode()
        self._breaks, self._folded_breaks = _breaks(self._names), _breaks(self._folded)

    def search(self, text: str, limit: int) -> list[str]:
        """Returns names that begin with a text and, after them, names that contain it; or else the most similar ones.

        Upper and lower case are the same.
        """
        part = text.casefold().encode()
        if b"\n" in part:
            return []
        found = self._find(b"\n" + part, limit, len(self._folded) - 1)
        if part and len(found) < limit:
            found = list(dict.fromkeys([*found, *self._find(part, 2 * limit, _SEARCHED)]))
        if not found:
            compared = self._names[1 : self._names.rfind(b"\n", 0, _COMPARED)].decode().split("\n")
            return Vocabulary(compared, "name").nearest(text, limit)
        return [self._names[self._breaks[i] + 1 : self._breaks[i + 1]].decode() for i in found[:limit]]

    def _find(self, part: bytes, limit: int, end: int) -> list[int]:
        """Returns the indices of names that contain a part; a line break stands for the start of a name."""
        found: list[int] = []
        place = self._folded.find(part, 0, end)
        while place >= 0 and len(found) < limit:
            found.append(int(np.searchsorted(self._folded_breaks, place, "right")) - 1)
            place = self._folded.find(part, self._folded_breaks[found[-1] + 1], end)
        return found


def _by_frequency(path: Path) -> str:
    names, counts = [], []
    with path.open(encoding="utf-8", newline="\n") as file:
        file.readline()
        for line in file:
            _, rest = line.split("\t", 1)
            name, count = rest.rsplit("\t", 1)  # names of CSV files may have tabs
            names.append(name)
            counts.append(int(count))
    order = np.argsort(-np.array(counts, np.int64), kind="stable")
    return "\n".join(["", *(names[i] for i in order), ""])


def _breaks(text: bytes) -> np.ndarray:
    return np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
