"""What a graph itself says for a triple: rules and paths of length 1 and 2, and similar training triples."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.ranges import ranges
from jobi_tf.models.jobi import JoBi

SAMPLE = 2000  # facts or paths by which the confidence of a rule is estimated
PATHS = 2000  # largest number of paths of length 2


class RulePath(NamedTuple):
    """A path from head to tail in the training triples, and the rule that it is an instance of.

    Attributes:
        path: the path, such as `Bern -[capital of]-> Switzerland`.
        confidence: share of the pairs of entities with such a path between which the relation holds in training.
        support: number of these pairs with the relation, in a sample of at most `SAMPLE`.
    """

    path: str
    confidence: float
    support: int


class Similar(NamedTuple):
    """A training triple of the same relation, and the mean cosine of its head and tail with those of a triple."""

    head: str
    tail: str
    similarity: float


class Edges:
    """The training triples of a graph as edges in both directions: edge r + R leads from tail to head.

    Args:
        graph: the graph.
        without: a triple that is not an edge, int [3].
    """

    def __init__(self, graph: Graph, without: np.ndarray):
        triples = np.asarray(graph.train, np.int64)
        triples = triples[(triples != without).any(1)]
        head, relation, tail = triples.T
        self.graph, self.labels = graph, 2 * graph.num_relations
        source, label = np.concatenate([head, tail]), np.concatenate([relation, relation + graph.num_relations])
        target = np.concatenate([tail, head])
        order = np.lexsort((target, label, source))
        self.source, self.label, self.target = source[order], label[order], target[order]
        self._keys = self.source * self.labels + self.label
        self._facts = self._keys * graph.num_entities + self.target  # ascending
        self._by_label = np.argsort(self.label, kind="stable")
        self._starts = np.searchsorted(self.label[self._by_label], np.arange(self.labels + 1))

    def of(self, entity: int) -> slice:
        """Returns the edges that begin at an entity."""
        return slice(*np.searchsorted(self.source, [entity, entity + 1]).tolist())

    def with_label(self, label: int, rng: np.random.Generator) -> np.ndarray:
        """Returns at most `SAMPLE` edges with a label, in random order."""
        edges = self._by_label[self._starts[label] : self._starts[label + 1]]
        return rng.permutation(edges)[:SAMPLE]

    def hold(self, source: np.ndarray, relation: int, target: np.ndarray) -> np.ndarray:
        """Returns which facts (source, relation, target) are edges, bool [N]."""
        facts = (source * self.labels + relation) * self.graph.num_entities + target
        places = np.minimum(np.searchsorted(self._facts, facts), len(self._facts) - 1)
        return self._facts[places] == facts

    def follow(self, entities: np.ndarray, label: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns where edges with a label lead: for each of them the place in `entities`, and its target."""
        keys = entities * self.labels + label
        starts, ends = np.searchsorted(self._keys, keys), np.searchsorted(self._keys, keys, "right")
        return np.repeat(np.arange(len(entities)), ends - starts), self.target[ranges(starts, ends - starts)]

    def confidence(self, labels: tuple[int, ...], relation: int, rng: np.random.Generator) -> tuple[float, int]:
        """Returns the share of pairs that a path with these labels joins between which the relation holds, and how
        many these are.
        """
        edges = self.with_label(labels[0], rng)
        source, target = self.source[edges], self.target[edges]
        for label in labels[1:]:
            place, target = self.follow(target, label)
            pairs = np.stack([source[place], target], 1)
            source, target = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).reshape(-1, 2).T
        if not len(source):
            return 0.0, 0
        support = int(self.hold(source, relation, target).sum())
        return support / len(source), support

    def name(self, label: int) -> str:
        """Returns an edge as text, such as `-[capital]->`, or `<-[capital]-` against its direction."""
        relations = self.graph.relations
        if label < len(relations):
            return f"-[{relations[label]}]->"
        return f"<-[{relations[label - len(relations)]}]-"


def paths(graph: Graph, triple: np.ndarray, k: int = 5, seed: int = 0) -> list[RulePath]:
    """Returns paths of length 1 and 2 that speak for a triple, int [3], those of the most confident rules first.

    The triple itself is not a path. The confidence of a rule is that of AMIE (Galárraga et al. 2013) without their
    assumption of partial completeness, estimated on a sample. Of several paths by one rule the first is returned.
    """
    head, relation, tail = np.asarray(triple, np.int64).tolist()
    edges, rng, names = Edges(graph, np.asarray(triple)), np.random.default_rng(seed), graph.entities
    found: dict[tuple[int, ...], str] = {}
    for labels, between in _connections(edges, head, tail):
        middle = f" {names[between]} {edges.name(labels[1])}" if between is not None else ""
        found.setdefault(labels, f"{names[head]} {edges.name(labels[0])}{middle} {names[tail]}")
    rated = [RulePath(text, *edges.confidence(labels, relation, rng)) for labels, text in found.items()]
    return sorted((x for x in rated if x.support), key=lambda x: (-x.confidence, -x.support))[:k]


def _connections(edges: Edges, head: int, tail: int) -> Iterator[tuple[tuple[int, ...], int | None]]:
    """Returns the labels of each path from head to tail, and the entity between them."""
    begin, end = edges.of(head), edges.of(tail)
    for label in edges.label[begin][edges.target[begin] == tail].tolist():
        yield (label,), None
    between = np.intersect1d(edges.target[begin], edges.target[end])
    seen = 0
    for entity in between[(between != head) & (between != tail)].tolist():
        for first in edges.label[begin][edges.target[begin] == entity].tolist():
            for back in edges.label[end][edges.target[end] == entity].tolist():
                # An edge from the tail, followed against its direction.
                yield (first, (back + edges.labels // 2) % edges.labels), entity
                if (seen := seen + 1) >= PATHS:
                    return


def similar_triples(model: JoBi, graph: Graph, triple: np.ndarray, k: int = 5) -> list[Similar]:
    """Returns the training triples of the same relation whose head and tail are most like those of a triple."""
    triples = graph.train[graph.train[:, 1] == triple[1]]
    triples = np.asarray(triples[(triples != triple).any(1)])
    if not len(triples):
        return []
    cosines = []
    for column in (0, 2):
        rows = model.entities.rows(np.append(triples[:, column], triple[column])).numpy()
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
        cosines.append(rows[:-1] @ rows[-1])
    similarity = (cosines[0] + cosines[1]) / 2
    best, names = np.argsort(-similarity, kind="stable")[:k], graph.entities
    return [Similar(names[triples[i, 0]], names[triples[i, 2]], float(similarity[i])) for i in best]
