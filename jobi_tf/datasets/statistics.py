"""Statistics of a graph: sizes, degrees, and the categories of its relations."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.occurrences import HEAD, SIDES, TAIL, Occurrences, both_sides, distinct_triples, entity_degrees
from jobi_tf.data.shards import Shards, blocks

CATEGORIES = ("1-1", "1-N", "N-1", "N-N")
_MANY = 1.5  # mean number of partners of an entity from which the other side is N (Bordes et al. 2013)


@dataclass(frozen=True)
class Spread:
    """Mean, median and maximum of some numbers."""

    mean: float
    median: float
    max: int

    @classmethod
    def of(cls, values: np.ndarray) -> "Spread":
        """Computes them for int64 [N]."""
        return cls(float(values.mean()), float(np.median(values)), int(values.max()))


@dataclass(frozen=True)
class RelationStatistics:
    """Numbers of triples, distinct heads and distinct tails of one relation in training.

    Its category is `1-1`, `1-N` (a head has many tails), `N-1`, `N-N`; or `unseen` in training.
    """

    name: str
    triples: int
    heads: int
    tails: int
    category: str


@dataclass(frozen=True)
class Statistics:
    """Statistics of a graph: sizes over all splits, and what is true of its training triples."""

    name: str
    entities: int
    relations: int
    triples: dict[str, int]
    degree: Spread  # number of triples in which an entity occurs, as head or tail, over all entities
    heads: Spread  # number of distinct heads of a relation
    tails: Spread  # number of distinct tails of a relation
    categories: dict[str, dict[str, float]]  # of each the number of `relations`, and the share of each split's triples
    by_relation: tuple[RelationStatistics, ...]  # those with the most triples first


def statistics(graph: Graph) -> Statistics:
    """Computes the statistics of a graph."""
    triples, heads, tails, category = _by_relation(graph)
    held_out = {split: _triples_of_relations(graph, split) for split in SPLITS if split != "train"}
    categories = {}
    for kind in [*CATEGORIES, *(["unseen"] if "unseen" in category else [])]:
        chosen = category == kind
        counts = {split: int(found[chosen].sum()) for split, found in {"train": triples, **held_out}.items()}
        shares = {split: count / max(1, len(graph.splits[split])) for split, count in counts.items()}
        categories[kind] = {"relations": int(chosen.sum()), **shares}
    return Statistics(
        name=graph.name,
        entities=graph.num_entities,
        relations=graph.num_relations,
        triples={split: len(graph.splits[split]) for split in SPLITS},
        degree=Spread.of(entity_degrees(graph.train, graph.num_entities)),
        heads=Spread.of(heads),
        tails=Spread.of(tails),
        categories=categories,
        by_relation=tuple(
            RelationStatistics(graph.relations[i], int(triples[i]), int(heads[i]), int(tails[i]), str(category[i]))
            for i in np.argsort(-triples, kind="stable").tolist()
        ),
    )


def relation_categories(graph: Graph) -> np.ndarray:
    """Returns the category of each relation by its training triples, or `unseen`: str [relations]."""
    return _by_relation(graph)[-1]


def entity_types(graph: Graph, entities: np.ndarray) -> list[str]:
    """Returns the relation and side with which each of some entities, int [N], occurs most often in training.

    They are N texts such as `capital tail`, or `unseen`.
    """
    train = np.asarray(graph.train)
    labels = np.concatenate([side * graph.num_relations + train[:, 1] for side in (HEAD, TAIL)])
    shape = graph.num_entities, len(SIDES) * graph.num_relations
    counts = sparse.csr_matrix((np.ones(len(labels), np.int32), (both_sides(train), labels)), shape)[entities]
    names = [f"{relation} {side}" for side in SIDES for relation in graph.relations.names][::-1]
    best, seen = np.ravel(counts[:, ::-1].argmax(1)), np.ravel(counts.sum(1)) > 0
    return [names[x] if y else "unseen" for x, y in zip(best.tolist(), seen.tolist(), strict=True)]


def _triples_of_relations(graph: Graph, split: str) -> np.ndarray:
    """Returns the number of triples of each relation in a split: int64 [relations]."""
    return np.sum([np.bincount(x[:, 1], minlength=graph.num_relations) for x in blocks(graph.splits[split])], 0)


def _by_relation(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the training triples, distinct heads, distinct tails and category of each relation: [relations] each."""
    triples = _triples_of_relations(graph, "train")
    heads, tails = np.diff(Occurrences.of_graph(graph).seen.offsets).reshape(len(SIDES), -1)
    distinct = triples  # in shards, which may be larger than the memory, repeated triples count too
    if not isinstance(graph.train, Shards):
        distinct = np.bincount(graph.train[distinct_triples(graph.train)[0], 1], minlength=graph.num_relations)
    many_heads, many_tails = (distinct >= _MANY * np.maximum(partners, 1) for partners in (tails, heads))
    category = np.where(triples > 0, np.array(CATEGORIES)[2 * many_heads + many_tails], "unseen")
    return triples, heads, tails, category
