"""What a graph itself says for a triple: rules and paths of length 1 and 2, and similar training triples."""

from typing import NamedTuple

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.evaluation.edges import Edges
from jobi_tf.evaluation.rules import confidence
from jobi_tf.models.jobi import JoBi


class RulePath(NamedTuple):
    """A path from head to tail in the training triples, and the rule that it is an instance of.

    Attributes:
        path: the path, such as `Bern -[capital of]-> Switzerland`.
        confidence: that of the rule, hits / (body + 5), where the body is the number of pairs of entities with such a
            path.
        support: its hits, the number of these pairs between which the relation holds in training.
    """

    path: str
    confidence: float
    support: int


class Similar(NamedTuple):
    """A training triple of the same relation, and the mean cosine of its head and tail with those of a triple."""

    head: str
    tail: str
    similarity: float


def paths(graph: Graph, triple: np.ndarray, k: int = 5) -> list[RulePath]:
    """Returns paths of length 1 and 2 that speak for a triple, int [3], those of the most confident rules first.

    The triple itself is not an edge. The rules are those of `jobi_tf.RuleModel`. Of several paths by one rule the first
    is returned.
    """
    train = np.asarray(graph.train)
    edges = Edges(train[(train != np.asarray(triple)).any(1)], graph.num_entities, graph.num_relations)
    head, relation, tail = np.asarray(triple, np.int64).tolist()
    found, names = [], graph.entities

    def rate(path: str, body: int, hits: int) -> None:
        if hits:
            found.append(RulePath(path, float(confidence(np.array(hits), np.array(body))), int(hits)))

    pairs, joined = edges.one_step
    _, rows = edges.rows_of(np.array([head]))
    for label in edges.label[rows][edges.targets[rows][:, [tail]].toarray()[:, 0] > 0].tolist():
        rate(f"{names[head]} {_edge(graph, label)} {names[tail]}", pairs[label], joined[label, relation])
    seconds: dict[int, list[int]] = {}
    for place, second, target in edges.two_steps(rows):
        for row, label in zip(rows[place[target == tail]].tolist(), second[target == tail].tolist(), strict=True):
            seconds.setdefault(row, []).append(label)
    for row, labels in seconds.items():
        pairs, joined = edges.count_two_steps(int(edges.label[row]))
        for label in labels:
            last = edges.row(tail, (label + graph.num_relations) % edges.labels)
            between = np.intersect1d(edges.targets[row].indices, edges.targets[last].indices)[0]
            steps = names[head], _edge(graph, edges.label[row]), names[between], _edge(graph, label), names[tail]
            rate(" ".join(steps), pairs[label], joined[label, relation])
    return sorted(found, key=lambda x: (-x.confidence, -x.support))[:k]


def _edge(graph: Graph, label: int) -> str:
    """Returns an edge as text, such as `-[capital]->`, or `<-[capital]-` against its direction."""
    inverse, relation = divmod(int(label), graph.num_relations)
    return f"<-[{graph.relations[relation]}]-" if inverse else f"-[{graph.relations[relation]}]->"


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
