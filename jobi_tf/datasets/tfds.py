"""Builders for TensorFlow Datasets, one for each data set of the catalogue.

Importing this module registers them: `tfds.load("fb15k_237")` and so on, with `_` in place of `-`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from jobi_tf.data.graph import Graph
from jobi_tf.datasets import archives
from jobi_tf.datasets.catalogue import DATASETS, DataSet
from jobi_tf.errors import needs

with needs("the builders need TensorFlow Datasets", "tfds"):
    import tensorflow_datasets as tfds


class TripleBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A builder whose examples are the triples of a public data set, with the names of head, relation and tail.

    The archive is verified by its digests and counts, whether it was downloaded or given.

    Args:
        archive: the archive. None: it is looked up in the folder that the environment variable `JOBI_TF_ARCHIVES`
            names, and downloaded by TensorFlow Datasets if it is not there.
        **kwargs: as for every builder of TensorFlow Datasets.

    Example:
        >>> import jobi_tf.datasets.tfds
        >>> tfds.load("umls", split="valid", builder_kwargs={"archive": "umls.tar.gz"})  # doctest: +SKIP
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "First release."}

    def __init__(self, *, archive: str | Path | None = None, **kwargs: Any):
        self._archive = None if archive is None else Path(archive)
        super().__init__(**kwargs)

    @classmethod
    def facts(cls) -> DataSet:
        """Returns the catalogue's entry."""
        return DATASETS[cls.name.replace("_", "-")]

    @tfds.core.utils.classproperty
    @classmethod
    def url_infos(cls) -> dict[str, Any]:
        """What TensorFlow Datasets verifies in a download: SHA-256. `read_archive` verifies all that is known."""
        facts = cls.facts()
        if facts.size is None:
            return {}
        digest = facts.digests[facts.file].removeprefix("sha256:")
        return {facts.url: tfds.core.download.checksums.UrlInfo(facts.size, digest, facts.file)}

    def _info(self) -> tfds.core.DatasetInfo:
        text, facts = tfds.features.Text(), self.facts()
        return tfds.core.DatasetInfo(
            builder=self,
            description=facts.description,
            citation=facts.citation,
            homepage=facts.url,
            features=tfds.features.FeaturesDict({"head": text, "relation": text, "tail": text}),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator]:
        facts = self.facts()
        path = archives.find(facts, self._archive) or Path(dl_manager.download(facts.url))
        graph = archives.read_archive(facts, path)
        return {split: self._generate_examples(graph, split) for split in graph.splits}

    def _generate_examples(self, graph: Graph, split: str) -> Iterator[tuple[int, dict[str, str]]]:
        for row, (head, relation, tail) in enumerate(graph.splits[split].tolist()):
            names = graph.entities[head], graph.relations[relation], graph.entities[tail]
            yield row, dict(zip(("head", "relation", "tail"), names, strict=True))


def _builder(dataset: DataSet) -> type[TripleBuilder]:
    name = dataset.name.replace("-", "_")
    attributes = {"name": name, "__module__": __name__, "__doc__": f"Triples of {dataset.title}."}
    return type(name.title().replace("_", ""), (TripleBuilder,), attributes)


BUILDERS = {name: _builder(dataset) for name, dataset in DATASETS.items()}
