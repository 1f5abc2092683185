"""Statistics of a graph: sizes, degrees, and the categories of its relations."""

from dataclasses import dataclass

import numpy as np

from jobi_tf.data.graph import SPLITS, Graph

CATEGORIES = ("1-1", "1-N", "N-1", "N-N")
_MANY = 1.5
"""As Bordes et al. (2013): a side is N if an entity of the other side has this many partners or more on average."""


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
    """Statistics of one relation, over its training triples.

    Args:
        name: the relation.
        triples: number of triples.
        heads: number of distinct heads.
        tails: number of distinct tails.
        category: `1-1`, `1-N` (a head has many tails), `N-1`, `N-N`; or `unseen` in training.
    """

    name: str
    triples: int
    heads: int
    tails: int
    category: str


@dataclass(frozen=True)
class Statistics:
    """Statistics of a graph.

    Args:
        name: the graph.
        entities: number of entities over all splits.
        relations: number of relations over all splits.
        triples: number of triples of each split.
        degree: number of training triples in which an entity occurs, as head or tail, over all entities.
        heads: number of distinct heads of a relation in training.
        tails: number of distinct tails of a relation in training.
        categories: for each category the number of its `relations`, and its share of the triples of each split.
        by_relation: the statistics of every relation, those with the most triples first.
    """

    name: str
    entities: int
    relations: int
    triples: dict[str, int]
    degree: Spread
    heads: Spread
    tails: Spread
    categories: dict[str, dict[str, float]]
    by_relation: tuple[RelationStatistics, ...]


def statistics(graph: Graph) -> Statistics:
    """Computes the statistics of a graph."""
    head, relation, tail = graph.train.astype(np.int64).T
    triples = np.bincount(relation, minlength=graph.num_relations)
    heads, tails = (_distinct(graph, relation, entity) for entity in (head, tail))
    many_heads, many_tails = (triples >= _MANY * np.maximum(partners, 1) for partners in (tails, heads))
    category = np.where(triples > 0, np.array(CATEGORIES)[2 * many_heads + many_tails], "unseen")
    shown = [*CATEGORIES, *(["unseen"] if "unseen" in category else [])]
    return Statistics(
        name=graph.name,
        entities=graph.num_entities,
        relations=graph.num_relations,
        triples={split: len(graph.splits[split]) for split in SPLITS},
        degree=Spread.of(np.bincount(np.concatenate([head, tail]), minlength=graph.num_entities)),
        heads=Spread.of(heads),
        tails=Spread.of(tails),
        categories={kind: _shares(graph, category == kind) for kind in shown},
        by_relation=tuple(
            RelationStatistics(graph.relations[i], int(triples[i]), int(heads[i]), int(tails[i]), str(category[i]))
            for i in np.argsort(-triples, kind="stable").tolist()
        ),
    )


def relation_categories(graph: Graph) -> np.ndarray:
    """Returns the category of each relation by its training triples, or `unseen`: str [relations]."""
    by_name = {row.name: row.category for row in statistics(graph).by_relation}
    return np.array([by_name[name] for name in graph.relations.names])


def _distinct(graph: Graph, relation: np.ndarray, entity: np.ndarray) -> np.ndarray:
    """Returns how many different entities each relation has: int64 [relations]."""
    pairs = np.unique(relation * graph.num_entities + entity)
    return np.bincount(pairs // graph.num_entities, minlength=graph.num_relations)


def _shares(graph: Graph, chosen: np.ndarray) -> dict[str, float]:
    """Returns the number of the chosen relations, bool [relations], and their share of the triples of each split."""
    shares = {split: float(chosen[graph.splits[split][:, 1]].mean()) for split in SPLITS}
    return {"relations": int(chosen.sum()), **shares}
