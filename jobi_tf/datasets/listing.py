"""The data sets that have a name, and which of them are at hand."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from jobi_tf.data.graph import SPLITS
from jobi_tf.datasets import archives, cache
from jobi_tf.datasets.catalogue import DATASETS, WORLD
from jobi_tf.datasets.preparation import read_world

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Entry:
    """One line of the list.

    Args:
        name: how the command line calls the data set.
        description: what it is.
        entities: number of entities.
        relations: number of relations.
        triples: number of triples of each split.
        state: `comes with jobi-tf`, `prepared`, `archive found` or `to download`.
        citation: the publication to cite.
    """

    name: str
    description: str
    entities: int
    relations: int
    triples: dict[str, int]
    state: str
    citation: str

    def as_dict(self) -> dict:
        """Returns everything as plain values, for JSON."""
        return asdict(self)


def listing() -> list[Entry]:
    """Returns all data sets that have a name; changes nothing."""
    world = read_world()
    entries = [
        Entry(
            WORLD,
            "Facts about the countries of the world; needs no download.",
            world.num_entities,
            world.num_relations,
            {split: len(world.splits[split]) for split in SPLITS},
            "comes with jobi-tf",
            "",
        )
    ]
    for name, dataset in DATASETS.items():
        if cache.graph_folder(name).exists():
            state = "prepared"
        else:
            state = "archive found" if archives.find(dataset) else "to download"
        facts = dataset.description, dataset.entities, dataset.relations, dict(dataset.triples)
        entries.append(Entry(name, *facts, state, dataset.citation))
    return entries


def table(entries: list[Entry]) -> "Table":
    """Returns the list for people."""
    from rich.table import Table

    result = Table("name", "entities", "relations", *SPLITS, "state", "description")
    for column in result.columns[1:6]:
        column.justify = "right"
    for entry in entries:
        counts = (entry.entities, entry.relations, *(entry.triples[split] for split in SPLITS))
        result.add_row(entry.name, *(f"{count:,}" for count in counts), entry.state, entry.description)
    return result
