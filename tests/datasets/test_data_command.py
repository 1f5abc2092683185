import json

import pytest

from jobi_tf.datasets.catalogue import DATASETS

from .files import write_folder


@pytest.fixture
def run(call):
    return lambda *arguments, status=0: call("data", *arguments, status=status).output


def test_list_says_what_is_at_hand(run, tiny, monkeypatch):
    monkeypatch.setenv("JOBI_TF_ARCHIVES", str(tiny[1].parent))
    states = {entry["name"]: entry["state"] for entry in json.loads(run("list", "--json"))}
    assert states == {
        "world": "included",
        "fb15k-237": "to download",
        "fb15k": "to download",
        "yago3-10": "to download",
        "wn18rr": "to download",
        "wn18": "to download",
        "umls": "archive found",
        "kinship": "to download",
        "nations": "to download",
    }
    run("prepare", "umls")
    table = run("list")
    assert "prepared" in next(line for line in table.splitlines() if "umls" in line)
    assert "272,115" in table
    assert set(DATASETS) < set(table.split())


def test_prepare_says_where(run, tiny, home):
    first = run("prepare", "umls", "--archive", str(tiny[1]))
    assert all(words in first for words in ("4 entities", "2 relations", "3 train", f"{home}/graphs/umls"))
    assert f"already in {home}/graphs/umls" in run("prepare", "umls")


def test_prepare_one_file(run, tmp_path):
    path = tmp_path / "all.csv"
    path.write_text("from,how,to,note\n" + "".join(f"{i},r,{i + 1},x\n" for i in range(10)))
    options = ("prepare", str(path), "--split", "0.8/0.1/0.1", "--columns", "from,how,to", "--header", "--seed", "3")
    assert "8 train, 1 valid, 1 test" in run(*options)
    assert "all.csv:2" in run(*options, "--weights", "note", status=1)
    assert "--split" in run("prepare", "world", "--seed", "1", status=2)
    whole = (str(path), "--split", "1/0/0", "--columns", "from,how,to")
    assert "10 train, 0 valid, 0 test" in run("prepare", *whole)
    assert json.loads(run("stats", *whole, "--json"))["triples"] == {"train": 10, "valid": 0, "test": 0}
    assert "Checks of all" in run("check", *whole)
    assert "triples in test" in run("stats", *whole)
    assert "from,how,to" in run(
        "prepare", str(path), "--split", "0.8/0.1/0.1", "--columns", "from,how,to", "--no-header", status=2
    )


def test_check_is_strict_on_request(run, tmp_path):
    assert "train" in run("check", str(tmp_path), status=1)
    folder = str(write_folder(tmp_path / "[bold]", train="a\tr\tb\na\tr\tb\n"))
    assert "/train.tsv:2 repeats" in run("check", folder)
    assert "[bold]" in run("check", folder)
    report = json.loads(run("check", folder, "--json", "--strict", status=1))
    assert not report["clean"]
    clean = write_folder(tmp_path / "clean", valid="b\tr\ta\n", test="c\ts\ta\n")
    assert json.loads(run("check", str(clean), "--json", "--strict"))["clean"]
    assert "itself" in run("check", "world", "--min-support", "5")


def test_stats(run, tmp_path):
    assert "1-N" in run("stats", "world")
    figures = json.loads(run("stats", str(write_folder(tmp_path / "mine")), "--json"))
    assert figures["triples"] == {"train": 3, "valid": 1, "test": 1}
    assert {row["name"] for row in figures["by_relation"]} == {"r", "s"}


def test_prepare_writes_shards(run, tmp_path):
    folder = write_folder(tmp_path / "facts")
    shards = str(tmp_path / "shards")
    run("prepare", str(folder), "--shards", "2", "--out", shards)
    assert len([*(tmp_path / "shards").glob("train-*")]) == 1  # there is but one block
    counts = [json.loads(run("stats", path, "--json"))["triples"] for path in (str(folder), shards)]
    assert counts[0] == counts[1]
    for arguments in (("--shards", "2"), ("--out", shards)):
        assert "--shards" in run("prepare", str(folder), *arguments, status=2)
    assert "shards" in run("prepare", str(folder), "--shards", "2", "--out", shards, status=2)
