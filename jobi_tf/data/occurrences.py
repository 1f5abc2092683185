"""Which entities occur on which side of a relation, and which triples are known, as sorted integer keys."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.shards import blocks

SIDES = ("head", "tail")
HEAD, TAIL = 0, 1


def column(side: int) -> int:
    """Returns the column of a triple [head, relation, tail] in which the entity of `side` stands."""
    return 2 * side


def triple_keys(head, relation, tail, num_entities: int, num_relations: int):  # type: ignore[no-untyped-def]
    """Returns one number a triple, equal for equal triples, of NumPy arrays or tensors alike: int64 [...].

    Fits 64 bits up to 3 million entities with a million relations, above which different triples may get the same
    number; the ids have to be int64 already.
    """
    return (head * num_relations + relation) * num_entities + tail


def distinct_triples(triples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds equal triples, ids [N, 3], whatever the number of entities and relations.

    Returns:
        The first row of each distinct triple, and for each row the number of its triple in that list; both int64, [n]
        and [N].
    """
    head, relation, tail = triples.T.astype(np.int64)
    entities, relations = (int(x.max(initial=0)) + 1 for x in (triples[:, ::2], relation))
    if entities**2 * relations > 2**63:  # number the pairs that occur instead
        _, head = np.unique(head * relations + relation, return_inverse=True)
        relation, relations = np.zeros_like(relation), 1
    keys = triple_keys(head, relation, tail, entities, relations)
    _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return first, numbers


def distinct(keys: np.ndarray) -> np.ndarray:
    """Returns the distinct keys, ascending: as `np.unique`, which takes 100 times as long for millions of int64."""
    keys = np.sort(keys)
    return keys[np.diff(keys, prepend=keys[:1] - 1) != 0]


def find(keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns for each of `wanted` its place in the ascending `keys`, and whether it is there: int64 and bool [N]."""
    if not len(keys):
        return np.zeros(wanted.shape, np.int64), np.zeros(wanted.shape, bool)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return places, keys[places] == wanted


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns start, start + 1, … of each range, one range behind the other: int64 [N] both → [sum of lengths]."""
    return np.arange(lengths.sum()) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)


def both_sides(triples: np.ndarray) -> np.ndarray:
    """Returns the heads and behind them the tails of triples: [N, 3] → [2 N]."""
    return np.concatenate([triples[:, column(side)] for side in (HEAD, TAIL)])


def entity_degrees(triples: np.ndarray, num_entities: int) -> np.ndarray:
    """Returns the number of triples, [N, 3], in which each entity is the head, the tail or both: int64 [entities]."""
    head, _, tail = np.asarray(triples).T
    return np.bincount(np.concatenate([head, tail[head != tail]]), minlength=num_entities)


@dataclass(frozen=True)
class Csr:
    """Lists of entities, ascending and distinct: list `i` is `entities[offsets[i]:offsets[i + 1]]`."""

    offsets: np.ndarray  # int64 [rows + 1]
    entities: np.ndarray  # int32 [listed entities]

    def __getitem__(self, row: int) -> np.ndarray:
        return self.entities[self.offsets[row] : self.offsets[row + 1]]

    @classmethod
    def from_pairs(cls, rows: np.ndarray, entities: np.ndarray, num_rows: int, num_entities: int) -> "Csr":
        """Builds the lists from (row, entity) pairs in any order, repeated or not; both [N]."""
        keys = distinct(rows.astype(np.int64) * num_entities + entities)
        starts = np.arange(num_rows + 1, dtype=np.int64) * num_entities
        return cls(np.searchsorted(keys, starts), (keys % num_entities).astype(np.int32))

    def in_parts(self, most: int) -> tuple["Csr", np.ndarray]:
        """Cuts each list into parts of `most` entities at most, as even as can be.

        Returns:
            The parts, list by list, and the list that each comes from, int64 [parts]. Empty lists have none.
        """
        sizes = np.diff(self.offsets)
        parts = -(-sizes // most)
        rows = np.repeat(np.arange(len(sizes)), parts)
        part = ranges(np.zeros_like(parts), parts)
        starts = self.offsets[rows] + part * sizes[rows] // parts[rows]
        return Csr(np.append(starts, self.offsets[-1]), self.entities), rows


@dataclass(frozen=True)
class Occurrences:
    """The distinct entities seen on each side of each relation in the training split.

    Row `side * num_relations + relation` of `seen` lists the entities that occur on that side of that relation. It is
    what biased negatives are drawn from, and what the labels of the pair head are read from.
    """

    seen: Csr
    num_entities: int
    num_relations: int

    @classmethod
    def from_triples(cls, triples: np.ndarray, num_entities: int, num_relations: int) -> "Occurrences":
        """Counts occurrences in `triples`, int [N, 3]."""
        rows = np.concatenate([side * num_relations + triples[:, 1] for side in (HEAD, TAIL)])
        seen = Csr.from_pairs(rows, both_sides(triples), 2 * num_relations, num_entities)
        return cls(seen, num_entities, num_relations)

    @classmethod
    def of_graph(cls, graph: Graph) -> "Occurrences":
        """Counts occurrences in the training split of a graph, or opens those that its shards have."""
        if graph.seen:
            return cls(Csr(*graph.seen), graph.num_entities, graph.num_relations)
        return cls.from_triples(graph.train, graph.num_entities, graph.num_relations)

    @classmethod
    def from_blocks(cls, parts: Iterable[np.ndarray], num_entities: int, num_relations: int) -> "Occurrences":
        """Counts occurrences in triples that come a few at a time, in memory for the distinct pairs only."""
        keys = np.empty(0, np.int64)
        for triples in parts:
            new = cls.from_triples(triples, num_entities, num_relations).keys()
            keys = np.sort(np.concatenate([keys, new[~find(keys, new)[1]]]), kind="stable")
        seen = Csr.from_pairs(*np.divmod(keys, num_entities), 2 * num_relations, num_entities)
        return cls(seen, num_entities, num_relations)

    def of(self, side: int, relation: int) -> np.ndarray:
        """Returns the entities seen on `side` of `relation`, ascending, int32."""
        return self.seen[side * self.num_relations + relation]

    def keys(self) -> np.ndarray:
        """Returns `row * num_entities + entity` of every listed pair, ascending, int64: for search by bisection."""
        rows = np.repeat(np.arange(2 * self.num_relations, dtype=np.int64), np.diff(self.seen.offsets))
        return rows * self.num_entities + self.seen.entities


def query_keys(side: int, triples: np.ndarray, num_entities: int, num_relations: int) -> np.ndarray:
    """Returns a number for each triple's query whose answer on `side` is left open, int64 [N]; see `KnownAnswers`."""
    anchor = triples[:, column(1 - side)].astype(np.int64)
    return (side * num_entities + anchor) * num_relations + triples[:, 1]


@dataclass(frozen=True)
class KnownAnswers:
    """The true answers to every query that occurs in some triples: the filter of filtered ranks.

    A query is (side, anchor, relation): the entity sought stands on `side`, the `anchor` on the other one. Its key is
    `(side * num_entities + anchor) * num_relations + relation`.
    """

    keys: np.ndarray  # int64 [queries], ascending
    answers: Csr  # the entities that answer each query
    num_entities: int
    num_relations: int

    @classmethod
    def from_triples(cls, triples: np.ndarray, num_entities: int, num_relations: int) -> "KnownAnswers":
        """Collects the answers that `triples`, int [N, 3], hold for both sides."""
        keys = np.concatenate([query_keys(side, triples, num_entities, num_relations) for side in (HEAD, TAIL)])
        queries, rows = np.unique(keys, return_inverse=True)
        answers = Csr.from_pairs(rows, both_sides(triples), len(queries), num_entities)
        return cls(queries, answers, num_entities, num_relations)

    @classmethod
    def of_graph(
        cls,
        graph: Graph,
        splits: Iterable[str],
        queries: np.ndarray | None = None,
        side: int | None = None,
        more: np.ndarray | None = None,
    ) -> "KnownAnswers":
        """Collects the answers in some splits of a graph, and in `more` triples, int [N, 3].

        With `queries`, triples, int [M, 3], only the answers to their queries are collected, on one side or on both,
        which takes a fraction of the time and memory.
        """
        parts = [] if more is None else [more]
        sizes, sides = (graph.num_entities, graph.num_relations), (HEAD, TAIL) if side is None else (side,)
        asked = [] if queries is None else [distinct(query_keys(x, queries, *sizes)) for x in sides]
        for name in splits:
            for part in blocks(graph.split(name)):
                answers = [find(keys, query_keys(x, part, *sizes))[1] for x, keys in zip(sides, asked, strict=False)]
                parts.append(part[np.any(answers, axis=0)] if answers else part)
        return cls.from_triples(np.concatenate([*parts, np.empty((0, 3), np.int32)]), *sizes)  # of no splits too

    def queries(self) -> np.ndarray:
        """Returns the anchor, the relation and the side of each query, int64 [queries, 3]."""
        rest, relations = np.divmod(self.keys, self.num_relations)
        sides, anchors = np.divmod(rest, self.num_entities)
        return np.stack([anchors, relations, sides], 1)

    def lookup(self, side: int, triples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Finds the known answers on one side of triples, int [N, 3], whose own answers are not read.

        Returns:
            Rows of `triples`, int64 [M] ascending, and the entities that answer them, int32 [M].
        """
        places, known = find(self.keys, query_keys(side, triples, self.num_entities, self.num_relations))
        starts = self.answers.offsets[places]
        counts = np.where(known, self.answers.offsets[np.minimum(places + 1, len(self.keys))] - starts, 0)
        return np.repeat(np.arange(len(triples)), counts), self.answers.entities[ranges(starts, counts)]
