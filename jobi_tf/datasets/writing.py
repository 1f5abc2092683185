"""Writing graphs: as text, or with training triples in shards."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import Occurrences
from jobi_tf.data.shards import ShardWriter, blocks
from jobi_tf.datasets.catalogue import NAMES
from jobi_tf.datasets.loading import prepare
from jobi_tf.datasets.reading import Columns, TripleReader, find_splits
from jobi_tf.errors import DataError, UsageError, check_at_least
from jobi_tf.files import check_new, new_folder

_ROWS = 1 << 18


def write_text(graph: Graph, folder: Path) -> None:
    """Writes `train.tsv`, `valid.tsv` and `test.tsv` into a new folder, which appears complete or not at all."""
    check_new(folder)
    with new_folder(folder) as beside:
        for split, triples in graph.splits.items():
            write_triples(beside / f"{split}.tsv", triples, graph.entities.names, graph.relations.names)


def write_triples(path: Path, triples: np.ndarray, entities: Sequence[str], relations: Sequence[str]) -> None:
    """Writes triples, int32 [N, 3], as lines with tabs between the names, which `TripleReader` reads back.

    There is a header only where the first triple would be taken for one, or its first letter for a byte order mark. A
    name with a tab, as names of CSV files may have, raises a `DataError`.
    """
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for head, relation, tail in triples[:1].tolist():
            first = [entities[head], relations[relation], entities[tail]]
            if Columns().locate(first, str(path))[0] or first[0].startswith("\ufeff"):
                file.write("head\trelation\ttail\n")
        for part in blocks(triples, _ROWS):
            rows = part.tolist()
            text = "".join([f"{entities[h]}\t{relations[r]}\t{entities[t]}\n" for h, r, t in rows])
            if text.count("\t") > 2 * len(rows):
                odd = next(line for line in text.split("\n") if line.count("\t") > 2)
                raise DataError(f"expected names without tabs, which separate the fields, got the line {odd!r}")
            file.write(text)


def write_shards(dataset: str | Path, folder: Path, files: int, **options: Any) -> Graph:
    """Writes a graph whose training triples are in files of fixed records, which `load_graph(folder)` opens.

    Of a folder of text, the training triples are read a few at a time: memory holds the names, the distinct pairs of
    a relation and an entity, and the other two splits. Other data sets are prepared in memory first.

    Args:
        dataset: as for `load_graph`.
        folder: what to write; it appears complete or not at all.
        files: largest number of files.
        **options: as for `load_graph`, but triples cannot have weights.
    """
    check_new(folder)
    check_at_least(1, files=files)
    if options.get("weights") is not None:
        raise UsageError(f"expected triples without weights for shards, got weights={options['weights']!r}")
    path = Path(os.path.expanduser(dataset))
    in_parts = path.is_dir() and str(dataset) not in NAMES and not (path / "graph.json").exists()
    in_parts &= options.get("split") is None and options.get("archive") is None  # which `prepare` rejects
    with new_folder(folder) as beside:
        writer = ShardWriter(beside, files)
        if in_parts:
            reader = TripleReader(Columns(options.get("columns"), header=options.get("header")))
            parts = {
                name: reader.read_file(file, writer.write if name == "train" else None)
                for name, file in find_splits(path).items()
            }
            graph = reader.graph(path.absolute().name, parts)
        else:
            graph = prepare(dataset, **options).graph
            if graph.weights:
                raise UsageError(f"expected triples without weights for shards, got {dataset}, which has them")
            for part in blocks(graph.train):
                writer.write(part)
        shards = writer.finish()
        seen = Occurrences.from_blocks(shards.blocks(), graph.num_entities, graph.num_relations).seen
        # Blocks are dealt out to files, so that rows are no longer those of the source.
        sources = {name: source for name, source in graph.sources.items() if name != "train"}
        splits = {**graph.splits, "train": shards}
        replace(graph, splits=splits, sources=sources, seen=(seen.offsets, seen.entities)).write(beside)
    return Graph.open(folder)
