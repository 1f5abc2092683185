import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from .conftest import SMALL


def settings(folder) -> dict:
    return yaml.safe_load((folder / "config.yaml").read_text())


def test_prints_before_and_after(triples, call, tmp_path):
    result = call("train", "--dataset", triples, "--run-dir", tmp_path / "a run", *SMALL)
    for words in ("16 entities", "70 train", "d = 4", "176 parameters", "CPU:0", "epoch 2/2  loss", "MRR"):
        assert words in result.stderr
    assert f"jobi-tf evaluate '{tmp_path}/a run'" in result.stderr
    assert result.stdout.endswith(f"run folder {tmp_path}/a run\n")
    assert "\x1b" not in result.output
    assert "\r" not in result.output


def test_suggests_what_can_be_done_without_test_triples(triples, call, tmp_path):
    for shares, words in (("0.8/0.2/0", "--split valid"), ("1/0/0", "complete")):
        folder = tmp_path / words
        options = ("--split", shares, "--run-dir", folder, "--eval-every", 0 if words == "complete" else 1)
        result = call("train", triples / "train.tsv", *options, *SMALL)
        assert words in next(line for line in result.stderr.splitlines() if line.startswith("next: "))
    assert "has train triples" in call("evaluate", folder, status=1).stderr


def test_prints_how_many_embeddings_were_copied(triples, call, tmp_path):
    np.savez(tmp_path / "part.npz", names=["town 3", "elsewhere"], vectors=np.ones((2, 8), np.float32))
    options = ("--entity-vectors", tmp_path / "part.npz", "--run-dir", tmp_path / "run", *SMALL)
    assert "1 of 16 entities" in call("train", triples, *options, "--model", "ComplEx").stderr
    assert settings(tmp_path / "run")["model"] == "complex"


def test_later_sources_win(triples, call, tmp_path, monkeypatch):
    file, folder = Path("options"), tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    file.write_text("dataset: umls\ndim: 3\np: 0.1\nnegatives: 2\nepochs: 1\nbatch_size: 70\njoint: false\n")
    options = ("--set", "p=0.2", "--set", "eval-every=0", "--negatives", 4, "--run-dir", folder)
    assert "one data set" in call("train", "umls", "--dataset", "world", status=2).stderr
    quiet = call("train", triples, "-q", "--config", file, *options)
    assert quiet.stderr == ""
    assert str(folder) in quiet.stdout
    chosen = settings(folder)
    assert (chosen["dim"], chosen["p"], chosen["negatives"], chosen["eval_every"]) == (3, 0.2, 4, 0)
    assert (chosen["joint"], chosen["seed"]) == (False, 0)
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--p", "1.5"], ["--p", "1.5", "0<=x<=1"]),
        (["--p", "nan"], ["p", "nan"]),
        (["--dim", "0"], ["--dim", "x>=1"]),
        (["--label-smoothing", "1"], ["--label-smoothing", "0<=x<1"]),
        (["--learning-rate", "0"], ["--learning-rate", "x>0"]),
        (["--model", "transh"], ["transh", "distmult"]),
        (["--batch-size", "71"], ["71", "70"]),
        (["--joint", "--no-joint"], ["--joint/--no-joint"]),
        (["--no-joint", "--alpha", "1"], ["alpha", "joint"]),
        (["--eval-every", "0", "--patience", "3"], ["patience", "eval_every"]),
        (["--freeze-entities"], ["freeze_entities"]),
        (["--devices", "5"], ["CPU:0"]),
        (["--devices", "x"], ["devices", "'x'"]),
        (["--checkpoint-every", "0"], ["checkpoint_every", "'0'"]),
        (["--set", "p"], ["--set", "'p'"]),
        (["--set", "p=2"], ["--set", "p", "2"]),
        (["--set", "width=2"], ["--set", "'width'"]),
        (["--set", "p=0", "--set", "p=1"], ["--set p="]),
        (["--config", "nowhere.yaml"], ["nowhere.yaml"]),
        (["--resume", "nowhere"], ["nowhere"]),
        (["--split", "0.8/0.1/0.1"], ["split"]),
    ],
)
def test_rejects(triples, call, tmp_path, options, words):
    result = call("train", "--dataset", triples, "--run-dir", tmp_path / "run", *options, status=2)
    assert [word for word in words if word not in result.stderr] == []
    assert not (tmp_path / "run").exists()


def test_rejects_other_data_sets_and_folders(triples, call, tmp_path):
    assert "umls" in call("train", "--dataset", "umlz", status=2).stderr
    assert "--dataset" in call("train", status=2).stderr
    (tmp_path / "file").touch()
    assert str(tmp_path) in call("train", "--dataset", triples, "--run-dir", tmp_path, status=2).stderr
    below = call("train", "--dataset", triples, "--run-dir", tmp_path / "file" / "run", *SMALL, status=1)
    assert f"{tmp_path}/file/run" in below.stderr


@pytest.mark.parametrize("text", ["p: 1.5", "width: 3", "- 1", "a: [", "p: 2026-02-30"])
def test_names_the_file_of_settings(triples, call, tmp_path, text):
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    assert str(file) in call("train", "--dataset", triples, "--config", file, status=2).stderr


def test_damaged_ids_in_shards_are_a_failure(triples, call, tmp_path):
    call("data", "prepare", triples, "--shards", 1, "--out", tmp_path / "shards")
    (path,) = (tmp_path / "shards").glob("train-*")
    path.write_bytes(b"\xff" * path.stat().st_size)
    options = ("--batch-size", 20, "--eval-every", 0, "--run-dir", tmp_path / "run", "-q")
    result = call("train", "--dataset", tmp_path / "shards", *options, status=1)
    assert "out of range" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    (tmp_path / "shards" / "graph.json").unlink()  # by an incomplete copy
    assert "graph.json" in call("train", "--dataset", tmp_path / "shards", status=1).stderr


def test_a_loss_that_is_not_finite_is_a_failure(triples, call, tmp_path):
    options = ("--dataset", triples, "--run-dir", tmp_path / "run", "--learning-rate", "1e30")
    assert "loss" in call("train", *options, *SMALL, status=1).stderr
    assert not (tmp_path / "run" / "model.keras").exists()


def test_resume_keeps_the_settings(run, call, tmp_path):
    assert "dim" in call("train", "--resume", run, "--dim", 5, status=2).stderr
    assert "p 0.3" in call("train", "--resume", run, "--set", "p=0.5", status=2).stderr
    assert "--run-dir" in call("train", "--resume", run, "--run-dir", tmp_path, status=2).stderr
    assert "2 epochs" in call("train", "--resume", run, "--epochs", 1, status=2).stderr
    assert "config.yaml" in call("train", "--resume", tmp_path, status=1).stderr
    call("train", "--resume", run)
    assert [json.loads(row)["epoch"] for row in (run / "metrics.jsonl").open()] == [1, 2]
