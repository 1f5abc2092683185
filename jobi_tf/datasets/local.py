"""Graphs from files of the user: a folder with three splits, or one file to be split."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jobi_tf.data.graph import SPLITS, Graph, Source
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.datasets.layout import Layout
from jobi_tf.datasets.text import Names, Text, open_file
from jobi_tf.errors import DataError, UsageError

_KINDS = (".tsv", ".txt", ".csv")
SUFFIXES = tuple(kind + packed for kind in _KINDS for packed in ("", ".gz"))
_READER = 1
"""Part of every key: raise it when the same files would give another graph."""


def split_files(folder: Path) -> dict[str, Path]:
    """Returns the files of train, valid and test in a folder.

    Raises:
        DataError: one is missing, or there are two of them.
    """
    files = {}
    for split in SPLITS:
        found = [folder / f"{split}{suffix}" for suffix in SUFFIXES if (folder / f"{split}{suffix}").is_file()]
        if len(found) > 1:
            raise DataError(f"{folder}: expected one file for {split}, found {' and '.join(p.name for p in found)}")
        if found:
            files[split] = found[0]
    if missing := [split for split in SPLITS if split not in files]:
        raise DataError(
            f"{folder}: expected files for train, valid and test ({', '.join(_KINDS)}, or these with .gz), "
            f"found none for {' and '.join(missing)}"
        )
    return files


def read_folder(name: str, files: Mapping[str, Path], layout: Layout) -> Graph:
    """Reads three files; ids are given by first appearance in train, then valid, then test.

    Raises:
        DataError: a file cannot be used; the message says where and why.
    """
    entities, relations = Names(), Names()
    splits, sources = {}, {}
    for split in SPLITS:
        splits[split], start = _read_file(files[split], layout, entities, relations)
        sources[split] = Source(str(files[split].absolute()), start)
    return _graph(name, entities, relations, splits, sources)


def read_file(path: Path, split: str, seed: int, layout: Layout) -> Graph:
    """Reads one file and deals its triples out at random; ids are given by first appearance in the file.

    Args:
        path: the file.
        split: shares of train, valid and test, as `0.8/0.1/0.1`.
        seed: which of the random splits.
        layout: columns and header.

    Raises:
        UsageError: the shares are not three positive numbers with the sum 1.
        DataError: the file cannot be used, or has too few triples for three splits.
    """
    shares = parse_shares(split)
    entities, relations = Names(), Names()
    triples, start = _read_file(path, layout, entities, relations)
    ends = np.rint(np.cumsum(shares) * len(triples)).astype(int)
    if not 0 < ends[0] < ends[1] < len(triples):
        raise DataError(f"{path}: expected triples for three splits of {split}, got only {len(triples)}")
    shuffled = np.random.default_rng(seed).permutation(len(triples))
    splits, sources = {}, {}
    for name, rows in zip(SPLITS, np.split(shuffled, ends[:2]), strict=True):
        rows.sort()
        splits[name] = triples[rows]
        sources[name] = Source(str(path.absolute()), start, (rows + start).astype(np.int32))
    return _graph(path.name.split(".")[0], entities, relations, splits, sources)


def parse_shares(split: str) -> tuple[float, float, float]:
    """Returns the three shares that a text such as `0.8/0.1/0.1` gives.

    Raises:
        UsageError: they are not three positive numbers with the sum 1.
    """
    try:
        shares = [float(share) for share in split.split("/")]
    except ValueError:
        shares = []
    if len(shares) != 3 or not all(0 < share < 1 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise UsageError(f"expected shares of train, valid and test with the sum 1, as 0.8/0.1/0.1, got {split!r}")
    return shares[0], shares[1], shares[2]


def key(path: Path, files: Mapping[str, Path], layout: Layout, split: str | None, seed: int) -> str:
    """Returns the name under which the graph of these files and options is kept: other content, other name.

    Raises:
        DataError: a file is not there.
    """
    facts: list = [_READER, layout.columns, layout.header, split and parse_shares(split), seed if split else None]
    for name, file in sorted(files.items()):
        try:
            status = file.stat()
        except OSError as problem:
            raise DataError(f"{file}: cannot be read: {problem.strerror}") from None
        facts.append([name, str(file.absolute()), status.st_size, status.st_mtime_ns])
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', path.absolute().name)[:40]}-{digest}"


def _read_file(path: Path, layout: Layout, entities: Names, relations: Names) -> tuple[np.ndarray, int]:
    separator = "," if path.name.endswith((".csv", ".csv.gz")) else "\t"
    with open_file(path) as stream:
        return Text(str(path), separator, layout).read(stream, entities, relations)


def _graph(
    name: str, entities: Names, relations: Names, splits: Mapping[str, np.ndarray], sources: Mapping[str, Source]
) -> Graph:
    return Graph(
        name,
        Vocabulary(list(entities), kind="entity"),
        Vocabulary(list(relations), kind="relation"),
        splits,
        sources,
    )
