"""Writing a graph as text."""

import os
import shutil
from pathlib import Path

from jobi_tf.data.graph import Graph
from jobi_tf.errors import UsageError

_ROWS = 1 << 18


def write_text(graph: Graph, folder: Path) -> None:
    """Writes `train.tsv`, `valid.tsv` and `test.tsv`, which `load_graph(folder)` reads.

    The folder appears complete or not at all.

    Raises:
        UsageError: the folder exists.
    """
    if folder.exists():
        raise UsageError(f"expected a new folder for the triples, {folder} exists")
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        entities, relations = graph.entities.names, graph.relations.names
        for split, triples in graph.splits.items():
            with (beside / f"{split}.tsv").open("w", encoding="utf-8", newline="\n") as file:
                for start in range(0, len(triples), _ROWS):
                    rows = triples[start : start + _ROWS].tolist()
                    file.writelines(f"{entities[h]}\t{relations[r]}\t{entities[t]}\n" for h, r, t in rows)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
