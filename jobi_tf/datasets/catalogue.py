"""The public data sets by name: what each holds, where its archive is, and how that archive is verified.

The number of entities, relations and triples is verified for every data set. Beside these, digests are verified as far
as they are known; the SHA-256 digests were computed from the public archives themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobi_tf.data.graph import SPLITS

_CONVE = "https://raw.githubusercontent.com/TimDettmers/ConvE/f3c0eb286025410fa5b4c04696c918264163d0ca"
_TRANSE = "https://everest.hds.utc.fr/lib/exe/fetch.php?media=en:"


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


_ALL = (
    DataSet(
        name="fb15k-237",
        title="FB15K-237",
        description="Freebase facts of FB15K without its inverse and duplicate relations. 36 entities occur in valid "
        "or test only.",
        citation="Toutanova and Chen: Observed versus latent features for knowledge base and text inference, CVSC 2015",
        entities=14_541,
        relations=237,
        triples={"train": 272_115, "valid": 17_535, "test": 20_466},
        url=f"{_CONVE}/FB15k-237.tar.gz",
        file="FB15k-237.tar.gz",
        digests={"FB15k-237.tar.gz": "sha256:311df7930f842a02979eaa7a802484a6afe62303c07f915f1e6edbc30cbe05e8"},
        size=3_678_603,
    ),
    DataSet(
        name="fb15k",
        title="FB15K",
        description="Freebase facts about entities with at least 100 mentions. Many relations are the inverse of "
        "another one.",
        citation="Bordes et al.: Translating embeddings for modeling multi-relational data, NIPS 2013",
        entities=14_951,
        relations=1_345,
        triples={"train": 483_142, "valid": 50_000, "test": 59_071},
        url=f"{_TRANSE}fb15k.tgz",
        file="fb15k.tgz",  # its digest is unknown
        members={split: f"freebase_mtr100_mte100-{split}.txt" for split in SPLITS},
        digests={
            "freebase_mtr100_mte100-train.txt": "git:de7b73e2a375b38236aa02bbcdca4c4b449b6e7d",
            "freebase_mtr100_mte100-valid.txt": "git:cd5fd1b91300972f45b84b1d933a1259814417ef",
            "freebase_mtr100_mte100-test.txt": "git:4f8c953905abea1d4d212ebc839dbe6c3c68e0b8",
        },
    ),
    DataSet(
        name="yago3-10",
        title="YAGO3-10",
        description="YAGO3 facts about entities with at least ten relations, most of them about people.",
        citation="Mahdisoltani, Biega and Suchanek: YAGO3, CIDR 2015; split by Dettmers et al., AAAI 2018",
        entities=123_182,
        relations=37,
        triples={"train": 1_079_040, "valid": 5_000, "test": 5_000},
        url=f"{_CONVE}/YAGO3-10.tar.gz",
        file="YAGO3-10.tar.gz",  # its SHA-256 digest is unknown
        digests={
            "YAGO3-10.tar.gz": "git:be63d16955e1951cb6539710204af43cb38da7d9",
            "train.txt": "git:1543056ff5af6d3bf841510129529e91e9a8627c",
        },
    ),
    DataSet(
        name="wn18rr",
        title="WN18RR",
        description="WordNet relations between word senses, without the inverse relations of WN18. 210 test triples "
        "hold an entity that does not occur in train.",
        citation="Dettmers et al.: Convolutional 2D knowledge graph embeddings, AAAI 2018",
        entities=40_943,
        relations=11,
        triples={"train": 86_835, "valid": 3_034, "test": 3_134},
        url=f"{_CONVE}/WN18RR.tar.gz",
        file="WN18RR.tar.gz",
        digests={"WN18RR.tar.gz": "sha256:1eb9152f804c140d163462c0d49f65e5a0b30ab5fbb375c5e3353c11a6249060"},
        size=892_861,
    ),
    DataSet(
        name="wn18",
        title="WN18",
        description="WordNet relations between word senses. Most relations are the inverse of another one.",
        citation="Bordes et al.: Translating embeddings for modeling multi-relational data, NIPS 2013",
        entities=40_943,
        relations=18,
        triples={"train": 141_442, "valid": 5_000, "test": 5_000},
        url=f"{_TRANSE}wordnet-mlj12.tar.gz",
        file="wordnet-mlj12.tar.gz",  # all its digests are unknown
        members={split: f"wordnet-mlj12-{split}.txt" for split in SPLITS},
    ),
    DataSet(
        name="umls",
        title="UMLS",
        description="Relations between semantic types of the Unified Medical Language System; small and dense.",
        citation="McCray: An upper-level ontology for the biomedical domain, 2003; Kok and Domingos, ICML 2007",
        entities=135,
        relations=46,
        triples={"train": 5_216, "valid": 652, "test": 661},
        url=f"{_CONVE}/umls.tar.gz",
        file="umls.tar.gz",
        digests={"umls.tar.gz": "sha256:26223aa91f0ec8db2324e0f489b9a4425e04d1d0df72ce5cfd62af4b91aee6fd"},
        size=35_648,
    ),
    DataSet(
        name="kinship",
        title="Kinship",
        description="Terms of kinship among the Alyawarra of Central Australia; small and dense.",
        citation="Denham: The detection of patterns in Alyawarra nonverbal behavior, 1973; Kemp et al., AAAI 2006",
        entities=104,
        relations=25,
        triples={"train": 8_544, "valid": 1_068, "test": 1_074},
        url=f"{_CONVE}/kinship.tar.gz",
        file="kinship.tar.gz",  # the digest of the public archive is unknown
    ),
    DataSet(
        name="nations",
        title="Nations",
        description="Relations between 14 countries in the years 1950 to 1965; tiny and dense.",
        citation="Rummel: Dimensionality of nations project 1950-1965, ICPSR 1999; Kemp et al., AAAI 2006",
        entities=14,
        relations=55,
        triples={"train": 1_592, "valid": 199, "test": 201},
        url=f"{_CONVE}/nations.tar.gz",
        file="nations.tar.gz",  # the digest of the public archive is unknown
    ),
)

DATASETS: dict[str, DataSet] = {dataset.name: dataset for dataset in _ALL}

WORLD = "world"
"""The data set that comes with the package."""

NAMES = (*DATASETS, WORLD)
