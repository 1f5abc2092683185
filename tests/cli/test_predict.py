import json

import pytest

import jobi_tf
from jobi_tf.evaluation.metrics import rank_text

QUERY = ("--head", "town 1", "--relation", "near")


def test_json_is_the_run(run, call):
    got = json.loads(call("predict", run, *QUERY, "-k", 3, "--json").stdout)
    expected = jobi_tf.load_run(run).tails("town 1", "near", 3)
    assert (got["head"], got["relation"], got["tail"]) == ("town 1", "near", None)
    assert [tuple(row.values()) for row in got["answers"]] == [(i, *answer) for i, answer in enumerate(expected, 1)]
    got = json.loads(call("predict", run, "--relation", "near", "--tail", "town 1", "--json").stdout)
    assert [row["entity"] for row in got["answers"]] == [
        x.entity for x in jobi_tf.load_run(run).heads("near", "town 1")
    ]


def test_table_marks_known_facts(triples, run, call):
    head, relation, tail = (triples / "train.tsv").read_text().splitlines()[0].split("\t")
    query = ("--head", head, "--relation", relation, "-k", 16)
    lines = call("predict", run, *query).stdout.splitlines()
    assert lines[0] == f"{head}, {relation}, ?   (towns)"
    assert lines[1].split() == ["rank", "tail", "score"]
    known = [line for line in lines if "known fact" in line]
    assert any(f"  {tail} " in line for line in known)
    assert len(lines) == 2 + 16
    new = call("predict", run, *query, "--new-only").stdout.splitlines()
    assert len(new) == len(lines) - len(known)
    assert not any("known" in line for line in new)


def test_names_that_training_never_saw_are_pointed_out(call, tmp_path):
    (tmp_path / "g").mkdir()
    for split, lines in (("train", "a\tr\tb\nb\tr\tc\n"), ("valid", "a\tr\tnew\n"), ("test", "a\trare\tb\n")):
        (tmp_path / "g" / f"{split}.tsv").write_text(lines)
    options = ("--dim", 2, "--epochs", 1, "--eval-every", 0, "--tensorboard", "none", "--run-dir", tmp_path / "run")
    call("train", "-q", tmp_path / "g", *options)
    query = ("--head", "a", "--relation")
    assert call("predict", tmp_path / "run", *query, "r").stderr == ""
    assert "'rare'" in call("predict", tmp_path / "run", *query, "rare").stderr
    assert "'new'" in call("predict", tmp_path / "run", *query, "r", "--tail", "new").stderr


def test_typed_answers_were_seen_with_the_relation(run, call):
    trained = jobi_tf.load_run(run)
    relation = trained.graph.relations.id("north of")
    names = {trained.graph.entities[t] for _, r, t in trained.graph.train.tolist() if r == relation}
    query = ("--head", "town 1", "--relation", "north of", "-k", 16, "--json")
    found = [json.loads(call("predict", run, *query, *typed).stdout)["answers"] for typed in ((), ("--typed",))]
    assert 0 < len(names) < len(found[0]) == 16
    assert [x["entity"] for x in found[1]] == [x["entity"] for x in found[0] if x["entity"] in names]


def test_candidates(run, call, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("town 2\ntown 5\n")
    answers = json.loads(call("predict", run, *QUERY, "--candidates", names, "--json").stdout)["answers"]
    assert {row["entity"] for row in answers} == {"town 2", "town 5"}
    names.write_text("twon 2\n")
    assert "twon 2" in call("predict", run, *QUERY, "--candidates", names, status=1).stderr


def test_score_of_a_triple(run, call):
    triple = ("town 1", "near", "town 2")
    options = ("--head", triple[0], "--relation", triple[1], "--tail", triple[2])
    got = json.loads(call("predict", run, *options, "--json").stdout)
    trained = jobi_tf.load_run(run)
    assert got["score"] == pytest.approx(float(trained.score([triple])[0]), abs=1e-6)
    rivals = trained.tails("town 1", "near", 16, new_only=True)
    better = [x for x in rivals if x.entity != "town 2" and x.score > got["score"]]
    assert got["tail_rank"] == 1 + len(better)
    assert "filtered rank among 16 entities" in call("predict", run, *options).stdout
    assert [rank_text(x) for x in (1.0, 2.5, 1234567.5)] == ["1", "2.5", "1,234,567.5"]


def test_files(run, call, tmp_path):
    queries = "\ufefftown 1\tnear\t?\r\n\tnorth of\ttown 2\ntown 1\tnear\t\n"
    source, target = tmp_path / "queries.tsv", tmp_path / "answers.tsv"
    source.write_text(queries, encoding="utf-8", newline="")
    call("predict", run, "--input", source, "--out", target, "-k", 2)
    rows = [line.split("\t") for line in target.read_text().splitlines()]
    assert rows[0] == ["head", "relation", "tail", "score", "known", "rank"]
    trained = jobi_tf.load_run(run)
    tails = [
        ["town 1", "near", x.entity, f"{x.score:.6g}", "yes" if x.known else "no"]
        for x in trained.tails("town 1", "near", 2)
    ]
    heads = [
        [x.entity, "north of", "town 2", f"{x.score:.6g}", "yes" if x.known else "no"]
        for x in trained.heads("north of", "town 2", 2)
    ]
    assert [row[:5] for row in rows[1:]] == tails + heads + tails
    assert [row[5] for row in rows[1:]] == ["1", "2"] * 3
    assert call("predict", run, "--input", "-", "-k", 2, stdin=queries).stdout == target.read_text()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"town 1\tnear\t?\n\ntown 1\tnear\t?\n", "queries.tsv:2: "),
        (b"town 1\tnear\n", "queries.tsv:1: "),
        (b"town 1\tnear\ttown 2\n", "queries.tsv:1: "),
        (b"?\tnear\t\n", "queries.tsv:1: "),
        (b"town 1\tnear\t?\n?\tnear\ttwon 2\n", "queries.tsv:2: unknown entity 'twon 2'"),
        (b"town 1\tnaer\t?\n", "'near'"),
        (b"town \xff\tnear\t?\n", "queries.tsv:1: "),
        (b"", "queries.tsv"),
    ],
)
def test_bad_files(run, call, tmp_path, content, words):
    source, target = tmp_path / "queries.tsv", tmp_path / "answers.tsv"
    source.write_bytes(content)
    target.write_text("mine")
    assert words in call("predict", run, "--input", source, "--out", target, status=1).stderr
    assert target.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.tsv", "queries.tsv"]


def test_unwritable_answers(run, call, tmp_path):
    source = tmp_path / "queries.tsv"
    source.write_text("town 1\tnear\t?\n")
    for target in (tmp_path, tmp_path / "no" / "x"):
        assert str(target) in call("predict", run, "--input", source, "--out", target, status=2).stderr


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        ([], 2, "--relation"),
        (["--relation", "near"], 2, "--head"),
        (["--head", "town 1"], 2, "--relation"),
        (["--input", "-", "--head", "y"], 2, "--head"),
        (["--input", "-", "--json"], 2, "--json"),
        (["--out", "x", *QUERY], 2, "--out"),
        ([*QUERY, "-k", "0"], 2, "-k"),
        ([*QUERY, "--tail", "town 2", "-k", "3"], 2, "-k"),
        ([*QUERY, "--tail", "town 2", "--new-only"], 2, "--new-only"),
        (["--head", "twon 1", "--relation", "near"], 1, "'twon 1'"),
        (["--input", "nowhere.tsv"], 2, "nowhere.tsv"),
    ],
)
def test_rejects(run, call, options, status, words):
    assert words in call("predict", run, *options, status=status).stderr


def test_not_a_run(call, tmp_path):
    assert str(tmp_path) in call("predict", tmp_path, *QUERY, status=1).stderr
