"""Checks of a data set: duplicates, names unseen in training, and relations through which answers leak."""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import sparse

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.occurrences import distinct_triples
from jobi_tf.data.vocabulary import Vocabulary

_EXAMPLES = 3


@dataclass(frozen=True)
class Finding:
    """What one check of one split, `where`, found: `count` out of `total`, some of them with file and line."""

    check: str
    where: str
    count: int
    total: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class RelationPair:
    """A relation that is a `duplicate` of another one, its `inverse`, or `symmetric`: the inverse of itself.

    `support` pairs of entities of all splits are linked by both, which is a share of those of each relation; that of
    the first one is the larger share.
    """

    relation: str
    kind: str
    other: str
    share: float
    share_of_other: float
    support: int


@dataclass(frozen=True)
class Report:
    """What the checks of a graph found: a finding for each check and split, also if nothing was found.

    The relation pairs have at least the share `threshold` and the support `min_support`, those with the largest share
    first.
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
    all splits count: within training, the share of a perfect inverse is only the share of triples held in training. Two
    relations are listed if at least the share `threshold` of the entity pairs of one, and at least `min_support` pairs,
    are also linked by the other.
    """
    triples = _Triples(graph)
    pairs, flagged = _relation_pairs(triples, threshold, min_support)
    findings = [_alike(names, kind) for names, kind in ((graph.entities, "entities"), (graph.relations, "relations"))]
    findings += [_repeats(triples, split, split) for split in SPLITS]
    findings += [_repeats(triples, first, second) for first, second in combinations(SPLITS, 2)]
    for split in SPLITS[1:]:
        for kind in ("entities", "relations"):
            findings += _unseen(triples, split, kind)
    findings += [_leaks(triples, flagged, split) for split in SPLITS[1:]]
    return Report(graph.name, tuple(findings), tuple(pairs), threshold, min_support)


class _Triples:
    """The triples of all splits as one table, int64 [N, 3], train first; a row is an index into it.

    `ids`, int64 [N], are equal for equal triples, and `first` is the first row of each id, int64 [ids]. `pairs` are
    equal for triples that link the same two entities; `labels` are their relation, of R, plus R if the head is the
    larger id. `held` has the first row of each pair and label, plus 1: sparse [pairs, 2R].
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.table = np.concatenate([graph.splits[split] for split in SPLITS]).astype(np.int64)
        ends = np.cumsum([0, *(len(graph.splits[split]) for split in SPLITS)])
        self.rows = {split: np.arange(ends[i], ends[i + 1]) for i, split in enumerate(SPLITS)}
        self.first, self.ids = distinct_triples(self.table)
        head, relation, tail = self.table.T
        keys = np.minimum(head, tail) * graph.num_entities + np.maximum(head, tail)
        keys, self.pairs = np.unique(keys, return_inverse=True)
        self.labels = relation + graph.num_relations * (head > tail)
        cells = self.pairs[self.first], self.labels[self.first]
        self.held = sparse.csr_matrix((self.first + 1, cells), (len(keys), 2 * graph.num_relations))

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


def _relation_pairs(
    triples: _Triples, threshold: float, min_support: int
) -> tuple[list[RelationPair], sparse.csr_matrix]:
    """Returns the relations that duplicate or reverse another one, and the labels that give each other: [2R, 2R]."""
    count, names = triples.graph.num_relations, triples.graph.relations
    held = (triples.held > 0).astype(np.int64)
    common = (held.T @ held).tocsr()  # how many pairs of entities two labels have in common
    same = common[:count, :count] + common[count:, count:]
    turned = common[:count, count:] + common[count:, :count]  # each of two triples of a symmetric relation reverses one
    distinct = triples.table[triples.first]
    proper = distinct[distinct[:, 0] != distinct[:, 2]]  # a loop is its own reverse, which says nothing
    pairs, flagged = [], []
    for kind, matrix, counted in (
        ("duplicate", sparse.triu(same, 1), distinct),
        ("inverse", sparse.triu(turned), proper),
    ):
        found = matrix.tocoo()
        relations = np.stack([found.row, found.col])
        shares = found.data / np.bincount(counted[:, 1], minlength=count)[relations]
        chosen = np.flatnonzero((found.data >= min_support) & (shares.max(0) >= threshold))
        flags = sparse.csr_matrix((np.ones(len(chosen), bool), relations[:, chosen]), (count, count))
        flagged.append(flags + flags.T)
        for at in chosen.tolist():
            sides = zip(shares[:, at].tolist(), relations[:, at].tolist(), strict=True)
            (share, a), (lesser, b) = sorted(sides, key=lambda side: -side[0])
            shown = kind if a != b else "symmetric"
            pairs.append(RelationPair(names[a], shown, names[b], share, lesser, int(found.data[at])))
    pairs.sort(key=lambda pair: (-pair.share, -pair.support, pair.relation, pair.other))
    return pairs, sparse.bmat([flagged, flagged[::-1]]).tocsr()


def _finding(check: str, split: str, found: np.ndarray, total: int, describe: Callable[[int], str]) -> Finding:
    return Finding(check, split, len(found), total, tuple(describe(x) for x in found[:_EXAMPLES].tolist()))


def _alike(names: Vocabulary, kind: str) -> Finding:
    """Finds names that differ from an earlier one only in spaces or in their form in Unicode."""
    first: dict[str, str] = {}
    plain = [" ".join(unicodedata.normalize("NFKC", name).split()) for name in names.names]
    found = np.flatnonzero([first.setdefault(x, name) != name for x, name in zip(plain, names.names, strict=True)])
    return _finding("near-duplicate names", kind, found, len(names), lambda i: f"{names[i]!r}, {first[plain[i]]!r}")


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
    seen[triples.table[triples.rows["train"]][:, columns]] = True
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


def _leaks(triples: _Triples, flagged: sparse.csr_matrix, split: str) -> Finding:
    rows = triples.rows[split]
    evidence = triples.held[triples.pairs[rows]].multiply(flagged[triples.labels[rows]]).tocsr()
    evidence.data[evidence.data > len(triples.graph.train)] = 0
    evidence = evidence.max(1).toarray()[:, 0] - 1  # the row of a training triple that leaks each one, or -1

    def describe(place: int) -> str:
        return f"{triples.show(rows[place])}, given by {triples.show(evidence[place])}"

    return _finding("answers leaked by training", split, np.flatnonzero(evidence >= 0), len(rows), describe)
