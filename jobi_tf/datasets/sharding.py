"""Graphs whose training triples are in shards: written in bounded memory, opened from a disk or a bucket."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import Occurrences
from jobi_tf.data.shards import ShardWriter, blocks
from jobi_tf.datasets import cache, reading
from jobi_tf.datasets.catalogue import NAMES
from jobi_tf.errors import JobiError, UsageError
from jobi_tf.files import check_new, new_folder


def write_shards(dataset: str | Path, folder: Path, files: int, **options: Any) -> Graph:
    """Writes a graph whose training triples are in files of fixed records, which `load_graph(folder)` opens.

    Of a folder of text, the training triples are read a few at a time: memory holds the names, the distinct pairs of
    a relation and an entity, and the other two splits. Other data sets are prepared in memory first.

    Args:
        dataset: as for `load_graph`.
        folder: what to write; it appears complete or not at all.
        files: largest number of files.
        **options: as for `load_graph`.

    Raises:
        UsageError: the folder has files already, or triples have weights.
        DataError: the data cannot be used.
    """
    from jobi_tf.datasets.loading import prepare  # which opens what is written here

    check_new(folder)
    if options.get("weights") is not None:
        raise UsageError(f"expected triples without weights for shards, got weights={options['weights']!r}")
    path = Path(dataset).expanduser()
    in_parts = path.is_dir() and str(dataset) not in NAMES and not (path / "graph.json").exists()
    in_parts &= options.get("split") is None and options.get("archive") is None  # which `prepare` rejects
    with new_folder(folder) as beside:
        with ShardWriter(beside, files) as writer:
            if in_parts:
                reader = reading.TripleReader(reading.Columns(options.get("columns"), header=options.get("header")))
                paths = reading.find_splits(path)
                splits = {
                    name: reader.read_file(file, writer.write if name == "train" else None)
                    for name, file in paths.items()
                }
                graph = reader.graph(path.absolute().name, splits)
            else:
                graph = prepare(dataset, **options).graph
                for part in blocks(graph.train):
                    writer.write(part)
        shards = writer.shards
        seen = Occurrences.from_blocks(shards.blocks(), graph.num_entities, graph.num_relations).seen
        # Blocks are dealt out to files, so that rows are no longer those of the source.
        sources = {name: source for name, source in graph.sources.items() if name != "train"}
        replace(
            graph,
            splits={**graph.splits, "train": shards},
            sources=sources,
            seen=(seen.offsets, seen.entities),
        ).write(beside)
    return Graph.open(folder)


def open_remote(url: str) -> Graph:
    """Opens a graph that `write_shards` wrote and that was copied to a file system of TensorFlow, `gs://bucket/graph`.

    All but the shards is copied to the cache.

    Raises:
        JobiError: it cannot be read.
    """
    import tensorflow as tf  # takes seconds

    try:
        meta = json.loads(tf.io.gfile.GFile(f"{url}/graph.json").read())
        shards = meta["shards"] | {"folder": url}
        key = "remote-" + hashlib.sha256(f"{url} {meta['fingerprint']}".encode()).hexdigest()[:16]
        cache.make_folder(cache.home())
        with TemporaryDirectory(prefix="tmp-", dir=cache.home()) as copied:

            def build() -> Graph:
                for name in set(tf.io.gfile.listdir(url)) - set(shards["files"]):
                    tf.io.gfile.copy(f"{url}/{name}", f"{copied}/{name}")
                Path(copied, "graph.json").write_text(json.dumps(meta | {"shards": shards}), encoding="utf-8")
                return Graph.open(Path(copied))

            return cache.open_or_build(key, build)[0]
    except tf.errors.OpError as error:
        raise JobiError(f"{url}: expected a graph in shards: {error.message}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise JobiError(f"{url}: expected a graph in shards, got another graph.json: {error}") from None
