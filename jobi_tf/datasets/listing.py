"""The data sets that have a name, and which of them are available without a download."""

from dataclasses import dataclass

from jobi_tf.data.graph import SPLITS
from jobi_tf.datasets import archives, cache
from jobi_tf.datasets.catalogue import DATASETS, WORLD
from jobi_tf.datasets.loading import read_world


@dataclass(frozen=True)
class Entry:
    """A data set that has a name.

    Args:
        name: its name on the command line.
        description: what it holds.
        entities: number of entities.
        relations: number of relations.
        triples: number of triples of each split.
        state: `included`, `prepared`, `archive found` or `to download`.
        citation: the publications to cite.
    """

    name: str
    description: str
    entities: int
    relations: int
    triples: dict[str, int]
    state: str
    citation: str


def listing() -> list[Entry]:
    """Returns all data sets that have a name; changes nothing."""
    world = read_world()
    counts = world.num_entities, world.num_relations, {split: len(world.splits[split]) for split in SPLITS}
    entries = [Entry(WORLD, "Facts about the countries of the world; needs no download.", *counts, "included", "")]
    for name, dataset in DATASETS.items():
        if cache.graph_folder(name).exists():
            state = "prepared"
        else:
            state = "archive found" if archives.find(dataset) else "to download"
        counts = dataset.entities, dataset.relations, dict(dataset.triples)
        entries.append(Entry(name, dataset.description, *counts, state, dataset.citation))
    return entries
