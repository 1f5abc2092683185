"""Checks of a data set: duplicates, names unseen in training, and relations through which answers leak."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.occurrences import triple_keys

_EXAMPLES = 3


@dataclass(frozen=True)
class Finding:
    """The outcome of one check on one split.

    Args:
        check: what was looked for.
        where: the split.
        count: how many were found.
        total: out of how many.
        examples: some of them, with the file and the line.
    """

    check: str
    where: str
    count: int
    total: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class RelationPair:
    """Two relations that link the same entities.

    Args:
        relation: the relation of which the larger share of entity pairs is also linked by the other one.
        kind: `duplicate` of the other, `inverse` of the other, or `symmetric` (the inverse of itself).
        other: the other relation.
        share: that share of the entity pairs of `relation`, over all splits.
        share_of_other: the share of the entity pairs of `other` that is also linked by `relation`.
        support: the number of these entity pairs.
        example: file and line of two such triples.
    """

    relation: str
    kind: str
    other: str
    share: float
    share_of_other: float
    support: int
    example: str


@dataclass(frozen=True)
class Report:
    """The outcome of all checks on one graph.

    Args:
        name: the graph.
        findings: one for each check and split, also if nothing was found.
        relation_pairs: relations that mostly duplicate or reverse another one, those with the largest share first.
        threshold: the least share for these.
        min_support: the least support for these.
    """

    name: str
    findings: tuple[Finding, ...]
    relation_pairs: tuple[RelationPair, ...]
    threshold: float
    min_support: int

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.relation_pairs and not any(finding.count for finding in self.findings)


def check(graph: Graph, *, threshold: float = 0.8, min_support: int = 10) -> Report:
    """Looks for repeated triples, names unseen in training, and relations through which answers leak.

    A triple of valid or test is leaked if training links the same two entities, in the same or the other direction, by
    a relation that is in `relation_pairs` together with the relation of the triple. For `relation_pairs` the triples of
    all splits count: within training, the share of a perfect inverse is only the share of triples held in training.

    Args:
        graph: the graph.
        threshold: list two relations if at least this share of the entity pairs of one is also linked by the other.
        min_support: and if this is at least so many entity pairs.
    """
    triples = _Triples(graph)
    linked = _Linked(triples)
    pairs, flagged = _relation_pairs(triples, linked, threshold, min_support)
    findings = [
        *(_duplicates(triples, split) for split in SPLITS),
        *(_shared(triples, first, second) for first, second in combinations(SPLITS, 2)),
    ]
    for split in SPLITS[1:]:
        findings += [*_unseen(triples, split, "entities"), *_unseen(triples, split, "relations")]
    findings += [_leaks(triples, linked, flagged, split) for split in SPLITS[1:]]
    return Report(graph.name, tuple(findings), tuple(pairs), threshold, min_support)


class _Triples:
    """The triples of all splits as one sequence of rows, int64 [N, 3], train first.

    `ids`, int64 [N], are equal for equal triples, and `first` is the first row of each id, int64 [ids].
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.rows = np.concatenate([graph.splits[split] for split in SPLITS]).astype(np.int64)
        ends = np.cumsum([0, *(len(graph.splits[split]) for split in SPLITS)]).tolist()
        self.ranges = {split: range(ends[i], ends[i + 1]) for i, split in enumerate(SPLITS)}
        head, relation, tail = self.rows.T
        keys = triple_keys(head, relation, tail, graph.num_entities, graph.num_relations)
        _, self.first, self.ids = np.unique(keys, return_index=True, return_inverse=True)

    def of(self, split: str) -> tuple[int, np.ndarray, np.ndarray]:
        """Returns the first row of a split, its triples and their ids."""
        part = slice(self.ranges[split].start, self.ranges[split].stop)
        return part.start, self.rows[part], self.ids[part]

    def where(self, row: int) -> str:
        """Returns the file and line of a row, or its split and row if the file is unknown."""
        split = next(split for split, part in self.ranges.items() if row < part.stop)
        source, place = self.graph.sources.get(split), row - self.ranges[split].start
        return source.where(place) if source else f"{split} row {place}"

    def spell(self, row: int) -> str:
        """Returns a triple in names."""
        head, relation, tail = self.rows[row].tolist()
        return f"({self.graph.entities[head]}, {self.graph.relations[relation]}, {self.graph.entities[tail]})"

    def show(self, row: int) -> str:
        """Returns file, line and names."""
        return f"{self.where(row)}: {self.spell(row)}"


class _Linked:
    """All pairs of distinct triples that link the same two entities.

    `first` and `second` are their rows, `reversed` says whether one is in the other direction, and `codes` are equal
    for pairs of the same two relations and the same `reversed`; all [pairs].
    """

    def __init__(self, triples: _Triples):
        rows = np.sort(triples.first)
        head, relation, tail = triples.rows[rows].T
        keys = np.minimum(head, tail) * triples.graph.num_entities + np.maximum(head, tail)
        order = np.argsort(keys, kind="stable")
        rows, keys = rows[order], keys[order]
        # Triples with the same entities are neighbours now: compare each with the next, the next but one, and so on.
        parts, at, lag = [], np.arange(len(keys)), 0
        while len(at):
            lag += 1
            at = at[at + lag < len(keys)]
            at = at[keys[at] == keys[at + lag]]
            parts.append((at, at + lag))
        first, second = (np.concatenate(places) for places in zip(*parts, strict=True))
        turned, relation = (head > tail)[order], relation[order]
        self.first, self.second, self.reversed = rows[first], rows[second], turned[first] != turned[second]
        self.shape = (2, triples.graph.num_relations, triples.graph.num_relations)
        low, high = np.sort([relation[first], relation[second]], axis=0)
        self.codes = np.ravel_multi_index((self.reversed.astype(int), low, high), self.shape)


def _relation_pairs(
    triples: _Triples, linked: _Linked, threshold: float, min_support: int
) -> tuple[list[RelationPair], np.ndarray]:
    """Returns the relations that duplicate or reverse another one, and their codes."""
    codes, index, support = np.unique(linked.codes, return_index=True, return_counts=True)
    turned, low, high = np.unravel_index(codes, linked.shape)
    support = np.where(low == high, 2 * support, support)  # each of two triples of a symmetric relation reverses one
    distinct = triples.rows[triples.first]
    loops = distinct[:, 0] == distinct[:, 2]  # a loop is its own reverse, which says nothing about the relation
    sizes = [np.bincount(distinct[rows, 1], minlength=linked.shape[1]) for rows in (slice(None), ~loops)]
    shares = [support / np.stack(sizes)[turned, relation] for relation in (low, high)]
    names, pairs = triples.graph.relations, []
    chosen = np.flatnonzero((support >= min_support) & (np.maximum(*shares) >= threshold))
    for i in chosen.tolist():
        (share, relation), (lesser, other) = sorted(
            ((float(shares[0][i]), int(low[i])), (float(shares[1][i]), int(high[i]))), key=lambda x: -x[0]
        )
        kind = "duplicate" if not turned[i] else "symmetric" if relation == other else "inverse"
        example = " and ".join(triples.where(int(rows[index[i]])) for rows in (linked.first, linked.second))
        pairs.append(RelationPair(names[relation], kind, names[other], share, lesser, int(support[i]), example))
    pairs.sort(key=lambda pair: (-pair.share, -pair.support, pair.relation, pair.other))
    return pairs, codes[chosen]


def _finding(check: str, split: str, found: np.ndarray, total: int, describe: Callable[[int], str]) -> Finding:
    return Finding(check, split, len(found), total, tuple(describe(x) for x in found[:_EXAMPLES].tolist()))


def _duplicates(triples: _Triples, split: str) -> Finding:
    start, _, ids = triples.of(split)
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    original = first[inverse]

    def describe(row: int) -> str:
        again, before = start + row, start + int(original[row])
        return f"{triples.where(again)} repeats {triples.where(before)}: {triples.spell(again)}"

    return _finding("duplicate triples", split, np.flatnonzero(original != np.arange(len(ids))), len(ids), describe)


def _shared(triples: _Triples, first: str, second: str) -> Finding:
    (before, _, others), (start, _, ids) = triples.of(first), triples.of(second)

    def describe(row: int) -> str:
        original = before + int(np.flatnonzero(others == ids[row])[0])
        return f"{triples.where(start + row)} repeats {triples.where(original)}: {triples.spell(start + row)}"

    found = np.flatnonzero(np.isin(ids, others))
    return _finding(f"triples shared with {first}", second, found, len(ids), describe)


def _unseen(triples: _Triples, split: str, kind: str) -> tuple[Finding, Finding]:
    """Finds the names of a split that do not occur in training, and the triples that contain one."""
    graph = triples.graph
    vocabulary, columns = (graph.entities, [0, 2]) if kind == "entities" else (graph.relations, [1])
    start, rows, _ = triples.of(split)
    used = rows[:, columns]
    seen = np.zeros(len(vocabulary), bool)
    seen[graph.train[:, columns]] = True
    names, first = np.unique(used, return_index=True)

    def describe(place: int) -> str:
        row = int(first[place]) // len(columns)  # np.unique counts through all columns of a row, then the next row
        return f"{triples.where(start + row)}: {vocabulary[int(names[place])]}"

    unseen, touched = np.flatnonzero(~seen[names]), np.flatnonzero(~seen[used].all(axis=1))
    return (
        _finding(f"{kind} unseen in training", split, unseen, len(names), describe),
        _finding(f"triples with unseen {kind}", split, touched, len(rows), lambda row: triples.show(start + row)),
    )


def _leaks(triples: _Triples, linked: _Linked, flagged: np.ndarray, split: str) -> Finding:
    hit = np.isin(linked.codes, flagged)
    evidence = np.full(len(triples.first), -1)  # for each id a training triple that leaks it
    for known, answer in ((linked.first, linked.second), (linked.second, linked.first)):
        leaks = hit & (known < len(triples.graph.train))
        evidence[triples.ids[answer[leaks]]] = known[leaks]
    start, _, ids = triples.of(split)

    def describe(row: int) -> str:
        return f"{triples.show(start + row)}, given by {triples.show(int(evidence[ids[row]]))}"

    return _finding("answers leaked by training", split, np.flatnonzero(evidence[ids] >= 0), len(ids), describe)
