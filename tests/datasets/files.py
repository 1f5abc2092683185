"""Small files for tests."""

import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.datasets.catalogue import DataSet

LINES = {"train": "a\tr\tb\nb\tr\tc\na\ts\tc\n", "valid": "c\tr\ta\n", "test": "b\ts\td\n"}


def write_folder(folder: Path, suffix: str = ".tsv", **contents: str | bytes) -> Path:
    """Writes three splits; those not given are small and good."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        content = contents.get(split, LINES[split])
        (folder / f"{split}{suffix}").write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def named_triples(graph: Graph, split: str) -> list[tuple[str, str, str]]:
    return [
        (graph.entities[head], graph.relations[relation], graph.entities[tail])
        for head, relation, tail in graph.splits[split].tolist()
    ]


def members_of(dataset: DataSet, folder: str = "") -> list[tuple[str, bytes]]:
    """The files of a small archive of a data set."""
    return [(folder + name, LINES[split].encode()) for split, name in dataset.members.items()]


def write_archive(path: Path, dataset: DataSet, members: list[tuple[str, bytes] | tarfile.TarInfo]) -> DataSet:
    """Packs an archive, and returns the data set's facts as they would be if this were its real archive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return replace(
        dataset,
        entities=4,
        relations=2,
        triples={"train": 3, "valid": 1, "test": 1},
        digests={dataset.file: f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"},
        size=path.stat().st_size,
    )
