import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pytest

from jobi_tf.datasets.catalogue import DATASETS
from jobi_tf.errors import DataError

from .files import dummy_members, write_archive

tfds = pytest.importorskip("tensorflow_datasets")

from jobi_tf.datasets import fb15k, fb15k_237, umls, wn18rr, yago3_10  # noqa: E402


class DummyArchive:
    """Lets the builder download the archive of the dummy data, and expect just that."""

    SPLITS = {"train": 4, "valid": 2, "test": 1}  # noqa: RUF012

    @classmethod
    def setUpClass(cls) -> None:
        folder = TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.EXAMPLE_DIR = folder.name
        facts = DATASETS[cls.DATASET_CLASS.name.replace("_", "-")]
        cls.DL_DOWNLOAD_RESULT = f"downloads/{facts.file}"
        dummy = write_archive(Path(folder.name) / cls.DL_DOWNLOAD_RESULT, facts, dummy_members(facts, "some folder/"))
        patch = mock.patch.dict(DATASETS, {facts.name: replace(dummy, url=facts.url)})
        patch.start()
        cls.addClassCleanup(patch.stop)
        super().setUpClass()


class Fb15kTest(DummyArchive, tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = fb15k.Builder
    SKIP_CHECKSUMS = True  # the README says why there is none


class Fb15k237Test(DummyArchive, tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = fb15k_237.Builder


class Yago310Test(DummyArchive, tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = yago3_10.Builder
    SKIP_CHECKSUMS = True  # the README says why there is none


class Wn18rrTest(DummyArchive, tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = wn18rr.Builder


class UmlsTest(DummyArchive, tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = umls.Builder


@pytest.mark.parametrize("how", ["argument", "manual folder", "environment"])
def test_archive_instead_of_a_download(tiny, tmp_path, monkeypatch, how):
    _, path = tiny
    config = tfds.download.DownloadConfig(manual_dir=path.parent if how == "manual folder" else tmp_path / "none")
    if how == "environment":
        monkeypatch.setenv("JOBI_TF_ARCHIVES", str(path.parent))
    data = tfds.load(
        "umls",
        split="train",
        data_dir=tmp_path / "tfds",
        builder_kwargs={"archive": path if how == "argument" else None},
        download_and_prepare_kwargs={"download_config": config},
    )
    examples = {tuple(e[key].decode() for key in ("head", "relation", "tail")) for e in tfds.as_numpy(data)}
    assert ("Cleo", "lives in", "Paris") in examples
    assert len(examples) == 4


def test_archive_is_verified(tiny, tmp_path):
    _, path = tiny
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(DataError, match=r"expected umls.tar.gz with sha256"):
        umls.Builder(archive=path, data_dir=tmp_path / "tfds").download_and_prepare()


def test_registered_checksums_are_those_of_the_catalogue():
    for module in (fb15k, fb15k_237, umls, wn18rr, yago3_10):
        facts = DATASETS[module.Builder.name.replace("_", "-")]
        expected = {facts.url: facts.sha256} if facts.sha256 else {}
        assert {url: info.checksum for url, info in module.Builder.url_infos.items()} == expected


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_only_the_builders_need_the_extra():
    heavy = "{'tensorflow', 'tensorflow_datasets', 'keras'} & set(sys.modules)"
    assert _python(f"import sys, jobi_tf.datasets, jobi_tf.datasets.check; print({heavy})") == "set()\n"
    message = _python("import sys; sys.modules['tensorflow_datasets'] = None; import jobi_tf.datasets.umls")
    assert "MissingExtraError" in message
    assert "pip install 'jobi-tf[tfds]'" in message
