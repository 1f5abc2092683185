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

    A digest, of the archive or of a file in it, is `sha256:` and a SHA-256 digest, or `git:` and the id that git gives
    to a file of this content.
    """

    name: str  # on the command line
    title: str  # its name in papers
    description: str  # what it holds, in a sentence or two
    citation: str  # the publications to cite
    entities: int  # over the three splits
    relations: int  # over the three splits
    triples: Mapping[str, int]  # of each split
    url: str  # where the archive is downloaded from
    file: str  # name of the archive
    # For each split the name of the file in the archive.
    members: Mapping[str, str] = field(default_factory=lambda: {split: f"{split}.txt" for split in SPLITS})
    digests: Mapping[str, str] = field(default_factory=dict)  # by file name, as far as they are known
    size: int | None = None  # of the archive in bytes, where its SHA-256 digest is known


_FACTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
DATASETS = {name: DataSet(name, **facts) for name, facts in _FACTS.items()}
WORLD = "world"  # which comes with the package
NAMES = (*DATASETS, WORLD)
