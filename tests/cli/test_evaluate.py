import json
import shutil

import keras
import pytest

import jobi_tf
from jobi_tf.errors import DataError
from jobi_tf.report.runs import stored_evaluation, stored_ranks
from jobi_tf.training.run_folder import PRETRAINED

KEYS = {"mrr", "hits@1", "hits@3", "hits@10", "mean_rank"}


def test_json_is_the_evaluation(run, call):
    got = json.loads(call("evaluate", run, "--json").stdout)
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
    lines = call("evaluate", "--run-dir", run).stdout.splitlines()
    assert "filtered ranks among 16 entities" in lines[0]
    assert lines[1].split() == ["side", "MRR", "Hits@1", "Hits@3", "Hits@10", "mean", "rank"]
    assert [line.split()[0] for line in lines[2:5]] == ["both", "head", "tail"]
    assert lines[5].startswith("10 triples, 1 of them")
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


def test_results_are_stored(run, call, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("town 1\ntown 2\n")
    copy = shutil.copytree(run, tmp_path / "copy")
    for options, name in (
        ((), "test"),
        (("--raw",), "test-raw"),
        (("--split", "valid", "--side", "tail"), "valid-tail"),
        (("--split", "valid", "--filter-with-test"), "valid-filter-with-test"),
        (("--candidates", names), "test-candidates-*"),
    ):
        printed = json.loads(call("evaluate", copy, "--json", *options).stdout)
        (file,) = (copy / "evaluations").glob(f"{name}.json")
        stored = json.loads(file.read_text())
        assert stored.items() >= printed.items()
    ranks = jobi_tf.evaluate(jobi_tf.load_run(run)).ranks
    assert stored_ranks(copy).T.tolist() == [ranks["head"].ranks().tolist(), ranks["tail"].ranks().tolist()]
    assert json.loads(call("evaluate", copy, "--candidates", names, "--json").stdout)["mean_rank"] <= 3
    names.write_text("town 3\n")
    call("evaluate", copy, "--candidates", names)
    assert len([*copy.glob("evaluations/test-candidates-*.json")]) == 2
    assert stored_evaluation(copy)["mrr"] == pytest.approx((1 / stored_ranks(copy)).mean())


def test_an_evaluation_of_another_model_is_stale(run, call, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    call("evaluate", copy)
    epoch = stored_evaluation(copy)["epoch"]
    row = {"epoch": epoch + 1, "val_mrr": 2, "val_hits@1": 1, "val_hits@3": 1, "val_hits@10": 1, "val_mean_rank": 1}
    with (copy / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    assert stored_evaluation(copy) == {}
    with pytest.raises(DataError, match="jobi-tf evaluate"):
        stored_ranks(copy)


def test_warns_of_ties(run, call, tmp_path):
    flat = shutil.copytree(run, tmp_path / "flat")
    model = keras.saving.load_model(flat / "model.keras")
    model.entities.table.assign(model.entities.table * 0)
    model.save(flat / "model.keras")
    result = call("evaluate", flat, "--json")
    assert "Warning" in result.stderr
    assert json.loads(result.stdout)["mrr"] < 0.5
    assert "Warning" not in call("evaluate", run).stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--raw", "--filter-with-test", "--split", "valid"], "--raw"),
        (["--filter-with-test"], "--filter-with-test"),
        (["--devices", "7"], "CPU:0"),
        (["--split", "dev"], "'dev'"),
        (["--memory-budget", "0"], "--memory-budget"),
        (["--candidates", "nowhere"], "nowhere"),
        (["--run-dir", "."], "--run-dir"),
    ],
)
def test_rejects(run, call, options, words):
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
    shutil.copyfile(PRETRAINED["world"] / "model.keras", run / "model.keras")


def cut_names(run):
    (run / "graph" / "entities.txt").write_text("a\nb\n")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_config, "config.yaml"),
        (damage_graph, "graph"),
        (cut_model, "model.keras"),
        (flip_model, "model.keras"),
        (lambda run: (run / "model.keras").unlink(), "model.keras"),
        (mix_runs, "different runs"),
        (cut_names, "damaged"),
        (lambda run: shutil.rmtree(run / "graph"), "no graph.json"),
    ],
)
def test_damaged_runs(run, call, tmp_path, damage, words):
    copy = shutil.copytree(run, tmp_path / "copy")
    damage(copy)
    assert words in call("evaluate", copy, status=1).stderr
