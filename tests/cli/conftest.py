"""A folder of triples to train on, and one run of it."""

from pathlib import Path

import pytest

from tests.graphs import write_towns

SMALL = ("--dim", "4", "--batch-size", "20", "--negatives", "5", "--epochs", "2")


@pytest.fixture(scope="session")
def triples(tmp_path_factory) -> Path:
    """90 triples over 16 towns and 3 relations; `Oz` is in test only."""
    return write_towns(tmp_path_factory.mktemp("data") / "towns", ("Oz", "near", "town 1"))


@pytest.fixture(scope="session")
def run(triples, call, tmp_path_factory) -> Path:
    """The folder of a finished run; not to be changed."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("runs") / "towns"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOBI_TF_HOME", str(home))
        call("train", "--dataset", triples, "--run-dir", folder, "--eval-every", 1, *SMALL)
    return folder
