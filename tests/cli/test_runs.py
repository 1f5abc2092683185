import json
import shutil

import numpy as np
import pytest

from jobi_tf.evaluation.significance import paired_bootstrap
from jobi_tf.report.runs import stored_ranks

from .conftest import SMALL


@pytest.fixture(scope="module")
def folder(run, triples, call, tmp_path_factory):
    """Three runs: two that differ in p and dim, both evaluated, and one on another graph."""
    folder = tmp_path_factory.mktemp("runs") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOBI_TF_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        options = ("--dataset", triples, "--eval-every", 1, "--epochs", 3, "--batch-size", 20, "--p", 0.1)
        call("train", "-q", *options, "--dim", 8, "--run-dir", folder / "deep" / "second")
        call("train", "-q", "--dataset", "world", "--run-dir", folder / "world", "--eval-every", 0, *SMALL)
        shutil.copytree(run, folder / "first", ignore=shutil.ignore_patterns("evaluations"))
        for name in ("first", "deep/second"):
            call("evaluate", folder / name)
    return folder


def listed(call, *options) -> list[dict]:
    return json.loads(call("runs", *options, "--json").stdout)


def names(rows: list[dict]) -> list[str]:
    return [row["run"].rpartition("runs/")[2] for row in rows]


def test_lists_settings_and_metrics(folder, call):
    rows = listed(call, folder)
    assert names(rows) == ["deep/second", "first", "world"]
    assert [(row["dim"], row["p"], row["epochs_done"]) for row in rows] == [(8, 0.1, 3), (4, 0.3, 2), (4, 0.3, 2)]
    epochs = [json.loads(line) for line in (folder / "first" / "metrics.jsonl").open()]
    best = max(epochs, key=lambda epoch: epoch["val_mrr"])
    assert [rows[1][x] for x in ("val_mrr", "val_hits@10")] == [best[x] for x in ("val_mrr", "val_hits@10")]
    assert rows[1]["test_mrr"] == json.loads((folder / "first" / "evaluations" / "test.json").read_text())["mrr"]
    assert rows[2]["val_mrr"] is rows[2]["test_mrr"] is None
    assert (rows[1]["patience"], rows[2]["patience"]) == (2, None)  # without effect where nothing is ranked
    table = call("runs", "list", folder).stdout
    assert "--dim 8" in table
    assert "--dataset world" in table
    assert "--seed" not in table
    assert f"{rows[0]['test_mrr']:.4f}" in table


def test_sorts_and_filters(folder, call):
    assert names(listed(call, folder, "--sort", "dim")) == ["first", "world", "deep/second"]
    rows = listed(call, folder, "--sort", "test_mean_rank")
    assert rows[0]["test_mean_rank"] <= rows[1]["test_mean_rank"]
    assert names(rows)[2] == "world"
    rows = listed(call, folder, "--sort", "test_mrr")
    assert rows[0]["test_mrr"] >= rows[1]["test_mrr"]
    assert names(listed(call, folder, "--filter", "dim=4", "--filter", "eval_every=0")) == ["world"]
    assert listed(call, folder, "--filter", "dim=5") == []
    for option in ("--sort", "size"), ("--filter", "size=1"), ("--filter", "dim"), ("--filter", "model=complx"):
        assert option[1].split("=")[0] in call("runs", folder, *option, status=2).stderr


def test_a_damaged_run_does_not_hide_the_others(folder, call, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "runs")
    (copy / "world" / "config.yaml").write_text("dim: wide")
    result = call("runs", copy, "--json")
    assert names(json.loads(result.stdout)) == ["deep/second", "first"]
    assert "config.yaml" in result.stderr


def test_compare(folder, call):
    first, second = folder / "first", folder / "deep" / "second"
    got = json.loads(call("runs", "compare", first, second, "--samples", 500, "--seed", 7, "--json").stdout)
    assert got["settings"].items() >= {"dim": [4, 8], "p": [0.3, 0.1], "epochs": [2, 3]}.items()
    assert "seed" not in got["settings"]
    values = [(1 / stored_ranks(path)).mean(1) for path in (first, second)]
    assert got["test"]["mrr"] == pytest.approx(paired_bootstrap(*values, samples=500, seed=7)._asdict())
    hits = [np.mean(stored_ranks(path) <= 10) for path in (first, second)]
    assert got["test"]["hits@10"]["mean"] == pytest.approx(hits[1] - hits[0])
    table = call("runs", "compare", first, second).stdout
    assert all(word in table for word in ("dim", "MRR", "Hits@10", f"{got['test']['mrr']['mean']:+.4f}"))


@pytest.mark.parametrize("command", ["evaluate", "merge --out x", "runs compare", "report"])
def test_a_run_is_called_as_the_user_calls_it(call, command):
    assert "got world, world." in call(*command.split(), "world", "world", status=2).stderr


def test_what_cannot_be_compared(folder, call, tmp_path):
    first = folder / "first"
    assert "world" in call("runs", "compare", first, folder / "world", status=2).stderr
    assert str(first) in call("runs", "compare", first, first, status=2).stderr
    copy = shutil.copytree(first, tmp_path / "copy", ignore=shutil.ignore_patterns("evaluations"))
    assert f"jobi-tf evaluate {copy}" in call("runs", "compare", first, copy, status=1).stderr
    (copy / "evaluations").mkdir()
    for name in ("test.json", "test.npz"):
        stored = (first / "evaluations" / name).read_bytes()
        for content in (b"no", stored[: len(stored) // 2]):
            (copy / "evaluations" / name).write_bytes(content)
            assert name in call("runs", "compare", first, copy, status=1).stderr
        shutil.copy(first / "evaluations" / name, copy / "evaluations")
