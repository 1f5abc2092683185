import json
import sys

import pytest
import tensorflow as tf

import jobi_tf


def test_summary_and_next_command(run, call, tmp_path):
    folder = tmp_path / "versions"
    rows = {line[:13].strip(): line[13:] for line in call("export", run, "--out", folder).stdout.splitlines()}
    assert list(rows) == ["written", "tables", "answers", "calibration", "next"]
    assert rows["written"].startswith(f"{folder / '1'}   (")
    fit = json.loads((folder / "1" / "signature.json").read_text())["calibration"]
    assert f"{fit['ece_before']:.3f} → {fit['ece_after']:.3f}, on 10 valid triples" in rows["calibration"]
    assert rows["next"] == f"jobi-tf serve {folder}"
    answer = tf.saved_model.load(str(folder / "1")).signatures["predict_tails"](
        head=tf.constant(["town 1"]), relation=tf.constant(["near"]), k=tf.constant([10])
    )
    expected = jobi_tf.load_run(run).tails("town 1", "near")
    assert [name.decode() for name in answer["tail"].numpy()[0]] == [x.entity for x in expected]


def test_nothing_is_exported_into_a_run(run, call):
    assert "jobi-tf merge" in call("export", run, run, status=2).stderr  # who wants to export a pool writes this
    assert not (run / "1").exists()


def test_every_option(run, call, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("town 1\ntown 2\ntown 3\n")
    options = ("--version", 5, "-k", 2, "--dtype", "float16", "--candidates", names, "--typed", "--no-warmup")
    rows = {
        line[:13].strip(): line[13:]
        for line in call("export", run, tmp_path / "versions", *options).stdout.splitlines()
    }
    assert "3 candidates" in rows["answers"]
    assert "of 20 queries" in rows["drift"]
    folder = tmp_path / "versions" / "5"
    contract = json.loads((folder / "signature.json").read_text())
    assert [contract[name] for name in ("top_k", "dtype", "candidates", "typed")] == [2, "float16", 3, True]
    assert not (folder / "assets.extra").exists()


def test_without_tensorflow_serving_api(run, call, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorflow_serving"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    said = call("export", run, tmp_path / "versions")
    assert "Warning: " in said.stderr
    assert "jobi-tf[serving]" in said.stderr
    assert (tmp_path / "versions" / "1" / "saved_model.pb").is_file()
    assert not (tmp_path / "versions" / "1" / "assets.extra").exists()


@pytest.mark.parametrize(
    ("options", "status", "named"),
    [
        (("--version", 0), 2, "--version"),
        (("-k", 1001), 2, "-k"),
        (("--dtype", "int8"), 2, "int8"),
        (("--candidates", "nowhere.txt"), 2, "nowhere.txt"),
        (("--typed", "--typed"), 2, "--typed"),
    ],
)
def test_bad_options(run, call, tmp_path, options, status, named):
    assert named in call("export", run, tmp_path / "versions", *options, status=status).stderr
    assert not (tmp_path / "versions").exists()


def test_not_a_run_and_not_a_folder(run, call, tmp_path):
    assert str(tmp_path) in call("export", tmp_path, tmp_path / "x", status=1).stderr
    path = tmp_path / "file"
    path.write_text("mine")
    assert str(path) in call("export", run, path, status=2).stderr
    assert "''" in call("export", run, "", status=2).stderr  # a shell's variable without a value
    assert str(path) in call("export", run, path / "x", status=1).stderr
