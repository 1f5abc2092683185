"""A folder of triples to train on, and one run of it."""

import json
from pathlib import Path

import pytest

from tests.graphs import write_towns

SMALL = ("--dim", "4", "--batch-size", "20", "--negatives", "5", "--epochs", "2")


def rows(folder: Path) -> list[dict]:
    """The metrics of each epoch, but for times."""
    path = folder / "metrics.jsonl"
    every = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{k: v for k, v in row.items() if k not in ("seconds", "triples_per_second")} for row in every]


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
