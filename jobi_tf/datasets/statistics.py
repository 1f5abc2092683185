"""Figures of a graph: sizes, degrees, and what kinds of relations it has."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from jobi_tf.data.graph import SPLITS, Graph

if TYPE_CHECKING:
    from rich.table import Table

CATEGORIES = ("1-1", "1-N", "N-1", "N-N")
_MANY = 1.5
"""As Bordes et al. (2013): a side is N where an entity of the other side has this many partners or more on average."""


@dataclass(frozen=True)
class Spread:
    """How numbers are spread.

    Args:
        mean: their mean.
        median: their median.
        max: the largest.
    """

    mean: float
    median: float
    max: int


@dataclass(frozen=True)
class RelationStatistics:
    """Figures of one relation, over its training triples.

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
    """Figures of a graph.

    Args:
        name: the graph.
        entities: number of entities over all splits.
        relations: number of relations over all splits.
        triples: number of triples of each split.
        degree: in how many training triples an entity occurs, as head or tail, over all entities.
        heads: how many distinct heads a relation has in training.
        tails: how many distinct tails a relation has in training.
        categories: for each category the number of its relations, and its share of the triples of each split.
        by_relation: the figures of every relation, those with the most triples first.
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

    def as_dict(self) -> dict:
        """Returns everything as plain values, for JSON."""
        return asdict(self)

    def tables(self) -> "list[Table]":
        """Returns the figures for people, without those of each relation."""
        return [_sizes_table(self), _spreads_table(self), _categories_table(self)]


def statistics(graph: Graph) -> Statistics:
    """Returns the figures of a graph."""
    head, relation, tail = graph.train.astype(np.int64).T
    degree = np.bincount(np.concatenate([head, tail]), minlength=graph.num_entities)
    triples = np.bincount(relation, minlength=graph.num_relations)
    heads, tails = (_distinct_partners(graph, relation, entity) for entity in (head, tail))
    categories = _categories(triples, heads, tails)
    by_relation = [
        RelationStatistics(graph.relations[i], int(triples[i]), int(heads[i]), int(tails[i]), str(categories[i]))
        for i in np.argsort(-triples, kind="stable").tolist()
    ]
    kinds = [*CATEGORIES, *(["unseen"] if "unseen" in categories else [])]
    return Statistics(
        name=graph.name,
        entities=graph.num_entities,
        relations=graph.num_relations,
        triples={split: len(graph.splits[split]) for split in SPLITS},
        degree=_spread(degree),
        heads=_spread(heads),
        tails=_spread(tails),
        categories={kind: _share(graph, categories == kind) for kind in kinds},
        by_relation=tuple(by_relation),
    )


def _distinct_partners(graph: Graph, relation: np.ndarray, entity: np.ndarray) -> np.ndarray:
    """Returns how many different entities each relation has: int64 [relations]."""
    distinct = np.unique(relation * graph.num_entities + entity)
    return np.bincount(distinct // graph.num_entities, minlength=graph.num_relations)


def _categories(triples: np.ndarray, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
    """Returns the category of each relation: str [relations]."""
    many_heads = triples / np.maximum(tails, 1) >= _MANY
    many_tails = triples / np.maximum(heads, 1) >= _MANY
    names = np.array(CATEGORIES)[2 * many_heads + many_tails]
    return np.where(triples > 0, names, "unseen")


def _share(graph: Graph, chosen: np.ndarray) -> dict[str, float]:
    shares = {split: float(chosen[graph.splits[split][:, 1]].mean()) for split in SPLITS}
    return {"relations": int(chosen.sum()), **shares}


def _spread(values: np.ndarray) -> Spread:
    return Spread(float(values.mean()), float(np.median(values)), int(values.max()))


def _sizes_table(figures: Statistics) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table("", "number", title=escape(figures.name), title_justify="left")
    table.columns[1].justify = "right"
    table.add_row("entities", f"{figures.entities:,}")
    table.add_row("relations", f"{figures.relations:,}")
    for split, count in figures.triples.items():
        table.add_row(f"triples in {split}", f"{count:,}")
    return table


def _spreads_table(figures: Statistics) -> "Table":
    from rich.table import Table

    table = Table("in training", "mean", "median", "max", title_justify="left")
    for name, spread in (
        ("triples of an entity", figures.degree),
        ("distinct heads of a relation", figures.heads),
        ("distinct tails of a relation", figures.tails),
    ):
        table.add_row(name, f"{spread.mean:,.1f}", f"{spread.median:,.1f}", f"{spread.max:,}")
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _categories_table(figures: Statistics) -> "Table":
    from rich.table import Table

    table = Table("heads-tails", "relations", *(f"triples in {split}" for split in SPLITS), title_justify="left")
    for kind, row in figures.categories.items():
        table.add_row(kind, f"{row['relations']:,}", *(f"{row[split]:.1%}" for split in SPLITS))
    for column in table.columns[1:]:
        column.justify = "right"
    return table
