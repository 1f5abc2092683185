"""Writing triples as text."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.errors import UsageError
from jobi_tf.files import new_folder

_ROWS = 1 << 18


def write_text(graph: Graph, folder: Path) -> None:
    """Writes `train.tsv`, `valid.tsv` and `test.tsv`, which `load_graph(folder)` reads.

    The folder appears complete or not at all.

    Raises:
        UsageError: the folder exists.
    """
    require_new(folder)
    with new_folder(folder) as beside:
        for split, triples in graph.splits.items():
            write_triples(beside / f"{split}.tsv", triples, graph.entities.names, graph.relations.names)


def require_new(folder: Path) -> None:
    """Raises `UsageError` if a folder for triples exists already."""
    if folder.exists():
        raise UsageError(f"expected a new folder for the triples, {folder} exists")


def write_triples(path: Path, triples: np.ndarray, entities: Sequence[str], relations: Sequence[str]) -> None:
    """Writes triples, int32 [N, 3], as lines with tabs between the names."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for start in range(0, len(triples), _ROWS):
            rows = triples[start : start + _ROWS].tolist()
            file.writelines(f"{entities[h]}\t{relations[r]}\t{entities[t]}\n" for h, r, t in rows)
