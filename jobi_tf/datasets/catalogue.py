"""The public data sets of `catalogue.toml`: what each holds, where its archive is, and how that archive is verified.

The number of entities, relations and triples is verified for every data set. Beside these, digests are verified as far
as they are known; the SHA-256 digests were computed from the public archives themselves.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobi_tf.data.graph import SPLITS


@dataclass(frozen=True)
class DataSet:
    """Facts about one public data set.

    Args:
        name: its name on the command line.
        title: its name in papers.
        description: what it holds, in a sentence or two.
        citation: the publications to cite.
        entities: number of entities over the three splits.
        relations: number of relations over the three splits.
        triples: number of triples of each split.
        url: where the archive is downloaded from.
        file: file name of the archive.
        members: for each split the name of the file in the archive.
        digests: for the archive and the files in it, as far as they are known, by file name: `sha256:` and a SHA-256
            digest, or `git:` and the id that git gives to a file of this content.
        size: of the archive in bytes, where its SHA-256 digest is known.
    """

    name: str
    title: str
    description: str
    citation: str
    entities: int
    relations: int
    triples: Mapping[str, int]
    url: str
    file: str
    members: Mapping[str, str] = field(default_factory=lambda: {split: f"{split}.txt" for split in SPLITS})
    digests: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None


_FACTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
DATASETS = {name: DataSet(name, **facts) for name, facts in _FACTS.items()}

WORLD = "world"
"""The data set that comes with the package."""

NAMES = (*DATASETS, WORLD)
