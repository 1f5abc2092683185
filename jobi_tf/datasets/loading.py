"""From the name or the path of a data set to its graph in the cache."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jobi_tf.data.graph import Graph
from jobi_tf.datasets import archives, cache, reading
from jobi_tf.datasets.cache import Prepared
from jobi_tf.datasets.catalogue import DATASETS, NAMES, WORLD, DataSet
from jobi_tf.datasets.reading import Columns
from jobi_tf.errors import DataError, JobiError, UsageError, check_at_least

_READER = 6  # part of the cache key of local files: raise it when the same files would give another graph
_WORLD = Path(__file__).with_name(WORLD)


def load_graph(
    dataset: str | Path,
    *,
    archive: str | Path | None = None,
    split: str | Sequence[float] | None = None,
    columns: str | Sequence[str | int] | None = None,
    header: bool | None = None,
    weights: str | int | None = None,
    seed: int = 0,
) -> Graph:
    """Returns the graph of a data set, which is prepared on the first call and cached.

    Args:
        dataset: a name in `jobi_tf.datasets.NAMES`; a folder with train, valid and test, each as .tsv or .txt (both
            with tabs) or .csv, also with .gz, or as .nt, .ttl (RDF) or .parquet; or one such file, with `split`; or a
            prepared folder, local or such as `gs://bucket/graph` (`Graph.save`, `jobi-tf data prepare`). Names take
            precedence over paths, so write `./umls` for a folder with the name of a data set.
        archive: the archive of a named data set. None: the file of that name in the folder that the environment
            variable `JOBI_TF_ARCHIVES` names; without it, the archive is downloaded.
        split: shares of train, valid and test for one file, such as `"0.8/0.1/0.1"` or `(0.8, 0.1, 0.1)`.
        columns: the head, relation and tail columns of local files, such as `"from,type,to"` or `[1, 3, 2]`: each by
            its name in the header or its position, counted from 1; other columns are ignored.
        header: whether local files have a header. None: the first line is a header if it contains the given names or
            those of a known header, such as head, relation, tail.
        weights: the column, by name or position, with the weight of each triple, a number of at least 0.
        seed: seed of the random split of one file; no effect without `split`.

    Returns:
        The graph. Its triples are memory-mapped and read-only.

    Raises:
        UsageError: the data set is unknown, or an option does not apply to it.
        DataError: the data cannot be used; the message names the file and the line.
        JobiError: the network, the disk or the cache failed.

    Example:
        >>> load_graph("world").num_relations
        16
    """
    options: dict[str, Any] = {"columns": columns, "header": header, "weights": weights}
    return prepare(dataset, archive=archive, split=split, seed=seed, **options).graph


def prepare(
    dataset: str | Path,
    *,
    archive: str | Path | None = None,
    split: str | Sequence[float] | None = None,
    columns: str | Sequence[str | int] | None = None,
    header: bool | None = None,
    weights: str | int | None = None,
    seed: int = 0,
) -> Prepared:
    """As `load_graph`, but also returns where the graph is kept and whether it came from the cache."""
    check_at_least(0, seed=seed)
    name = str(dataset)
    path = Path(os.path.expanduser(name))
    named = isinstance(dataset, str) and name in NAMES
    prepared = not named and ("://" in name or (path / "graph.json").is_file())
    if named or prepared:
        options = {"split": split, "columns": columns, "header": header, "weights": weights}
        if given := [option for option, value in options.items() if value is not None]:
            raise UsageError(f"option {given[0]!r} applies to files of triples only, got the data set {name}")
    if archive is not None and (not named or name == WORLD):
        raise UsageError(f"an archive is for a data set out of {', '.join(DATASETS)}, got {name!r}")
    if prepared:
        return _open_remote(name.rstrip("/")) if "://" in name else Prepared(Graph.open(path), path, True)
    if named and name != WORLD:
        return cache.open_or_build(*_named(DATASETS[name], archive))
    path = _WORLD if named else path
    return cache.open_or_build(*_local(path, Columns(columns, weights, header), split, int(seed), name))


def _open_remote(url: str) -> Prepared:
    """Opens a graph that `write_shards` wrote and that was copied to a file system of TensorFlow, `gs://bucket/graph`.

    All but the shards is copied to the cache.
    """
    import tensorflow as tf  # takes seconds

    try:
        meta = json.loads(tf.io.gfile.GFile(f"{url}/graph.json").read())
        shards = meta["shards"] | {"folder": url}
        key = "remote-" + hashlib.sha256(f"{url} {meta['fingerprint']}".encode()).hexdigest()[:16]
        cache.make_folder(cache.home())
        with TemporaryDirectory(prefix=".tmp-", dir=cache.home()) as copied:

            def build() -> Graph:
                for name in set(tf.io.gfile.listdir(url)) - set(shards["files"]):
                    tf.io.gfile.copy(f"{url}/{name}", f"{copied}/{name}")
                Path(copied, "graph.json").write_text(json.dumps(meta | {"shards": shards}), encoding="utf-8")
                return Graph.open(Path(copied))

            return cache.open_or_build(key, build)
    except tf.errors.OpError as error:
        raise JobiError(f"{url}: expected a graph in shards: {error.message}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise JobiError(f"{url}: expected a graph in shards, got another graph.json: {error}") from None


def _named(dataset: DataSet, archive: str | Path | None) -> tuple[str, Callable[[], Graph]]:
    path = None if archive is None else archives.find(dataset, Path(archive).expanduser())
    given = path and archives.read_archive(dataset, path)  # even if the graph is cached: the user asks about this file

    def build() -> Graph:
        if given:
            return given
        found = archives.find(dataset)
        return archives.read_archive(dataset, found) if found else archives.download(dataset)

    return dataset.name, build


def _local(
    path: Path, columns: Columns, split: str | Sequence[float] | None, seed: int, name: str
) -> tuple[str, Callable[[], Graph]]:
    if path.is_dir():
        if split is not None:
            raise UsageError(f"{name} is a folder, which has its splits already; option 'split' is for one file")
        files = reading.find_splits(path)
        key = _key(path, list(files.values()), columns)
        return key, lambda: reading.read_folder(path.absolute().name, files, columns)
    if path.is_file():
        if not path.name.endswith(reading.SUFFIXES):
            raise UsageError(f"expected a file whose name ends in {', '.join(reading.SUFFIXES)}, got {name}")
        if split is None:
            raise UsageError(f"{name} is one file: option 'split' is needed, such as 0.8/0.1/0.1")
        shares = reading.parse_shares(split)
        key = _key(path, [path], columns, shares, seed)
        return key, lambda: reading.read_and_split(path, shares, seed, columns)
    if path.exists():
        raise DataError(f"expected a file or a folder, got {name}, which is neither")
    if len(path.parts) > 1 or name.startswith("."):  # such as ./facts, which is Path("facts")
        raise UsageError(f"expected a folder or a file of triples at {name}, found nothing there")
    near = get_close_matches(name.casefold().replace("_", "-"), NAMES, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(f"unknown data set {name!r}: expected {', '.join(NAMES)}, or a path that exists{hint}")


def listing() -> list[dict[str, Any]]:
    """Returns facts about all data sets that have a name, as `jobi-tf data list --json` prints them."""
    world = reading.read_folder(WORLD, reading.find_splits(_WORLD), Columns())
    included = {
        "name": WORLD,
        "description": "Facts about the countries of the world; needs no download.",
        "entities": world.num_entities,
        "relations": world.num_relations,
        "triples": {split: len(triples) for split, triples in world.splits.items()},
        "state": "included",
        "citation": "",
    }
    entries = [included]
    for name, dataset in DATASETS.items():
        found = "archive found" if archives.find(dataset) else "to download"
        state = "prepared" if cache.graph_folder(name).exists() else found
        entries.append({key: vars(dataset).get(key) for key in included} | {"state": state})
    return entries


def _key(path: Path, files: Sequence[Path], columns: Columns, *split: object) -> str:
    """Returns the name of the graph in the cache: other content or options, other name."""
    facts: list = [_READER, columns.triple, columns.weight, columns.header, *split]
    for file in files:
        status = file.stat()
        facts.append([str(file.absolute()), status.st_size, status.st_mtime_ns])
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', path.absolute().name)[:40]}-{digest}"
