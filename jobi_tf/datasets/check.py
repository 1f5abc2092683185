"""Checks of a data set: duplicates, names unseen in training, and relations through which answers leak."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.occurrences import distinct_triples

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
        min_support: and if these are at least this number of entity pairs.
    """
    triples = _Triples(graph)
    linked = _Linked(triples)
    pairs, flagged = _relation_pairs(triples, linked, threshold, min_support)
    findings = [_repeats(triples, split, split) for split in SPLITS]
    findings += [_repeats(triples, first, second) for first, second in combinations(SPLITS, 2)]
    for split in SPLITS[1:]:
        for kind in ("entities", "relations"):
            findings += _unseen(triples, split, kind)
    findings += [_leaks(triples, linked, flagged, split) for split in SPLITS[1:]]
    return Report(graph.name, tuple(findings), tuple(pairs), threshold, min_support)


class _Triples:
    """The triples of all splits as one table, int64 [N, 3], train first; a row is an index into it.

    `ids`, int64 [N], are equal for equal triples, and `first` is the first row of each id, int64 [ids].
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.table = np.concatenate([graph.splits[split] for split in SPLITS]).astype(np.int64)
        ends = np.cumsum([0, *(len(graph.splits[split]) for split in SPLITS)])
        self.rows = {split: np.arange(ends[i], ends[i + 1]) for i, split in enumerate(SPLITS)}
        self.first, self.ids = distinct_triples(self.table)

    def where(self, row: int) -> str:
        """Returns the file and line of a row, or its split and place if the file is unknown."""
        split = next(split for split, rows in self.rows.items() if len(rows) and row <= rows[-1])
        source, place = self.graph.sources.get(split), int(row - self.rows[split][0])
        return source.where(place) if source else f"{split} row {place}"

    def spell(self, row: int) -> str:
        """Returns a triple in names."""
        head, relation, tail = self.table[row].tolist()
        return f"({self.graph.entities[head]}, {self.graph.relations[relation]}, {self.graph.entities[tail]})"

    def show(self, row: int) -> str:
        """Returns file, line and names."""
        return f"{self.where(row)}: {self.spell(row)}"


class _Linked:
    """All pairs of distinct triples that link the same two entities.

    `first` and `second` are their rows, and `codes` are equal for pairs of the same two relations that both are in the
    same direction, or both not; all int64 [pairs].
    """

    def __init__(self, triples: _Triples):
        rows = np.sort(triples.first)
        head, relation, tail = triples.table[rows].T
        keys = np.minimum(head, tail) * triples.graph.num_entities + np.maximum(head, tail)
        order = np.argsort(keys, kind="stable")
        rows, keys, relation, turned = rows[order], keys[order], relation[order], (head > tail)[order]
        # Triples with the same entities are neighbours now: compare each with the next, the next but one, and so on.
        parts, at, lag = [], np.arange(len(keys)), 0
        while len(at):
            lag += 1
            at = at[at + lag < len(keys)]
            at = at[keys[at] == keys[at + lag]]
            parts.append((at, at + lag))
        first, second = (np.concatenate(places) for places in zip(*parts, strict=True))
        self.first, self.second = rows[first], rows[second]
        self.shape = (2, triples.graph.num_relations, triples.graph.num_relations)
        low, high = np.sort([relation[first], relation[second]], axis=0)
        self.codes = np.ravel_multi_index(((turned[first] != turned[second]).astype(int), low, high), self.shape)


def _relation_pairs(
    triples: _Triples, linked: _Linked, threshold: float, min_support: int
) -> tuple[list[RelationPair], np.ndarray]:
    """Returns the relations that duplicate or reverse another one, and their codes."""
    codes, index, support = np.unique(linked.codes, return_index=True, return_counts=True)
    reversed_, low, high = np.unravel_index(codes, linked.shape)
    support = np.where(low == high, 2 * support, support)  # each of two triples of a symmetric relation reverses one
    distinct = triples.table[triples.first]
    proper = distinct[distinct[:, 0] != distinct[:, 2]]  # a loop is its own reverse, which says nothing
    sizes = np.stack([np.bincount(rows[:, 1], minlength=linked.shape[1]) for rows in (distinct, proper)])
    shares = support / sizes[reversed_, low], support / sizes[reversed_, high]
    names, pairs = triples.graph.relations, []
    chosen = np.flatnonzero((support >= min_support) & (np.maximum(*shares) >= threshold))
    for i in chosen.tolist():
        sides = [(float(shares[0][i]), int(low[i])), (float(shares[1][i]), int(high[i]))]
        (share, relation), (lesser, other) = sorted(sides, key=lambda side: -side[0])
        kind = "duplicate" if not reversed_[i] else "symmetric" if relation == other else "inverse"
        example = " and ".join(triples.where(rows[index[i]]) for rows in (linked.first, linked.second))
        pairs.append(RelationPair(names[relation], kind, names[other], share, lesser, int(support[i]), example))
    pairs.sort(key=lambda pair: (-pair.share, -pair.support, pair.relation, pair.other))
    return pairs, codes[chosen]


def _finding(check: str, split: str, found: np.ndarray, total: int, describe: Callable[[int], str]) -> Finding:
    return Finding(check, split, len(found), total, tuple(describe(x) for x in found[:_EXAMPLES].tolist()))


def _repeats(triples: _Triples, before: str, split: str) -> Finding:
    """Finds the triples of a split that occur in `before`, or, if that is the same split, earlier in it."""
    earlier, rows = triples.rows[before], triples.rows[split]
    original = np.full(len(triples.first), len(triples.table))  # for each id the first row in `before`
    original[triples.ids[earlier][::-1]] = earlier[::-1]

    def describe(row: int) -> str:
        return f"{triples.where(row)} repeats {triples.where(original[triples.ids[row]])}: {triples.spell(row)}"

    name = "duplicate triples" if before == split else f"triples shared with {before}"
    return _finding(name, split, rows[original[triples.ids[rows]] < rows], len(rows), describe)


def _unseen(triples: _Triples, split: str, kind: str) -> tuple[Finding, Finding]:
    """Finds the names of a split that do not occur in training, and the triples that contain one."""
    vocabulary = triples.graph.entities if kind == "entities" else triples.graph.relations
    columns = [0, 2] if kind == "entities" else [1]
    seen = np.zeros(len(vocabulary), bool)
    seen[triples.graph.train[:, columns]] = True
    rows = triples.rows[split]
    used = triples.table[rows][:, columns]
    names, first = np.unique(used, return_index=True)

    def describe(place: int) -> str:
        row = rows[first[place] // len(columns)]  # np.unique counts through all columns of a row, then the next row
        return f"{triples.where(row)}: {vocabulary[int(names[place])]}"

    touched = rows[~seen[used].all(axis=1)]
    return (
        _finding(f"{kind} unseen in training", split, np.flatnonzero(~seen[names]), len(names), describe),
        _finding(f"triples with unseen {kind}", split, touched, len(rows), triples.show),
    )


def _leaks(triples: _Triples, linked: _Linked, flagged: np.ndarray, split: str) -> Finding:
    hit = np.isin(linked.codes, flagged)
    evidence = np.full(len(triples.first), -1)  # for each id the row of a training triple that leaks it
    for known, answer in ((linked.first, linked.second), (linked.second, linked.first)):
        leaks = hit & (known < len(triples.graph.train))
        evidence[triples.ids[answer[leaks]]] = known[leaks]
    rows = triples.rows[split]

    def describe(row: int) -> str:
        return f"{triples.show(row)}, given by {triples.show(evidence[triples.ids[row]])}"

    return _finding("answers leaked by training", split, rows[evidence[triples.ids[rows]] >= 0], len(rows), describe)
