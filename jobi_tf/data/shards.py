"""Training triples in files of fixed records, for graphs whose triples do not fit into memory."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from jobi_tf.errors import DataError, JobiError

RECORD = 12  # bytes of a triple: head, relation and tail, int32, little-endian
BLOCK = 1024  # triples that are read together
WINDOW = 1024  # blocks whose triples are shuffled with each other


@dataclass(frozen=True)
class Shards:
    """Triples in files, int32 [N, 3], as the training split of a `Graph`.

    What needs an array, such as `np.asarray` or an index, reads all triples into memory; `blocks` and
    `jobi_tf.training_batches` do not.
    """

    folder: str  # on a local disk or in a file system of TensorFlow, such as `gs://` or `s3://`
    files: Sequence[str]  # their names
    counts: Sequence[int]  # number of triples of each; all but the last are multiples of `block`
    block: int = BLOCK  # triples that are read together
    window: int = WINDOW  # blocks whose triples are shuffled with each other

    def __len__(self) -> int:
        return sum(self.counts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        triples, done = np.empty(self.shape, np.int32), 0
        for block in self.blocks():
            triples[done : done + len(block)] = block
            done += len(block)
        return triples.astype(dtype or np.int32, copy=False)

    def __iter__(self) -> Iterator[np.ndarray]:
        return chain.from_iterable(self.blocks())

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.asarray(self)[index]

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the triples as an array, (N, 3)."""
        return len(self), 3

    def paths(self) -> list[str]:
        """Returns the paths of the files; raises a `DataError` if one is missing or not of their size."""
        paths = [f"{self.folder}/{file}" for file in self.files]
        for path, count in zip(paths, self.counts, strict=True):
            try:
                size = _size(path)
            except FileNotFoundError:
                advice = "move them back, or change the folder in graph.json of the graph, or of the run's graph"
                raise DataError(f"expected training triples in {path}, found nothing there: {advice}") from None
            if size != count * RECORD:
                raise DataError(f"{path}: expected {count * RECORD:,} bytes ({count:,} triples), got {size:,} bytes")
        return paths

    def blocks(self, size: int = 2**20) -> Iterator[np.ndarray]:
        """Returns the triples in the order of the files, a few at a time: int32 [up to `size`, 3]."""
        for path in self.paths():
            with _open(path) as file:
                while data := file.read(size * RECORD):
                    yield np.frombuffer(data, "<i4").reshape(-1, 3).astype(np.int32, copy=False)


def _open(path: str) -> Any:
    if "://" not in path:
        return open(path, "rb")
    import tensorflow as tf  # takes seconds

    return tf.io.gfile.GFile(path, "rb")


def _size(path: str) -> int:
    if "://" not in path:
        return os.path.getsize(path)
    import tensorflow as tf  # takes seconds

    return tf.io.gfile.stat(path).length


def check_files(triples: np.ndarray | Shards) -> None:
    """Raises a `DataError` if a file of triples in shards is missing, or not of its size."""
    if isinstance(triples, Shards):
        triples.paths()


def blocks(triples: np.ndarray | Shards, size: int = 2**20) -> Iterator[np.ndarray]:
    """Returns triples a few at a time, int32 [up to `size`, 3], from memory or from files; at least one part."""
    if isinstance(triples, Shards):
        return triples.blocks(size)
    return (triples[start : start + size] for start in range(0, max(1, len(triples)), size))


class ShardWriter:
    """Writes triples that come a few at a time: block by block to each of at most `files` files in turn."""

    def __init__(self, folder: Path, files: int, block: int = BLOCK, window: int = WINDOW):
        self._folder, self._most, self._block, self._window = folder, files, block, window
        self._counts: list[int] = []  # triples of each file
        self._rest = np.empty((0, 3), np.int32)
        self._next = 0
        self._random = np.random.default_rng(0)

    def write(self, triples: np.ndarray) -> None:
        """Writes triples, int32 [N, 3], shuffled with each other: neighbours in a sorted file share their head."""
        triples = np.concatenate([self._rest, self._random.permutation(triples)])
        end = len(triples) - len(triples) % self._block
        for start in range(0, end, self._block):
            self._write(triples[start : start + self._block])
        self._rest = triples[end:]

    def _write(self, block: np.ndarray) -> None:
        if self._next == len(self._counts):
            self._counts.append(0)
        try:
            # Opened for each block, since the number of open files is limited.
            with self._path(self._next).open("ab") as file:
                file.write(np.ascontiguousarray(block, "<i4").data)
        except OSError as error:  # callers take an OSError for one of the file that they read
            raise JobiError(f"cannot write shards in {self._folder.parent.absolute()}: {error.strerror}") from None
        self._counts[self._next] += len(block)
        self._next = (self._next + 1) % self._most

    def finish(self) -> Shards:
        """Writes the last block, and returns the files; only the last of them may have a block that is not full."""
        if len(self._rest):
            self._write(self._rest)
        used = len(self._counts)
        order = [*range(self._next, used), *range(self._next)]
        names = [self._path(i).rename(self._folder / f"train-{i:05d}-of-{used:05d}").name for i in order]
        return Shards(str(self._folder), names, [self._counts[i] for i in order], self._block, self._window)

    def _path(self, number: int) -> Path:
        return self._folder / f"train-{number:05d}"
