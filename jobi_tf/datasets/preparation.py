"""From the name or the path of a data set to its graph in the cache."""

import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import resources
from pathlib import Path

from jobi_tf.data.graph import Graph, Source
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.datasets import archives, cache, local
from jobi_tf.datasets.catalogue import DATASETS, NAMES, WORLD, DataSet
from jobi_tf.datasets.layout import Layout
from jobi_tf.datasets.text import Names, Text
from jobi_tf.errors import DataError, UsageError


@dataclass(frozen=True)
class Prepared:
    """A graph in the cache.

    Args:
        graph: the graph, its triples memory-mapped.
        folder: where it is kept.
        was_there: whether an earlier preparation had made it.
    """

    graph: Graph
    folder: Path
    was_there: bool


def load_graph(
    dataset: str | Path,
    *,
    archive: str | Path | None = None,
    split: str | None = None,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    seed: int = 0,
) -> Graph:
    """Returns the graph of a data set; the first call prepares it, later ones open what the first one kept.

    Args:
        dataset: a name out of `jobi_tf.datasets.NAMES`; or a folder that holds train, valid and test, each as .tsv,
            .txt (both with TABs) or .csv, also with .gz; or one such file, with `split`. A name wins over a path
            that is spelled the same: write `./umls` for the folder.
        archive: the archive of a named data set; else it is looked up by file name in the folder that the environment
            variable `JOBI_TF_ARCHIVES` names, and downloaded if it is not there.
        split: shares of train, valid and test for one file, as `0.8/0.1/0.1`.
        columns: names of the head, relation and tail columns in the header of local files, or their positions from 1;
            with it, files may have more columns.
        header: whether local files have a header. None: a first line such as head, relation, tail is taken for one.
        seed: which random split of one file; without meaning where there is no `split`.

    Raises:
        UsageError: the data set is unknown, or an option cannot apply to it.
        DataError: the data cannot be used; the message says where and why.
        JobiError: the network, the disk or the cache failed.

    Example:
        >>> load_graph("world").num_relations > 8
        True
    """
    return prepare(dataset, archive=archive, split=split, columns=columns, header=header, seed=seed).graph


def prepare(
    dataset: str | Path,
    *,
    archive: str | Path | None = None,
    split: str | None = None,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    seed: int = 0,
) -> Prepared:
    """As `load_graph`, and says where the graph is kept and whether it had been there."""
    name = str(dataset)
    local_options = {"split": split, "columns": columns, "header": header}
    if isinstance(dataset, str) and name in NAMES:
        for option, value in local_options.items():
            if value is not None:
                raise UsageError(f"option {option!r} is for files of your own: the layout of {name} is known")
        key, build = (
            _world(archive) if name == WORLD else _named(DATASETS[name], None if archive is None else Path(archive))
        )
    else:
        if archive is not None:
            raise UsageError(f"an archive is for a data set out of {', '.join(DATASETS)}, and {name!r} is none of them")
        key, build = _local(Path(dataset).expanduser(), Layout.of(columns, header), split, seed, name)
    graph, was_there = cache.open_or_build(key, build)
    return Prepared(graph, cache.graph_folder(key), was_there)


def read_archive(dataset: DataSet, path: Path) -> Graph:
    """Reads the archive of a public data set, and checks its digests and all its counts.

    Raises:
        DataError: it is another file, is damaged, or holds other than the catalogue says.
    """
    archives.verify(dataset, path)
    entities, relations = Names(), Names()
    splits, sources = {}, {}
    for split, where, content in archives.read_members(dataset, path):
        splits[split], start = Text(where).read(io.BytesIO(content), entities, relations)
        sources[split] = Source(where, start)
        _expect(f"{where}: expected", dataset.triples[split], len(splits[split]), "triples")
    _expect(f"{path}: expected", dataset.entities, len(entities), "entities")
    _expect(f"{path}: expected", dataset.relations, len(relations), "relations")
    vocabularies = Vocabulary(list(entities), kind="entity"), Vocabulary(list(relations), kind="relation")
    return Graph(dataset.name, *vocabularies, splits, sources)


def read_world() -> Graph:
    """Reads the data set that comes with the package, without the cache."""
    files = _world_files()
    graph = local.read_folder(WORLD, files, Layout())
    # The cache outlives an installation, so messages name the files by their place in the package.
    sources = {split: replace(source, file=f"{WORLD}/{files[split].name}") for split, source in graph.sources.items()}
    return replace(graph, sources=sources)


def _named(dataset: DataSet, archive: Path | None) -> tuple[str, Callable[[], Graph]]:
    if archive is not None:
        found = archives.find(dataset, archive)
        assert found is not None
        archives.verify(dataset, found)  # also where the graph is kept already: the user asks about this file

    def build() -> Graph:
        from jobi_tf.datasets.download import download

        return read_archive(dataset, archives.find(dataset, archive) or download(dataset))

    return dataset.name, build


def _world_files() -> dict[str, Path]:
    return local.split_files(Path(str(resources.files("jobi_tf.datasets.world"))))


def _world(archive: str | Path | None) -> tuple[str, Callable[[], Graph]]:
    if archive is not None:
        raise UsageError(f"{WORLD} comes with the package and has no archive")
    # Keyed by content, so that another version of the package finds its own facts.
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in _world_files().values())).hexdigest()[:16]
    return f"{WORLD}-{digest}", read_world


def _local(path: Path, layout: Layout, split: str | None, seed: int, name: str) -> tuple[str, Callable[[], Graph]]:
    if path.is_dir():
        if split is not None:
            raise UsageError(f"{name} is a folder with splits of its own: split {split!r} is for one file")
        files = local.split_files(path)
        return local.key(path, files, layout, None, seed), lambda: local.read_folder(
            path.absolute().name, files, layout
        )
    if path.is_file():
        if not path.name.endswith(local.SUFFIXES):
            raise UsageError(f"expected a file whose name ends in {', '.join(local.SUFFIXES)}, got {name}")
        if split is None:
            raise UsageError(f"{name} is one file: say how to split it, as 0.8/0.1/0.1")
        key = local.key(path, {"all": path}, layout, split, seed)
        return key, lambda: local.read_file(path, split, seed, layout)
    if path.exists():
        raise DataError(f"expected a file or a folder, got {name}, which is neither")
    if len(path.parts) > 1:
        raise UsageError(f"expected a folder or a file of triples at {name}, found nothing there")
    near = get_close_matches(name.casefold().replace("_", "-"), NAMES, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(f"unknown data set {name!r}: expected {', '.join(NAMES)}, or a path that exists{hint}")


def _expect(what: str, expected: int, got: int, kind: str) -> None:
    if got != expected:
        raise DataError(f"{what} {expected:,} {kind}, got {got:,}")
