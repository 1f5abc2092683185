"""The data sets that have a name, and which of them are available without a download."""

from typing import Any

from jobi_tf.datasets import archives, cache
from jobi_tf.datasets.catalogue import DATASETS, WORLD, DataSet
from jobi_tf.datasets.loading import read_world


def listing() -> list[dict[str, Any]]:
    """Returns facts about all data sets that have a name; changes nothing.

    Returns:
        For each data set its `name`, `description`, numbers of `entities` and `relations`, the number of `triples` of
        each split, its `state` (`included`, `prepared`, `archive found` or `to download`) and its `citation`.
    """
    world = read_world()
    included = {
        "name": WORLD,
        "description": "Facts about the countries of the world; needs no download.",
        "entities": world.num_entities,
        "relations": world.num_relations,
        "triples": {split: len(triples) for split, triples in world.splits.items()},
        "state": "included",
        "citation": "",
    }
    return [included, *({key: _facts(x)[key] for key in included} for x in DATASETS.values())]


def _facts(dataset: DataSet) -> dict[str, Any]:
    if cache.graph_folder(dataset.name).exists():
        state = "prepared"
    else:
        state = "archive found" if archives.find(dataset) else "to download"
    return {**vars(dataset), "state": state}
