"""Names that contain a text, for the suggestions of the page."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path

import numpy as np

from jobi_tf.errors import DataError

FILES = {"entity": "entities.tsv", "relation": "relations.tsv"}
_SEARCHED = 200_000  # names, those with most triples, that are searched for a text in their middle


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
        self._names = [(names[i], names[i].casefold()) for i in order]  # the most frequent first

    def search(self, text: str, limit: int) -> list[str]:
        """Returns names that begin with a text, and after them names that contain it, without regard to case.

        Args:
            text: what was typed; "" finds the most frequent names.
            limit: the greatest number of names.
        """
        text = text.casefold()
        begin = (name for name, folded in self._names if folded.startswith(text))
        contain = (name for name, folded in self._names[:_SEARCHED] if folded.find(text) > 0)
        return list(islice(chain(begin, contain), limit))
