"""What the builders for TensorFlow Datasets have in common; only they import this module."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from jobi_tf.data.graph import Graph
from jobi_tf.datasets import archives, catalogue
from jobi_tf.datasets.preparation import read_archive
from jobi_tf.errors import MissingExtraError

try:
    import tensorflow_datasets as tfds
except ImportError as problem:
    raise MissingExtraError(
        f"the builders for TensorFlow Datasets need an extra ({problem}): pip install 'jobi-tf[tfds]'"
    ) from None


class TripleBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A builder whose examples are the triples of a public data set, with the names of head, relation and tail.

    The archive is verified by its digests and counts, whether it was downloaded or given.

    Args:
        archive: the archive, where it shall not be downloaded; it may also lie in the folder for manual downloads of
            TensorFlow Datasets, or in the folder that the environment variable `JOBI_TF_ARCHIVES` names.
        **kwargs: as for every builder of TensorFlow Datasets.

    Example:
        >>> import jobi_tf.datasets.umls
        >>> tfds.load("umls", split="valid", builder_kwargs={"archive": "umls.tar.gz"})  # doctest: +SKIP
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "First release."}
    MANUAL_DOWNLOAD_INSTRUCTIONS = (
        "Only without a network: put the archive, under the file name of its download, into this folder; "
        "or give its path as `builder_kwargs={'archive': path}`."
    )

    def __init__(self, *, archive: str | Path | None = None, **kwargs: Any):
        self._archive = None if archive is None else Path(archive)
        super().__init__(**kwargs)

    @property
    def _facts(self) -> catalogue.DataSet:
        return catalogue.DATASETS[self.name.replace("_", "-")]

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text()
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict({"head": text, "relation": text, "tail": text}),
            homepage=self._facts.url,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator]:
        graph = read_archive(self._facts, self._found(dl_manager))
        return {split: self._generate_examples(graph, split) for split in graph.splits}

    def _found(self, dl_manager: tfds.download.DownloadManager) -> Path:
        if self._archive is None:
            try:
                manual = Path(dl_manager.manual_dir) / self._facts.file
            except AssertionError:  # there is no such folder, or nothing in it
                pass
            else:
                if manual.is_file():
                    return manual
        return archives.find(self._facts, self._archive) or Path(dl_manager.download(self._facts.url))

    def _generate_examples(self, graph: Graph, split: str) -> Iterator[tuple[int, dict[str, str]]]:
        for row, (head, relation, tail) in enumerate(graph.splits[split].tolist()):
            yield (
                row,
                {"head": graph.entities[head], "relation": graph.relations[relation], "tail": graph.entities[tail]},
            )
