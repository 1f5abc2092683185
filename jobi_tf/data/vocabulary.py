"""Names and their ids."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from rapidfuzz import process

from jobi_tf.errors import DataError


class Vocabulary:
    """The names of all entities, or of all relations; a name's id is its place.

    Args:
        names: distinct names, none of them with a line break in it.
        kind: what is named, `"entity"` or `"relation"`, used in messages.

    Example:
        >>> relations = Vocabulary(["capital", "currency"], kind="relation")
        >>> relations.id("currency"), relations[0]
        (1, 'capital')
    """

    def __init__(self, names: Sequence[str], kind: str):
        self.names = names
        self.kind = kind

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> str:
        return self.names[index]

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def id(self, name: str) -> int:
        """Returns the id of `name`.

        Raises:
            DataError: the name is unknown; the message gives the nearest spellings.
        """
        found = self._ids.get(name)
        if found is None:
            near = self.nearest(name)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise DataError(f"unknown {self.kind} {name!r}: not among the {len(self):,} of this graph{hint}")
        return found

    def ids(self, names: Iterable[str]) -> np.ndarray:
        """Returns the ids of `names` as int32 [N]; raises as `id` does."""
        return np.array([self.id(name) for name in names], np.int32)

    def nearest(self, name: str, count: int = 3) -> list[str]:
        """Returns up to `count` known names spelled most like `name`, best first."""
        matches = process.extract(name, self.names, processor=str.casefold, limit=count, score_cutoff=70)
        # Beside a near miss, matches of parts of a name are noise.
        return [match[0] for match in matches if match[1] >= matches[0][1] - 20]

    def save(self, path: Path) -> None:
        """Writes one name a line, in UTF-8."""
        path.write_text("".join(f"{name}\n" for name in self.names), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: Path, kind: str) -> "Vocabulary":
        """Reads what `save` wrote."""
        return cls(path.read_bytes().decode("utf-8").split("\n")[:-1], kind)
