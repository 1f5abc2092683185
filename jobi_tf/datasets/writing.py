"""Writing triples as text."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.datasets.reading import Columns
from jobi_tf.errors import DataError
from jobi_tf.files import check_new, new_folder

_ROWS = 1 << 18


def write_text(graph: Graph, folder: Path) -> None:
    """Writes `train.tsv`, `valid.tsv` and `test.tsv`, which `load_graph(folder)` reads.

    The folder appears complete or not at all.

    Raises:
        UsageError: the folder has files already.
    """
    check_new(folder)
    with new_folder(folder) as beside:
        for split, triples in graph.splits.items():
            write_triples(beside / f"{split}.tsv", triples, graph.entities.names, graph.relations.names)


def write_triples(path: Path, triples: np.ndarray, entities: Sequence[str], relations: Sequence[str]) -> None:
    """Writes triples, int32 [N, 3], as lines with tabs between the names, which `TripleReader` reads back.

    There is a header only where the first triple would be taken for one, or its first letter for a byte order mark.

    Raises:
        DataError: a name has a tab, as names of CSV files may.
    """
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for head, relation, tail in triples[:1].tolist():
            first = [entities[head], relations[relation], entities[tail]]
            if Columns().locate(first, str(path))[0] or first[0].startswith("\ufeff"):
                file.write("head\trelation\ttail\n")
        for start in range(0, len(triples), _ROWS):
            rows = triples[start : start + _ROWS].tolist()
            text = "".join([f"{entities[h]}\t{relations[r]}\t{entities[t]}\n" for h, r, t in rows])
            if text.count("\t") > 2 * len(rows):
                odd = next(line for line in text.split("\n") if line.count("\t") > 2)
                raise DataError(f"expected names without tabs, which separate the fields, got the line {odd!r}")
            file.write(text)
