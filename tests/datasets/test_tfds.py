import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pytest

from jobi_tf.datasets.catalogue import DATASETS
from jobi_tf.errors import DataError

from .files import members_of, write_archive

tfds = pytest.importorskip("tensorflow_datasets")

from jobi_tf.datasets.tfds import BUILDERS  # noqa: E402


class Fb15kTest(tfds.testing.DatasetBuilderTestCase):
    """Lets the builder download the archive of a small data set, and expect just that; the builders differ in names."""

    DATASET_CLASS = BUILDERS["fb15k"]
    SPLITS = {"train": 3, "valid": 1, "test": 1}  # noqa: RUF012

    @classmethod
    def setUpClass(cls) -> None:
        folder = TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.EXAMPLE_DIR = folder.name
        facts = cls.DATASET_CLASS.facts()
        cls.DL_DOWNLOAD_RESULT = f"downloads/{facts.file}"
        small = write_archive(Path(folder.name) / cls.DL_DOWNLOAD_RESULT, facts, members_of(facts, "some folder/"))
        patch = mock.patch.dict(DATASETS, {facts.name: small})
        patch.start()
        cls.addClassCleanup(patch.stop)
        super().setUpClass()


def test_every_data_set_is_registered():
    names = {name.replace("-", "_") for name in DATASETS}
    assert names <= set(tfds.list_builders())
    for name in names:
        assert tfds.builder_cls(name).facts().name == name.replace("_", "-")


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
    assert examples == {("a", "r", "b"), ("b", "r", "c"), ("a", "s", "c")}


def test_archive_is_verified(tiny, tmp_path):
    _, path = tiny
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(DataError, match=r"umls.tar.gz .* sha256"):
        BUILDERS["umls"](archive=path, data_dir=tmp_path / "tfds").download_and_prepare()


def test_checksums_are_those_of_the_catalogue():
    for name, builder in BUILDERS.items():
        digest = DATASETS[name].digests.get(DATASETS[name].file, "")
        expected = {DATASETS[name].url: digest.removeprefix("sha256:")} if digest.startswith("sha256:") else {}
        assert {url: info.checksum for url, info in builder.url_infos.items()} == expected


def test_sizes_are_those_of_the_archives(shared):
    for facts in DATASETS.values():
        if facts.size is not None:
            assert (shared / "data" / facts.file).stat().st_size == facts.size


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_only_the_builders_need_the_extra():
    heavy = "{'tensorflow', 'tensorflow_datasets', 'keras'} & set(sys.modules)"
    assert _python(f"import sys, jobi_tf.datasets, jobi_tf.datasets.check; print({heavy})") == "set()\n"
    message = _python("import sys; sys.modules['tensorflow_datasets'] = None; import jobi_tf.datasets.tfds")
    assert "MissingExtraError" in message
    assert "pip install 'jobi-tf[tfds]'" in message
