"""Relations that mostly repeat or reverse another relation."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.ranges import ranges

_BLOCK = 1 << 20


@dataclass(frozen=True)
class RelationPair:
    """Two relations that link the same entities.

    Args:
        relation: the relation of which the larger share of entity pairs is linked by the other one, too.
        kind: `duplicate` of the other, `inverse` of the other, or `symmetric` (the inverse of itself).
        other: the other relation.
        share: which share of the entity pairs of `relation` that is, over all splits.
        share_of_other: which share of the entity pairs of `other` that is.
        support: how many entity pairs that is.
        example: file and line of two such triples.
    """

    relation: str
    kind: str
    other: str
    share: float
    share_of_other: float
    support: int
    example: str


def relation_pairs(graph: Graph, threshold: float, min_support: int) -> list[RelationPair]:
    """Returns the relations that share at least `threshold` of their entity pairs with another, largest share first.

    All splits count: in training alone the share of a perfect inverse is only the share of triples held in training.
    """
    triples, origin = _distinct(graph)
    order = np.argsort(pair_keys(graph, triples), kind="stable")
    keys = pair_keys(graph, triples)[order]
    found = []
    for turned in (False, True):
        # A loop is its own reverse, which tells nothing about the relation.
        rows = np.flatnonzero(triples[:, 0] != triples[:, 2]) if turned else np.arange(len(triples))
        sizes = np.bincount(triples[rows, 1], minlength=graph.num_relations)
        left = pair_keys(graph, triples[rows], turned)
        for relation, other, support, row, known in _common(graph, triples, rows, left, keys, order):
            shares = support / sizes[relation], support / sizes[other]
            # Each pair comes in both orders; the one with the larger first share stands for both.
            ranked = (shares[0], -relation) >= (shares[1], -other)
            if support >= min_support and shares[0] >= threshold and ranked and (turned or relation != other):
                kind = "duplicate" if not turned else "symmetric" if relation == other else "inverse"
                example = " and ".join(_where_in_all(graph, int(origin[place])) for place in (row, known))
                names = graph.relations[relation], graph.relations[other]
                found.append(
                    RelationPair(names[0], kind, names[1], float(shares[0]), float(shares[1]), support, example)
                )
    return sorted(found, key=lambda pair: (-pair.share, -pair.support, pair.relation, pair.other))


def flagged_codes(graph: Graph, pairs: list[RelationPair], turned: bool) -> np.ndarray:
    """Returns `relation * relations + other` of the listed pairs, in both orders: int64 [n]."""
    kinds = ("inverse", "symmetric") if turned else ("duplicate",)
    ids = [(graph.relations.id(p.relation), graph.relations.id(p.other)) for p in pairs if p.kind in kinds]
    codes = [a * graph.num_relations + b for pair in ids for a, b in (pair, pair[::-1])]
    return np.array(sorted(set(codes)), np.int64)


def pair_keys(graph: Graph, triples: np.ndarray, turned: bool = False) -> np.ndarray:
    """Returns one number for each (head, tail), or (tail, head) where `turned`: int64 [N]."""
    head, tail = triples[:, 0].astype(np.int64), triples[:, 2].astype(np.int64)
    return tail * graph.num_entities + head if turned else head * graph.num_entities + tail


def joined(left: np.ndarray, keys: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields, in blocks, all (place in `left`, place in the sorted `keys`) with equal values, as two int64 [n]."""
    for begin in range(0, len(left), _BLOCK):
        block = left[begin : begin + _BLOCK]
        low, high = np.searchsorted(keys, block, "left"), np.searchsorted(keys, block, "right")
        count = high - low
        rows = np.repeat(np.arange(begin, begin + len(block)), count)
        yield rows, ranges(low, count)


def _common(
    graph: Graph, triples: np.ndarray, rows: np.ndarray, left: np.ndarray, keys: np.ndarray, order: np.ndarray
) -> Iterator[tuple[int, int, int, int, int]]:
    """Yields relation, other relation, number of entity pairs in common, and two triples as example."""
    support: dict[int, int] = {}
    example: dict[int, tuple[int, int]] = {}
    for places, others in joined(left, keys):
        first, second = rows[places], order[others]
        codes = triples[first, 1].astype(np.int64) * graph.num_relations + triples[second, 1]
        values, index, counts = np.unique(codes, return_index=True, return_counts=True)
        for code, at, count in zip(values.tolist(), index.tolist(), counts.tolist(), strict=True):
            support[code] = support.get(code, 0) + count
            example.setdefault(code, (int(first[at]), int(second[at])))
    for code, count in support.items():
        yield *divmod(code, graph.num_relations), count, *example[code]


def _distinct(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct triples of all splits, int32 [N, 3], and where each stands in their sequence, int64 [N]."""
    triples = np.concatenate([graph.splits[split] for split in SPLITS])
    codes = pair_keys(graph, triples) * graph.num_relations + triples[:, 1]
    origin = np.sort(np.unique(codes, return_index=True)[1])
    return triples[origin], origin


def where(graph: Graph, split: str, row: int) -> str:
    """Returns the file and the line of a triple, or its split and row where the file is not known."""
    source = graph.sources.get(split)
    return source.where(row) if source else f"{split} row {row}"


def _where_in_all(graph: Graph, place: int) -> str:
    """Returns where a triple stands, given its place in the sequence of all splits."""
    for split in SPLITS:
        if place < len(graph.splits[split]):
            break
        place -= len(graph.splits[split])
    return where(graph, split, place)
