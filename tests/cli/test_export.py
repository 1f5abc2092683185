import json

import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.cli import export
from jobi_tf.export.export import DTYPES, TOP_K


def test_summary_and_next_command(run, call, tmp_path):
    folder = tmp_path / "versions"
    said = call("export", run, folder).stdout.splitlines()
    rows = {line[:13].strip(): line[13:] for line in said}
    assert list(rows) == ["written", "tables", "answers", "calibration", "serve it by"]
    assert rows["written"].startswith(f"{folder / '1'}   (")
    assert (rows["tables"], rows["answers"]) == ("float32", "10 a query")
    fit = json.loads((folder / "1" / "signature.json").read_text())["calibration"]
    assert rows["calibration"] == f"error {fit['ece_before']:.3f} → {fit['ece_after']:.3f}, on 10 valid triples"
    assert rows["serve it by"] == f"jobi-tf serve {folder}"
    answer = tf.saved_model.load(str(folder / "1")).signatures["predict_tails"](
        head=tf.constant(["town 1"]), relation=tf.constant(["near"])
    )
    expected = jobi_tf.load_run(run).tails("town 1", "near")
    assert [name.decode() for name in answer["tail"].numpy()[0]] == [x.entity for x in expected]


def test_every_option(run, call, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("town 1\ntown 2\ntown 3\n")
    options = ("--version", 5, "--top-k", 2, "--dtype", "float16", "--candidates", names, "--typed", "--no-warmup")
    said = call("export", run, tmp_path / "versions", *options).stdout
    assert "answers      2 a query among 3 candidates seen with the relation\n" in said
    assert "drift        of scores " in said
    assert "% of 20 queries" in said
    folder = tmp_path / "versions" / "5"
    contract = json.loads((folder / "signature.json").read_text())
    assert [contract[name] for name in ("top_k", "dtype", "candidates", "typed")] == [2, "float16", 3, True]
    assert not (folder / "assets.extra").exists()


def test_the_defaults_are_those_of_the_library():
    options = {option.name: option for option in export.export.params}
    assert tuple(options["dtype"].type.choices) == DTYPES
    assert options["top_k"].default == TOP_K


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--version", 0), 2, "expected a version from 1 to"),
        (("--top-k", 17), 2, "expected from 1 to 16 answers a query (top-k), got 17"),
        (("--dtype", "int8"), 2, "'int8' is not one of 'float32', 'float16'"),
        (("--candidates", "nowhere.txt"), 1, "expected a file of entities at nowhere.txt: No such file"),
        (("--typed", "--typed"), 2, "expected --typed at most once"),
    ],
)
def test_refuses(run, call, tmp_path, options, status, words):
    assert words in call("export", run, tmp_path / "versions", *options, status=status).stderr
    assert not (tmp_path / "versions").exists()


def test_not_a_run_and_not_a_folder(run, call, tmp_path):
    assert f"found no config.yaml in {tmp_path}" in call("export", tmp_path, tmp_path / "x", status=1).stderr
    path = tmp_path / "file"
    path.write_text("mine")
    assert f"expected a folder for the versions, {path} is a file" in call("export", run, path, status=2).stderr
    assert call("export", run, path / "x", status=1).stderr.count("\n") == 1
