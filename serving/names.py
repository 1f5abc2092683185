"""Names that contain a text, for the suggestions of the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jobi_tf.errors import DataError

FILES = {"entity": "entities.tsv", "relation": "relations.tsv"}
# Letters that are searched for a text in the middle of a name, which takes a few milliseconds: those of the names with
# most triples, some 200,000. The beginnings of all names are searched.
_SEARCHED = 2**22


class NameList:
    """The names in a file with lines of id, name and number of triples, separated by tabs, after a heading.

    Raises:
        DataError: the file is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8").split("\n")[1:-1]
            _, names, counts = zip(*(line.split("\t") for line in lines), strict=True)
            order = np.argsort(-np.array(counts, np.int64), kind="stable")
        except (OSError, ValueError) as error:
            raise DataError(f"expected lines of id, name and number of triples in {path}: {error}") from None
        self._names = [names[i] for i in order]  # the most frequent first
        folded = [name.casefold() for name in self._names]
        self._text = "\n" + "".join(name + "\n" for name in folded)
        self._starts = 1 + np.cumsum([0, *(len(name) + 1 for name in folded)])  # of each name in the text, [N + 1]

    def search(self, text: str, limit: int) -> list[str]:
        """Returns names that begin with a text, and after them names that contain it, without regard to case."""
        text = text.casefold()
        if "\n" in text:
            return []
        found = self._find("\n" + text, limit, len(self._text) - 1)
        if text and len(found) < limit:
            found = list(dict.fromkeys([*found, *self._find(text, 2 * limit, _SEARCHED)]))
        return [self._names[i] for i in found[:limit]]

    def _find(self, text: str, limit: int, end: int) -> list[int]:
        """Returns the indices of names that contain a text; a line break stands for the start of a name."""
        found: list[int] = []
        place = self._text.find(text, 0, end)
        while place >= 0 and len(found) < limit:
            found.append(int(np.searchsorted(self._starts, place + text.startswith("\n"), "right")) - 1)
            place = self._text.find(text, int(self._starts[found[-1] + 1]) - 1, end)
        return found
