"""A folder of triples to train on, and one run of it."""

import random
from pathlib import Path

import pytest

SMALL = ("--dim", "4", "--batch-size", "20", "--negatives", "5", "--epochs", "2")


@pytest.fixture(scope="session")
def triples(tmp_path_factory) -> Path:
    """90 triples over 16 towns and 3 relations; `Oz` is in test only."""
    towns = [f"town {i}" for i in range(15)]
    rng = random.Random(0)
    rows = sorted(
        {(rng.choice(towns), rng.choice(("near", "north of", "twin of")), rng.choice(towns)) for _ in range(120)}
    )
    rng.shuffle(rows)
    parts = {"train": rows[:70], "valid": rows[70:80], "test": [*rows[80:89], ("Oz", "near", "town 1")]}
    folder = tmp_path_factory.mktemp("data") / "towns"
    folder.mkdir()
    for split, part in parts.items():
        (folder / f"{split}.tsv").write_text("".join("\t".join(row) + "\n" for row in part))
    return folder


@pytest.fixture(scope="session")
def run(triples, call, tmp_path_factory) -> Path:
    """The folder of a finished run; not to be changed."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("runs") / "towns"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOBI_TF_HOME", str(home))
        call("train", "--dataset", triples, "--run-dir", folder, "--eval-every", 1, *SMALL)
    return folder
