"""Names that begin with, or hold, what somebody types."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jobi_tf.errors import DataError

KINDS = {"entity": "entities.tsv", "relation": "relations.tsv"}
# Bytes of names that are looked through for a text in the middle of a name: a few milliseconds. They hold some 200,000
# names, those with most triples. Names that begin with the text are found among all.
_LOOKED_THROUGH = 2**22


@dataclass(frozen=True)
class Names:
    """The names of a version.

    Args:
        lists: those of each kind, `entity` and `relation`.
    """

    lists: dict[str, NameList]

    @classmethod
    def read(cls, folder: Path) -> Names:
        """Reads the names that the export of a version lists.

        Raises:
            DataError: a list is missing or damaged.
        """
        return cls({kind: NameList.read(folder / file) for kind, file in KINDS.items()})


class NameList:
    """Names in order of their numbers of triples, the most frequent first.

    Memory is about 60 bytes a name of 20 letters; making it takes seconds for millions of names.

    Args:
        names: the names, the most frequent first.
    """

    def __init__(self, names: Sequence[str]) -> None:
        folded = [name.casefold().encode() for name in names]
        # In order of spelling, for the beginnings of names: int32 [N] of places in `names`.
        self._spelled = np.array(sorted(range(len(names)), key=folded.__getitem__), np.int32)
        self._folded, self._folded_ends = _packed(folded)
        self._names, self._ends = _packed([name.encode() for name in names])

    @classmethod
    def read(cls, path: Path) -> NameList:
        """Reads lines of id TAB name TAB number of triples, after a heading.

        Raises:
            DataError: the file is missing or damaged.
        """
        names, counts = [], []
        try:
            with path.open(encoding="utf-8", newline="\n") as lines:
                next(lines, None)
                for line in lines:
                    _, name, count = line.rstrip("\n").split("\t")
                    names.append(name)
                    counts.append(int(count))
        except (OSError, ValueError) as error:
            raise DataError(f"expected lines of id, name and number of triples in {path}: {error}") from None
        order = np.argsort(-np.array(counts, np.int64), kind="stable")
        return cls([names[i] for i in order])

    def __len__(self) -> int:
        return len(self._ends)

    def complete(self, text: str, limit: int) -> list[str]:
        """Finds names without regard to case: first those that begin with a text, then those that hold it elsewhere.

        Args:
            text: what was typed; of an empty one, the most frequent names come.
            limit: names at most.

        Returns:
            The names, the most frequent first within each of the two groups.
        """
        sought = text.casefold().encode(errors="replace")
        if not sought or b"\n" in sought:
            return [] if sought else [self._name(place) for place in range(min(limit, len(self)))]
        places = self._beginning(sought, limit)
        if len(places) < limit:
            places += self._holding(sought, limit - len(places))
        return [self._name(place) for place in places]

    def _beginning(self, sought: bytes, limit: int) -> list[int]:
        every = range(len(self))
        size = len(sought)
        first = bisect_left(every, sought, key=self._fold_spelled)
        last = bisect_right(every, sought, lo=first, key=lambda i: self._fold_spelled(i)[:size])
        places = self._spelled[first:last]
        if len(places) > limit:
            places = np.partition(places, limit - 1)[:limit]
        return np.sort(places).tolist()

    def _holding(self, sought: bytes, limit: int) -> list[int]:
        """Places of names that hold a text, but do not begin with it."""
        places: list[int] = []
        found = self._folded.find(sought, 0, _LOOKED_THROUGH)
        while found >= 0 and len(places) < limit:
            place = int(np.searchsorted(self._folded_ends, found, "right"))
            if found > self._start(place):  # those that begin with it were found before
                places.append(place)
            found = self._folded.find(sought, int(self._folded_ends[place]), _LOOKED_THROUGH)
        return places

    def _start(self, place: int) -> int:
        return int(self._folded_ends[place - 1]) if place else 0

    def _fold_spelled(self, i: int) -> bytes:
        """The name in place i in order of spelling, without case."""
        place = int(self._spelled[i])
        return self._folded[self._start(place) : int(self._folded_ends[place]) - 1]

    def _name(self, place: int) -> str:
        start = int(self._ends[place - 1]) if place else 0
        return self._names[start : int(self._ends[place]) - 1].decode()


def _packed(names: list[bytes]) -> tuple[bytes, np.ndarray]:
    """All names in one piece, each with a line break after it, and where each ends, int64 [N]: after the break."""
    ends = np.cumsum(np.fromiter((len(name) + 1 for name in names), np.int64, len(names)))
    return b"".join(name + b"\n" for name in names), ends
