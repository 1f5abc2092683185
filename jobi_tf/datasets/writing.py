"""Writing triples as text."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.errors import UsageError

_ROWS = 1 << 18


def write_text(graph: Graph, folder: Path) -> None:
    """Writes `train.tsv`, `valid.tsv` and `test.tsv`, which `load_graph(folder)` reads.

    The folder appears complete or not at all.

    Raises:
        UsageError: the folder exists.
    """
    with new_folder(folder) as beside:
        for split, triples in graph.splits.items():
            write_triples(beside / f"{split}.tsv", triples, graph.entities.names, graph.relations.names)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Gives a folder to fill, which becomes `folder` when all succeeded; otherwise nothing stays behind.

    Raises:
        UsageError: the folder exists.
    """
    if folder.exists():
        raise UsageError(f"expected a new folder for the triples, {folder} exists")
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        yield beside
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def write_triples(path: Path, triples: np.ndarray, entities: Sequence[str], relations: Sequence[str]) -> None:
    """Writes triples, int32 [N, 3], with TABs between their names."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for start in range(0, len(triples), _ROWS):
            rows = triples[start : start + _ROWS].tolist()
            file.writelines(f"{entities[h]}\t{relations[r]}\t{entities[t]}\n" for h, r, t in rows)
