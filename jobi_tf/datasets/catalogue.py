"""The public data sets by name: what each holds, where its archive is, and how that archive is recognised."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobi_tf.data.graph import SPLITS

_CONVE = "https://raw.githubusercontent.com/TimDettmers/ConvE/f3c0eb286025410fa5b4c04696c918264163d0ca"


@dataclass(frozen=True)
class DataSet:
    """Facts about one public data set.

    Args:
        name: how the command line calls it.
        title: how papers call it.
        description: what it is, in one sentence.
        entities: number of entities over the three splits.
        relations: number of relations over the three splits.
        triples: number of triples of each split.
        url: where the archive is downloaded from.
        file: file name of the archive.
        sha256: digest of the archive, where it is known.
        blob: git blob id of the archive, where it is known.
        members: for each split the name of the file in the archive.
        member_blobs: git blob ids of files in the archive, where they are known.
        citation: the publication to cite.
    """

    name: str
    title: str
    description: str
    entities: int
    relations: int
    triples: Mapping[str, int]
    url: str
    file: str
    citation: str
    sha256: str | None = None
    blob: str | None = None
    members: Mapping[str, str] = field(default_factory=lambda: {split: f"{split}.txt" for split in SPLITS})
    member_blobs: Mapping[str, str] = field(default_factory=dict)


_ALL = (
    DataSet(
        name="fb15k-237",
        title="FB15K-237",
        description="Freebase facts of FB15K without its inverse and duplicate relations.",
        entities=14_541,
        relations=237,
        triples={"train": 272_115, "valid": 17_535, "test": 20_466},
        url=f"{_CONVE}/FB15k-237.tar.gz",
        file="FB15k-237.tar.gz",
        sha256="311df7930f842a02979eaa7a802484a6afe62303c07f915f1e6edbc30cbe05e8",
        citation="Toutanova and Chen: Observed versus latent features for knowledge base and text inference, CVSC 2015",
    ),
    DataSet(
        name="fb15k",
        title="FB15K",
        description="Freebase facts about entities with at least 100 mentions; full of inverse relations.",
        entities=14_951,
        relations=1_345,
        triples={"train": 483_142, "valid": 50_000, "test": 59_071},
        url="https://everest.hds.utc.fr/lib/exe/fetch.php?media=en:fb15k.tgz",
        file="fb15k.tgz",
        members={split: f"freebase_mtr100_mte100-{split}.txt" for split in SPLITS},
        member_blobs={
            "train": "de7b73e2a375b38236aa02bbcdca4c4b449b6e7d",
            "valid": "cd5fd1b91300972f45b84b1d933a1259814417ef",
            "test": "4f8c953905abea1d4d212ebc839dbe6c3c68e0b8",
        },
        citation="Bordes et al.: Translating embeddings for modeling multi-relational data, NIPS 2013",
    ),
    DataSet(
        name="yago3-10",
        title="YAGO3-10",
        description="YAGO3 facts about entities with at least ten relations, most of them about people.",
        entities=123_182,
        relations=37,
        triples={"train": 1_079_040, "valid": 5_000, "test": 5_000},
        url=f"{_CONVE}/YAGO3-10.tar.gz",
        file="YAGO3-10.tar.gz",
        blob="be63d16955e1951cb6539710204af43cb38da7d9",
        member_blobs={"train": "1543056ff5af6d3bf841510129529e91e9a8627c"},
        citation="Mahdisoltani, Biega and Suchanek: YAGO3, CIDR 2015; split by Dettmers et al., AAAI 2018",
    ),
    DataSet(
        name="wn18rr",
        title="WN18RR",
        description="WordNet relations between word senses, without the inverse relations of WN18.",
        entities=40_943,
        relations=11,
        triples={"train": 86_835, "valid": 3_034, "test": 3_134},
        url=f"{_CONVE}/WN18RR.tar.gz",
        file="WN18RR.tar.gz",
        sha256="1eb9152f804c140d163462c0d49f65e5a0b30ab5fbb375c5e3353c11a6249060",
        citation="Dettmers et al.: Convolutional 2D knowledge graph embeddings, AAAI 2018",
    ),
    DataSet(
        name="umls",
        title="UMLS",
        description="Relations between semantic types of the Unified Medical Language System; small and dense.",
        entities=135,
        relations=46,
        triples={"train": 5_216, "valid": 652, "test": 661},
        url=f"{_CONVE}/umls.tar.gz",
        file="umls.tar.gz",
        sha256="26223aa91f0ec8db2324e0f489b9a4425e04d1d0df72ce5cfd62af4b91aee6fd",
        citation="McCray: An upper-level ontology for the biomedical domain, 2003; Kok and Domingos, ICML 2007",
    ),
)

DATASETS: dict[str, DataSet] = {dataset.name: dataset for dataset in _ALL}

WORLD = "world"
"""The data set that comes with the package."""

NAMES = (*DATASETS, WORLD)
