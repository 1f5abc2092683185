from dataclasses import replace
from pathlib import Path

import pytest

from jobi_tf.datasets.catalogue import DATASETS, DataSet

from .files import members_of, write_archive


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    """Each test has a cache of its own."""
    monkeypatch.setenv("JOBI_TF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> tuple[DataSet, Path]:
    """A small data set that is called `umls`, and its archive."""
    path = tmp_path / "archives" / "umls.tar.gz"
    facts = write_archive(path, DATASETS["umls"], members_of(DATASETS["umls"]))
    monkeypatch.setitem(DATASETS, "umls", replace(facts, url="http://127.0.0.1:9/umls.tar.gz"))
    return DATASETS["umls"], path
