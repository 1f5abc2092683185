"""Rules of a graph: mined with their confidences, and what they predict by themselves."""

import time
from typing import NamedTuple

import numpy as np
from scipy import sparse

from jobi_tf.data.graph import Graph, check_is_graph
from jobi_tf.data.occurrences import find
from jobi_tf.errors import check_at_least, check_numbers
from jobi_tf.evaluation.answers import ByName
from jobi_tf.evaluation.edges import Edges, incidence
from jobi_tf.evaluation.exclusions import Exclusions, NumpyModel
from jobi_tf.tables import Table

SMOOTHING = 5  # bodies without the head that are added to those of each rule
MIN_HITS = 2
TOP = 5  # groups of rules that count for a candidate
QUERIES = 32  # at once: each may have a million predictions
BITS = 20  # of a confidence while the best are sorted out
EXCLUDED = 100  # subtracted from the score of an excluded candidate; that of rules is below 70


class Rule(NamedTuple):
    """A rule, such as `grandparent(X, Y) <- parent(X, A), parent(A, Y)`, where X, Y and A are variables.

    In training, the body holds for `body` pairs or entities, and the head holds for `hits` of them. The confidence is
    hits / (body + 5).
    """

    rule: str
    confidence: float
    hits: int
    body: int


class Exclusion(NamedTuple):
    """A rule that excludes candidates, such as `not parent(X, Y) <- spouse(X, Y)` or `not parent(X, X)`.

    No pair in training satisfies both body and head, although `expected` pairs would by chance.
    """

    rule: str
    expected: float


def confidence(hits: np.ndarray, body: np.ndarray) -> np.ndarray:
    """Returns the share of bodies with which the head holds, drawn to 0 where there are few bodies, float32."""
    return (hits / (body + SMOOTHING)).astype(np.float32)


class _Rows(NamedTuple):
    """The rows of a sparse matrix that are not empty, where millions of others are."""

    numbers: np.ndarray  # ascending
    matrix: sparse.csr_matrix

    @classmethod
    def of(cls, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, width: int) -> "_Rows":
        numbers, place = np.unique(rows, return_inverse=True)
        return cls(numbers, sparse.csr_matrix((values, (place, columns)), (len(numbers), width)))

    def take(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the entries of some rows: the place in `wanted`, the column and the value of each."""
        places, there = find(self.numbers, wanted)
        found = self.matrix[places[there]].tocoo()
        return np.flatnonzero(there)[found.row], found.col, found.data


class RuleModel(ByName, NumpyModel):
    """Ranks entities by the rules of a graph, without embeddings.

    There are four forms of rules: r(X, Y) <- s(X, Y) and r(X, Y) <- s(X, A), t(A, Y), with s and t in either direction;
    and r(X, c) <- s(X, d) and r(X, c) <- s(X, A), where the constant c is a tail or a head. The confidence of
    r(X, c) <- r(X, A) is the frequency of c; it applies to all X if c is the candidate, and to entities that have the
    edge if X is. A, X and Y are different entities. The confidence of a rule is hits / (body + 5) in training (Meilicke
    et al. 2019). Rules with fewer than two hits are left out.

    The score of a candidate is -log Π (1 - confidence) over at most five rules, which are treated as independent: the
    best rule for each first relation of the body, the best one with the candidate as the constant c, and the best one
    with the candidate as X. Without a rule the score is 0. Candidates that an `Exclusion` excludes rank last.

    Args:
        graph: the graph.
        minutes: time limit for mining. If it is reached, the remaining rules are left out and `complete` is False;
            otherwise the rules depend on the graph only.
        min_confidence: smallest confidence of a rule.

    Raises:
        UsageError: `minutes` or `min_confidence` is not above 0.

    Example:
        >>> rules = jobi_tf.RuleModel(jobi_tf.load_graph("world"))
        >>> jobi_tf.evaluate(rules).metrics()["mrr"]
    """

    def __init__(self, graph: Graph, minutes: float = 5, min_confidence: float = 0.01):
        check_numbers("(0, inf]", minutes=minutes, min_confidence=min_confidence)
        check_is_graph(graph)
        super().__init__(graph, self._with_exclusions)
        self.graph, self.min_confidence, self.complete = graph, min_confidence, True
        start = time.monotonic()
        self._edges = Edges(graph.train, graph.num_entities, graph.num_relations)
        self.exclusions = Exclusions(graph, self._edges)
        self._mine_paths(start + 30 * minutes)  # half of the time
        self._mine_constants(start + 60 * minutes)

    @property
    def model(self) -> "RuleModel":
        """The rules themselves, which score."""
        return self

    @property
    def num_rules(self) -> int:
        """Number of rules; a rule and its inverse count once."""
        paths = int((self._paths[:, 0] < self.num_relations).sum())
        return paths + sum(rules.matrix.nnz for rules in self._constants.values())

    def best(self, k: int = 20) -> Table[Rule]:
        """Returns the k rules with the highest confidence; equal ones are ordered by hits.

        Raises:
            UsageError: `k` is below 1.
        """
        check_at_least(1, k=k)
        paths = self._paths[self._paths[:, 0] < self.num_relations]
        parts = [np.insert(paths, 0, 0, axis=1)]
        for label, rules in self._constants.items():
            row, entity, hits = rules.take(rules.numbers)
            feature, columns = rules.numbers[row], [np.full(len(row), x) for x in (1, label)]
            parts.append(np.stack([*columns, feature, entity, hits, self._bodies[feature]], 1))
        rows = np.concatenate(parts)
        rows = rows[np.lexsort((-rows[:, 4], -confidence(*rows.T[4:])))[:k]]
        texts = [self._constant_text(*x) if constant else self._path_text(*x) for constant, *x in rows[:, :4].tolist()]
        values = zip(texts, confidence(*rows.T[4:]).tolist(), *rows[:, 4:].T.tolist(), strict=True)
        return Table([Rule(*x) for x in values], Rule._fields, f"rules of {self.graph.name}")

    def excluding(self, k: int = 20) -> Table[Exclusion]:
        """Returns the k exclusions with the most pairs expected by chance.

        Raises:
            UsageError: `k` is below 1.
        """
        check_at_least(1, k=k)
        count, expected, loops = self.num_relations, self.exclusions.expected, self.exclusions.loops
        first, second = np.nonzero(expected[:count])
        once = first <= second % count
        found = [
            Exclusion(f"not {self._atom(a, 'X', 'Y')} <- {self._atom(b, 'X', 'Y')}", float(expected[a, b]))
            for a, b in zip(first[once].tolist(), second[once].tolist(), strict=True)
        ]
        irreflexive = np.flatnonzero(loops[:count]).tolist()
        found += [Exclusion(f"not {self._atom(a, 'X', 'X')}", float(loops[a])) for a in irreflexive]
        found.sort(key=lambda x: -x.expected)
        return Table(found[:k], Exclusion._fields, f"exclusions of {self.graph.name}")

    def _path_text(self, label: int, first: int, second: int) -> str:
        if second == self._edges.labels:
            body = self._atom(first, "X", "Y")
        else:
            body = f"{self._atom(first, 'X', 'A')}, {self._atom(second, 'A', 'Y')}"
        return f"{self._atom(label, 'X', 'Y')} <- {body}"

    def _constant_text(self, label: int, feature: int, entity: int) -> str:
        edges, names = self._edges, self.graph.entities
        domain = feature - len(edges.source)
        body = (domain, "A") if domain >= 0 else (int(edges.inverse[feature]), names[edges.source[feature]])
        return f"{self._atom(label, 'X', names[entity])} <- {self._atom(body[0], 'X', body[1])}"

    def _atom(self, label: int, source: str, target: str) -> str:
        """Returns an edge as text, such as `capital(X, Y)`."""
        inverse, relation = divmod(label, self.num_relations)
        ends = (target, source) if inverse else (source, target)
        return f"{self.graph.relations[relation]}({', '.join(ends)})"

    def _mine_paths(self, deadline: float) -> None:
        """Collects the rules without constants: rows of head label, first and second label (2R: none), hits, body."""
        edges = self._edges
        found = [self._chosen(edges.labels, *edges.one_step)]
        cost = np.bincount(edges.label, edges.paths, edges.labels)
        for first in np.argsort(cost, kind="stable").tolist():
            if time.monotonic() > deadline:
                self.complete = False
                break
            found.append(self._chosen(first, *edges.count_two_steps(first)))
        found[0][:, [1, 2]] = found[0][:, [2, 1]]
        rules = np.concatenate(found)
        self._paths = rules[np.argsort(rules[:, 0], kind="stable")]

    def _chosen(self, first: int, body: np.ndarray, hits: sparse.csr_matrix) -> np.ndarray:
        found = hits.tocoo()
        good = (found.data >= MIN_HITS) & (confidence(found.data, body[found.row]) >= self.min_confidence)
        second, label = found.row[good], found.col[good]
        return np.stack([label, np.full(len(label), first), second, found.data[good], body[second]], 1)

    def _mine_constants(self, deadline: float) -> None:
        """Collects the rules with constants: for each label of the head the hits of features and entities.

        Behind the features of `Edges` there is one for each label: to have an edge with it.
        """
        edges = self._edges
        domains = incidence(edges.source, edges.label, (self.num_entities, edges.labels))
        self._features = sparse.hstack([edges.features, domains]).tocsr()
        self._bodies = np.asarray(self._features.sum(0)).ravel()
        self._constants: dict[int, _Rows] = {}  # hits of entities, by feature
        self._by_entity: dict[int, _Rows] = {}  # hits of features, by entity
        by_label = np.argsort(edges.label, kind="stable")
        for rows in np.split(by_label, np.flatnonzero(np.diff(edges.label[by_label])) + 1):
            if not len(rows):
                continue
            if time.monotonic() > deadline:
                self.complete = False
                break
            label = int(edges.label[rows[0]])
            found = (self._features[edges.source[rows]].T @ edges.targets[rows]).tocoo()
            good = (found.data >= MIN_HITS) & (confidence(found.data, self._bodies[found.row]) >= self.min_confidence)
            feature, entity, hits = found.row[good], found.col[good], found.data[good]
            own = np.minimum(feature, len(edges.source) - 1)
            other = (edges.source[own] != entity) | (edges.inverse[own] != label) | (feature != own)
            feature, entity, hits = feature[other], entity[other], hits[other]
            self._constants[label] = _Rows.of(feature, entity, hits, self.num_entities)
            self._by_entity[label] = _Rows.of(entity, feature, hits, self._features.shape[1])
        self._having = self._features.T.tocsr()

    @property
    def parts(self) -> tuple[NumpyModel, NumpyModel]:
        """The rules without exclusions, and the exclusions: what `Pool` weights."""
        return NumpyModel(self.graph, self._supported), self.exclusions

    def _with_exclusions(self, triples: np.ndarray, side: int) -> np.ndarray:
        return self._supported(triples, side) + EXCLUDED * self.exclusions.excluded(triples, side)

    def _supported(self, triples: np.ndarray, side: int) -> np.ndarray:
        scores = np.zeros((len(triples), self.num_entities), np.float32)
        known, labels = self._edges.queries(triples, side)
        for label in np.unique(labels).tolist():
            (chosen,) = np.nonzero(labels == label)
            for part in np.array_split(chosen, -(-len(chosen) // QUERIES)):
                row, entity, value = self._combined(*self._predicted(label, known[part]))
                scores[part[row], entity] = value
        return scores

    def _predicted(self, label: int, entities: np.ndarray) -> list[np.ndarray]:
        """Returns what each rule predicts: place in `entities`, predicted entity, group of the rule, confidence."""
        edges = self._edges
        rules = self._paths[slice(*np.searchsorted(self._paths[:, 0], [label, label + 1]))]
        # First and second labels of the rules are numbered from 1: a table of all labels may not fit into memory.
        used = np.zeros((2, edges.labels + 1), np.int64)
        used[0, rules[:, 1]] = used[1, rules[:, 2]] = 1
        places = used * used.cumsum(1)
        table = np.zeros(places.max(1) + 1, np.float32)
        table[places[0, rules[:, 1]], places[1, rules[:, 2]]] = confidence(rules[:, 3], rules[:, 4])
        place, rows = edges.rows_of(entities)
        begins = places[0, edges.label[rows]] > 0
        place, rows = place[begins], rows[begins]
        labels, steps = edges.label[rows], edges.targets[rows].tocoo()
        first = places[0, labels]
        values = table[first[steps.row], places[1, edges.labels]]
        single = values > 0
        found = [[x[single] for x in (place[steps.row], steps.col, labels[steps.row], values)]]
        for at, second, target in edges.two_steps(rows):
            values = table[first[at], places[1, second]]
            at, target, values = at[values > 0], target[values > 0], values[values > 0]
            found.append([place[at], target, labels[at], values])
        if label in self._constants:
            found.append(self._predicted_constants(label, entities))
        inverse = (label + self.num_relations) % edges.labels
        if inverse in self._by_entity:
            found.append(self._predicted_having(inverse, entities))
        return [np.concatenate(x) for x in zip(*found, strict=True)]

    def _predicted_constants(self, label: int, entities: np.ndarray) -> list[np.ndarray]:
        """Returns the constants of the rules whose body holds for `entities`, and those that are frequent."""
        features, frequent = self._features[entities].tocoo(), len(self._edges.source) + label
        others = features.col != frequent
        place = np.append(features.row[others], np.arange(len(entities)))
        feature = np.append(features.col[others], np.full(len(entities), frequent))
        row, entity, hits = self._constants[label].take(feature)
        values = confidence(hits, self._bodies[feature[row]])
        return [place[row], entity, np.full(len(row), self._edges.labels), values]

    def _predicted_having(self, label: int, entities: np.ndarray) -> list[np.ndarray]:
        """Returns the entities for which the body of a rule holds whose constant is one of `entities`."""
        row, feature, hits = self._by_entity[label].take(entities)
        values = confidence(hits, self._bodies[feature])
        having = self._having[feature].tocoo()
        return [row[having.row], having.col, np.full(having.nnz, self._edges.labels + 1), values[having.row]]

    def _combined(
        self, row: np.ndarray, entity: np.ndarray, group: np.ndarray, value: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns for each pair of row and entity -log Π (1 - confidence) over the best rules of the best groups."""
        groups, most = self._edges.labels + 2, 2**BITS - 1
        keys = (row * self.num_entities + entity) * groups + group  # int64
        keys = np.sort(keys << BITS | (most - np.minimum(np.rint(value * most), most - 1)).astype(np.int64))
        keys = keys[np.diff(keys >> BITS, prepend=-1) != 0]  # the best of each group
        pairs = (keys >> BITS) // groups
        keys = np.sort(pairs << BITS | (keys & most))
        pairs = keys >> BITS
        starts = np.flatnonzero(np.diff(pairs, prepend=-1))
        places = np.arange(len(keys)) - np.repeat(starts, np.diff(starts, append=len(keys)))
        values = np.where(places < TOP, -np.log1p((keys & most) / most - 1), 0)
        sums = np.add.reduceat(values, starts) if len(starts) else values
        return *np.divmod(pairs[starts], self.num_entities), sums
