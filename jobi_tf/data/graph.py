"""A knowledge graph in ids, and its form on disk."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.errors import DataError
from jobi_tf.files import new_folder

FORMAT = 1
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Source:
    """Where the triples of a split were read: row i stands on line `first_line + i`, or on line `lines[i]`."""

    file: str
    first_line: int = 1
    lines: np.ndarray | None = None

    def where(self, row: int) -> str:
        """Returns `file:line` of a row of the split."""
        return f"{self.file}:{self.first_line + row if self.lines is None else self.lines[row]}"


@dataclass(frozen=True, eq=False)  # graphs are hashed by identity; `fingerprint` tells equal ones
class Graph:
    """Triples of three splits as ids, with the vocabularies that name them.

    Args:
        name: name of the data set.
        entities: names of the entities of all splits.
        relations: names of the relations of all splits.
        splits: `train`, `valid` and `test`, each int32 [N, 3] with columns head, relation, tail, in file order.
        sources: for each split where its rows were read, if that is known.
        weights: for each split that has them, the weight of every triple, float32 [N].
    """

    name: str
    entities: Vocabulary
    relations: Vocabulary
    splits: Mapping[str, np.ndarray]
    sources: Mapping[str, Source] = field(default_factory=dict)
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def train(self) -> np.ndarray:
        """Training triples, int32 [N, 3]."""
        return self.splits["train"]

    @property
    def valid(self) -> np.ndarray:
        """Validation triples, int32 [N, 3]."""
        return self.splits["valid"]

    @property
    def test(self) -> np.ndarray:
        """Test triples, int32 [N, 3]."""
        return self.splits["test"]

    @property
    def num_entities(self) -> int:
        """Number of entities over the three splits."""
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        """Number of relations over the three splits."""
        return len(self.relations)

    @cached_property
    def seen_in_training(self) -> np.ndarray:
        """For each entity whether it occurs in a training triple: bool [entities]."""
        seen = np.zeros(self.num_entities, bool)
        seen[self.train[:, 0]] = seen[self.train[:, 2]] = True
        return seen

    def split(self, name: str) -> np.ndarray:
        """Returns the triples of a split, int32 [N, 3].

        Raises:
            DataError: there is no such split.
        """
        if name not in self.splits:
            raise DataError(f"expected a split out of {', '.join(self.splits)}, got {name!r}")
        return self.splits[name]

    @cached_property
    def fingerprint(self) -> str:
        """A digest of names and triples: equal for equal graphs, wherever they came from."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            digest.update("\n".join(vocabulary.names).encode() + b"\0")
        for name in SPLITS:
            digest.update(np.ascontiguousarray(self.splits[name]).data)
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Writes the graph as `folder`, which must not exist. It appears complete or not at all."""
        with new_folder(folder) as beside:
            self.entities.save(beside / "entities.txt")
            self.relations.save(beside / "relations.txt")
            meta: dict = {"format": FORMAT, "name": self.name, "fingerprint": self.fingerprint, "sources": {}}
            for name in SPLITS:
                np.save(beside / f"{name}.npy", np.ascontiguousarray(self.splits[name], np.int32))
                if name in self.weights:
                    np.save(beside / f"{name}.weights.npy", self.weights[name].astype(np.float32))
                if source := self.sources.get(name):
                    meta["sources"][name] = {"file": source.file, "first_line": source.first_line}
                    if source.lines is not None:
                        np.save(beside / f"{name}.lines.npy", source.lines.astype(np.int32))
            (beside / "graph.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def open(cls, folder: Path) -> "Graph":
        """Opens what `save` wrote; the triples are memory-mapped, read-only.

        Raises:
            DataError: the folder holds no prepared graph, or one of another format.
        """
        try:
            meta = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(f"expected a prepared graph in {folder}, found no graph.json there") from None
        if meta["format"] != FORMAT:
            raise DataError(f"{folder} holds a graph of format {meta['format']}, this version reads {FORMAT}")
        weights = {name: folder / f"{name}.weights.npy" for name in SPLITS}
        sources = {}
        for name, source in meta["sources"].items():
            lines = folder / f"{name}.lines.npy"
            mapped = np.load(lines, mmap_mode="r") if lines.exists() else None
            sources[name] = Source(source["file"], source["first_line"], mapped)
        graph = cls(
            meta["name"],
            Vocabulary.load(folder / "entities.txt", "entity"),
            Vocabulary.load(folder / "relations.txt", "relation"),
            {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in SPLITS},
            sources,
            {name: np.load(path, mmap_mode="r") for name, path in weights.items() if path.exists()},
        )
        graph.__dict__["fingerprint"] = meta["fingerprint"]  # where cached_property keeps it
        return graph
