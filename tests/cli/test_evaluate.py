import json
import shutil

import keras
import pytest

import jobi_tf

KEYS = {"mrr", "hits@1", "hits@3", "hits@10", "mean_rank"}


def test_json_is_the_evaluation(run, call):
    got = json.loads(call("evaluate", run, "--json").stdout)
    assert got.keys() == KEYS | {
        "triples",
        "unseen_triples",
        "triples_per_second",
        "ties",
        "side",
        "split",
        "head",
        "tail",
    }
    expected = jobi_tf.evaluate(jobi_tf.load_run(run)).to_dict()
    assert got | {"triples_per_second": 0} == expected | {"triples_per_second": 0}
    assert got["head"].keys() == got["tail"].keys() == KEYS
    assert (got["triples"], got["unseen_triples"], got["side"], got["split"]) == (10, 1, "both", "test")


def test_by_relation(run, call):
    got = json.loads(call("evaluate", run, "--split", "valid", "--side", "tail", "--by-relation", "--json").stdout)
    rows = got["by_relation"]
    assert {row["relation"] for row in rows} <= {"near", "north of", "twin of"}
    assert sum(row["triples"] for row in rows) == 10
    assert sum(row["triples"] * row["mrr"] for row in rows) / 10 == pytest.approx(got["mrr"])
    assert "head" not in got
    table = call("evaluate", run, "--split", "valid", "--by-relation").stdout
    assert all(row["relation"] in table for row in rows)


def test_table(run, call):
    lines = call("evaluate", run).stdout.splitlines()
    assert lines[0] == "towns, test split, filtered ranks among 16 entities"
    assert lines[1].split() == ["side", "MRR", "Hits@1", "Hits@3", "Hits@10", "mean", "rank"]
    assert [line.split()[0] for line in lines[2:5]] == ["both", "head", "tail"]
    assert "10 triples, 1 of them with names unseen in training; ties realistic" in lines[5]
    lines = call(
        "evaluate", run, "--side", "head", "--raw", "--ties", "optimistic", "--memory-budget", 1
    ).stdout.splitlines()
    assert "raw ranks" in lines[0]
    assert [line.split()[0] for line in lines[2:-1]] == ["head"]
    assert "ties optimistic" in lines[-1]


def test_filters(run, call):
    def mean_rank(*options):
        return json.loads(call("evaluate", run, "--split", "valid", "--json", *options).stdout)["mean_rank"]

    assert mean_rank("--filter-with-test") < mean_rank() < mean_rank("--raw")


def test_warns_of_ties(run, call, tmp_path):
    flat = shutil.copytree(run, tmp_path / "flat")
    model = keras.saving.load_model(flat / "model.keras")
    model.entity.assign(model.entity * 0)
    model.save(flat / "model.keras")
    result = call("evaluate", flat, "--json")
    assert "Warning: equal scores decide" in result.stderr
    assert json.loads(result.stdout)["mrr"] < 0.5
    assert call("evaluate", run).stderr == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--raw", "--filter-with-test", "--split", "valid"], "expected one of them"),
        (["--filter-with-test"], "is for --split valid or train"),
        (["--devices", "7"], "expected distinct devices"),
        (["--split", "dev"], "'dev' is not one of"),
        (["--memory-budget", "0"], "not in the range"),
    ],
)
def test_refuses(run, call, options, words):
    assert words in call("evaluate", run, *options, status=2).stderr


def damage_config(run):
    (run / "config.yaml").write_text("dim: wide")


def damage_graph(run):
    (run / "graph" / "graph.json").write_text("{")


def cut_model(run):
    path = run / "model.keras"
    path.write_bytes(path.read_bytes()[:2000])


def flip_model(run):
    path = run / "model.keras"
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 1000] = b"x" * 1000
    path.write_bytes(content)


def mix_runs(run):
    (run / "graph" / "entities.txt").write_text("a\nb\n")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_config, "config.yaml: expected"),
        (damage_graph, "expected a prepared graph in"),
        (cut_model, "model.keras, which is missing, cut short or another kind of file"),
        (flip_model, "model.keras, which is damaged"),
        (mix_runs, "the files of two runs are mixed"),
        (lambda run: shutil.rmtree(run / "graph"), "no graph.json"),
    ],
)
def test_damaged_runs(run, call, tmp_path, damage, words):
    copy = shutil.copytree(run, tmp_path / "copy")
    damage(copy)
    assert words in call("evaluate", copy, status=1).stderr
