"""A knowledge graph in ids, and its form on disk."""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jobi_tf.data.shards import Shards, blocks
from jobi_tf.data.vocabulary import Vocabulary, text_of
from jobi_tf.errors import DataError, UsageError, damaged
from jobi_tf.files import check_new, new_folder, read_json
from jobi_tf.tables import html_table

FORMAT = 1
SPLITS = ("train", "valid", "test")
# Usual names of the columns of heads, relations and tails; where a table has several, the first one counts.
_HEADER = (
    ("head", "subject", "source", "from", "h", "s"),
    ("relation", "predicate", "relationship", "property", "rel", "r", "p"),
    ("tail", "object", "target", "to", "t", "o"),
)
_SEEN = ("seen.offsets", "seen.entities")


@dataclass(frozen=True)
class Source:
    """Where the triples of a split were read: row i stands on line `first_line + i`, or on line `lines[i]`."""

    file: str
    first_line: int = 1
    lines: np.ndarray | None = None

    def where(self, row: int) -> str:
        """Returns `file:line` of a row of the split."""
        return f"{self.file}:{self.first_line + row if self.lines is None else self.lines[row]}"


@dataclass(frozen=True, eq=False, repr=False)  # graphs are hashed by identity; `fingerprint` tells equal ones
class Graph:
    """The triples of three splits as ids, with the vocabularies of their names.

    Args:
        name: name of the data set.
        entities: names of the entities of all splits.
        relations: names of the relations of all splits.
        splits: `train`, `valid` and `test`, each int32 [N, 3] with columns head, relation, tail, in file order; `train`
            may be `Shards`.
        sources: for each split, the file and lines that it was read from, if known.
        weights: weights of the triples of each split that has them, float32 [N].
        seen: offsets and entities of the `Occurrences` of the training split, if known.
    """

    name: str
    entities: Vocabulary
    relations: Vocabulary
    splits: Mapping[str, Any]
    sources: Mapping[str, Source] = field(default_factory=dict)
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    seen: tuple[np.ndarray, ...] | None = None

    @classmethod
    def from_triples(
        cls, train: Any, valid: Any = None, test: Any = None, *, weights: Any = None, name: str = "graph"
    ) -> "Graph":
        """Creates a graph from triples of names.

        Args:
            train: the training triples: a list of (head, relation, tail), an array [N, 3], a DataFrame, or a
                networkx graph whose edges have the attribute `relation`. Of a DataFrame, the columns called head,
                relation and tail, or subject, predicate and object, else the first three. Values other than strings are
                converted to strings, bytes as UTF-8: numbers become names, not ids.
            valid: the validation triples, in the same form.
            test: the test triples, in the same form.
            weights: weights of the training triples, [N]; not negative, and not all 0.
            name: name of the graph.

        Raises:
            DataError: there are no training triples, a split does not have three columns, a name is missing, empty or
                contains a tab, line break or NUL, or the weights do not fit the triples.

        Example:
            >>> graph = jobi_tf.Graph.from_triples([("Paris", "capital of", "France"), ("Bern", "is in", "Europe")])
            >>> graph
            <Graph graph: 4 entities, 2 relations, 2 train, 0 valid, 0 test triples>
        """
        entities: dict[str, int] = {}
        relations: dict[str, int] = {}
        splits = {}
        for split, triples in zip(SPLITS, (train, valid, test), strict=True):
            heads, between, tails = columns_of([] if triples is None else triples, split)
            # By row, as files are read, so that the same triples have the same ids.
            ends = [entities.setdefault(x, len(entities)) for pair in zip(heads, tails, strict=True) for x in pair]
            kinds = [relations.setdefault(x, len(relations)) for x in between]
            splits[split] = np.array([ends[::2], kinds, ends[1::2]], np.int32).T
        if not len(splits["train"]):
            raise DataError("expected training triples, got none")
        given = {} if weights is None else {"train": checked_weights(weights, len(splits["train"]))}
        vocabularies = Vocabulary(list(entities), "entity"), Vocabulary(list(relations), "relation")
        return cls(name, *vocabularies, splits, weights=given)

    def __repr__(self) -> str:
        names = f"{self.num_entities:,} entities, {self.num_relations:,} relations"
        triples = ", ".join(f"{len(rows):,} {split}" for split, rows in self.splits.items())
        return f"<Graph {self.name}: {names}, {triples} triples>"

    def _repr_html_(self) -> str:
        rows = {"entities": self.num_entities, "relations": self.num_relations}
        rows |= {f"{split} triples": len(triples) for split, triples in self.splits.items()}
        return html_table(self.name, ["", "number"], [[name, f"{count:,}"] for name, count in rows.items()])

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
        """Whether each entity occurs in a training triple: bool [entities]."""
        seen = np.zeros(self.num_entities, bool)
        for part in blocks(self.train):
            seen[part[:, 0]] = seen[part[:, 2]] = True
        return seen

    def names_unseen_in_training(self, entities: Iterable[str], relation: str) -> list[str]:
        """Returns which of the names of some entities and a relation occur in no training triple.

        Raises:
            DataError: a name is unknown.
        """
        unseen = [(name, [0, 2], self.entities.id(name)) for name in entities]
        unseen.append((relation, [1], self.relations.id(relation)))
        for part in blocks(self.train):
            unseen = [x for x in unseen if not (part[:, x[1]] == x[2]).any()]
            if not unseen:
                break
        return [name for name, *_ in unseen]

    def has_ids_of(self, other: "Graph") -> bool:
        """Returns whether all entities and relations have the same ids in another graph."""
        pairs = (self.entities, other.entities), (self.relations, other.relations)
        return all(own is others or [*own.names] == [*others.names] for own, others in pairs)

    def relation_names(self, inverses: bool) -> list[str]:
        """Returns the names of the relations and, if wanted, those of their inverses, which answer (?, r, t)."""
        names = list(self.relations.names)
        return [*names, *(f"{name} (inverse)" for name in names if inverses)]

    def split(self, name: str) -> np.ndarray:
        """Returns the triples of a split, int32 [N, 3].

        Raises:
            DataError: there is no such split.
        """
        if not isinstance(name, str) or name not in self.splits:
            raise DataError(f"expected a split out of {', '.join(self.splits)}, got {name!r}")
        return self.splits[name]

    def ids_of_triples(self, triples: Any) -> np.ndarray:
        """Returns triples of ids or names as ids, int32 [N, 3]; of a DataFrame by the names of its columns.

        Raises:
            DataError: there are not three columns, a name is unknown, an id is out of range, or a list has
                numbers, which could be names as well as ids.
        """
        triples = triples.numpy() if hasattr(triples, "numpy") else triples  # a tensor
        if isinstance(triples, np.ndarray):  # where alone numbers are certainly ids
            if triples.ndim != 2 or triples.shape[1] != 3:
                raise DataError(f"expected triples of the shape [N, 3], got {list(triples.shape)}")
            columns = list(triples.T)
        else:
            columns = _columns(triples, "`triples`")
        kinds = (self.entities, self.relations, self.entities)
        return np.stack([names.ids_of(column) for names, column in zip(kinds, columns, strict=True)], 1)

    @property
    def fingerprint(self) -> str:
        """A digest of names and splits, which is equal for equal graphs."""
        sizes = [len(self.splits[name]) for name in SPLITS]
        return hashlib.sha256(f"{self._digest} {sizes}".encode()).hexdigest()

    @cached_property
    def _digest(self) -> str:
        """A digest of names and triples, whatever splits these are in; files have it.

        Training triples may be in any order, as those of a graph in shards have another one.
        """
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            digest.update("\n".join(vocabulary.names).encode() + b"\0")
        total = np.zeros(1, np.uint64)
        for part in blocks(self.splits["train"]):
            total += _sum_of_hashes(part)
        digest.update(total.data)
        for name in SPLITS[1:]:
            digest.update(np.ascontiguousarray(self.splits[name]).data)
        return digest.hexdigest()

    def save(self, folder: str | Path) -> None:
        """Writes the graph as a new folder, which appears complete or not at all.

        Raises:
            UsageError: the folder has files already.
        """
        check_new(Path(folder))
        with new_folder(Path(folder)) as beside:
            self.write(beside)

    def write(self, folder: Path) -> None:
        """Writes the files of the graph into a folder that exists.

        Training triples that are in shards stay where they are, and their folder is noted unless it is this one.
        """
        self.entities.save(folder / "entities.txt")
        self.relations.save(folder / "relations.txt")
        sizes = [self.num_entities, self.num_relations]
        meta: dict = {"format": FORMAT, "name": self.name, "fingerprint": self._digest, "sizes": sizes, "sources": {}}
        arrays = dict(zip(_SEEN, self.seen, strict=True)) if self.seen else {}
        for name, triples in self.splits.items():
            if isinstance(triples, Shards):
                place = triples.folder if "://" in triples.folder else str(Path(triples.folder).absolute())
                meta["shards"] = asdict(triples) | {"folder": "" if Path(triples.folder) == folder else place}
                meta["shards_of"] = _written_digest(meta["shards"]["folder"])
            else:
                arrays[name] = np.ascontiguousarray(triples, np.int32)
            if name in self.weights:
                arrays[f"{name}.weights"] = self.weights[name].astype(np.float32)
            if source := self.sources.get(name):
                meta["sources"][name] = {"file": source.file, "first_line": source.first_line}
                if source.lines is not None:
                    arrays[f"{name}.lines"] = source.lines.astype(np.int32)
        for name, values in arrays.items():
            np.save(folder / f"{name}.npy", values)
        (folder / "graph.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def open(cls, folder: str | Path) -> "Graph":
        """Opens what `save` wrote; the triples are memory-mapped, read-only.

        Raises:
            DataError: the folder holds no prepared graph, a damaged one, or one of another format.
        """
        folder = Path(folder)
        with damaged("a prepared graph", folder):
            if not (folder / "graph.json").is_file():
                raise DataError(f"expected a prepared graph in {folder}, found no graph.json there")
            return cls._open(folder)

    @classmethod
    def _open(cls, folder: Path) -> "Graph":
        meta = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
        if meta["format"] != FORMAT:
            raise DataError(f"{folder} holds a graph of format {meta['format']}, this version reads {FORMAT}")
        arrays: dict[str, Any] = {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
        if shards := meta.get("shards"):
            arrays["train"] = Shards(**shards | {"folder": shards["folder"] or str(folder)})
            before, now = meta.get("shards_of"), _written_digest(shards["folder"])
            if before and now and before != now:
                place = shards["folder"]
                raise DataError(f"expected the training triples of {folder} in {place}, found those of another graph")
        if missing := [f"{name}.npy" for name in SPLITS if name not in arrays]:
            raise DataError(f"expected {', '.join(missing)} in {folder}, found none")
        graph = cls(
            meta["name"],
            Vocabulary.load(folder / "entities.txt", "entity"),
            Vocabulary.load(folder / "relations.txt", "relation"),
            {name: arrays[name] for name in SPLITS},
            {name: Source(**source, lines=arrays.get(f"{name}.lines")) for name, source in meta["sources"].items()},
            {name: arrays[f"{name}.weights"] for name in SPLITS if f"{name}.weights" in arrays},
            tuple(arrays[name] for name in _SEEN) if _SEEN[0] in arrays else None,
        )
        sizes = [graph.num_entities, graph.num_relations]
        if (expected := meta.get("sizes", sizes)) != sizes:
            raise ValueError(f"expected {expected} names of entities and relations, got {sizes}")
        graph.__dict__["_digest"] = meta["fingerprint"]  # where cached_property keeps it
        return graph


def _sum_of_hashes(triples: np.ndarray) -> np.ndarray:
    """Returns the sum of 64-bit hashes of triples, int32 [N, 3] → uint64 [1]; SplitMix64 mixes their ids."""
    mixed: np.ndarray = np.zeros(len(triples), np.uint64)
    for ids in triples.T:
        mixed += ids.astype(np.uint64) + 0x9E3779B97F4A7C15
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB
        mixed ^= mixed >> 31
    return mixed.sum(keepdims=True)


def _written_digest(folder: str) -> str | None:
    """Returns the digest of the graph that was written into a local folder; None if there is none."""
    meta = read_json(Path(folder, "graph.json"), "a prepared graph", "fingerprint") if folder else {}
    return meta.get("fingerprint")


def check_is_graph(graph: Any) -> None:
    """Raises a `UsageError` for an argument that is not a graph, such as the name of one."""
    if not isinstance(graph, Graph):
        raise UsageError(f"expected a graph, as jobi_tf.load_graph and Graph.from_triples return it, got {graph!r}")


def known_header(names: Collection[str]) -> list[str] | None:
    """Returns the names of the head, relation and tail columns among lower-case names; None if one is missing."""
    found = [next((name for name in known if name in names), None) for known in _HEADER]
    return None if None in found else found  # type: ignore[return-value]


def columns_of_table(names: Sequence[str], where: str) -> list[int]:
    """Returns which columns of a table are those of heads, relations and tails, given their lower-case names.

    They are the columns with usual names, or else the first three.

    Raises:
        DataError: only some columns have usual names, and not at their places among the first three.
    """
    if known := known_header(names):
        return [names.index(name) for name in known]
    if any(name in usual for i, usual in enumerate(_HEADER) for name in [*names[:i], *names[i + 1 :]]):
        expected = f"head, relation and tail to be the first columns of {where}, or to have usual names"
        raise DataError(f"expected {expected}, got {', '.join(names)}")
    return [0, 1, 2]


def columns_of(triples: Any, split: str) -> list[list[str]]:
    """Returns the names of heads, relations and tails of what `Graph.from_triples` takes.

    Raises:
        DataError: it has not three columns, or a name is missing, empty or has a line break.
    """
    return [[_checked_name(name, row, split) for row, name in enumerate(column)] for column in _columns(triples, split)]


def with_index(frame: Any) -> Any:
    """Returns a pandas DataFrame with the named levels of its index as last columns."""
    names = [name for name in frame.index.names if name is not None and name not in frame.columns]
    return frame.reset_index(names)[[*frame.columns, *names]] if names else frame


def _columns(triples: Any, split: str) -> list[list[Any]]:
    if hasattr(triples, "columns") and hasattr(triples, "to_numpy"):  # a DataFrame
        triples = with_index(triples) if hasattr(triples, "index") else triples
        names = [str(name).strip().casefold() for name in triples.columns]
        places = columns_of_table(names, split)[: len(names)]
        # Each by itself, since columns of several dtypes become one of floats.
        frame = triples.iloc if hasattr(triples, "iloc") else triples
        triples = zip(*(frame[:, i].to_list() for i in places), strict=True)
    elif hasattr(triples, "edges"):  # a networkx graph
        if not triples.is_directed():
            raise DataError(f"expected a directed networkx graph in {split}, got {triples}")
        triples = [(head, relation, tail) for head, tail, relation in triples.edges(data="relation")]
        if any(relation is None for _, relation, _ in triples):
            raise DataError(f"expected an attribute `relation` of each edge in {split}, got an edge without it")
    elif isinstance(triples, str | Path | Graph) or not hasattr(triples, "__iter__"):
        raise DataError(f"expected triples of names in {split}, got {triples!r}; jobi_tf.load_graph reads files")
    rows = np.array([*triples], object)
    if not len(rows):
        return [[], [], []]
    if rows.ndim != 2 or rows.shape[1] != 3:
        is_triple = [isinstance(row, list | tuple | np.ndarray) and len(row) == 3 for row in rows.tolist()]
        row = is_triple.index(False) if False in is_triple else 0
        raise DataError(f"expected three columns (head, relation, tail) in {split}, got {rows[row]!r} in row {row}")
    return rows.T.tolist()


def _checked_name(value: Any, row: int, split: str) -> str:
    """Returns a name as text; a DataError if it is missing or has a character that separates names in files."""
    name = text_of(value)
    if not name or name.isspace() or any(x in name for x in "\0\n\r\t"):
        what = "a name (one line, no tabs or NUL bytes)"
        raise DataError(f"expected {what} in row {row} of {split}, got {value!r}")
    if not name.isascii() and any("\ud800" <= x <= "\udfff" for x in name):
        raise DataError(f"expected a name that UTF-8 can write in row {row} of {split}, got {value!r}")
    return name


def checked_weights(weights: Any, count: int) -> np.ndarray:
    """Returns weights as float32 [count]; raises a `DataError` unless they are finite, not negative, not all 0."""
    try:
        values = np.asarray(weights, np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"expected numbers as weights: {error}") from None
    if values.shape != (count,):
        raise DataError(f"expected a weight for each of {count:,} training triples, got the shape {list(values.shape)}")
    if not np.isfinite(values).all() or (values < 0).any() or not values.any():
        raise DataError("expected finite weights, none of them negative and not all 0")
    return values
