import json

import pytest

import jobi_tf

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


def test_typed_answers_were_seen_with_the_relation(run, call):
    trained = jobi_tf.load_run(run)
    relation = trained.graph.relations.id("north of")
    names = {trained.graph.entities[t] for _, r, t in trained.graph.train.tolist() if r == relation}
    query = ("--head", "town 1", "--relation", "north of", "-k", 16, "--json")
    found = [json.loads(call("predict", run, *query, *typed).stdout)["answers"] for typed in ((), ("--typed",))]
    assert 0 < len(names) < len(found[0]) == 16
    assert [x["entity"] for x in found[1]] == [x["entity"] for x in found[0] if x["entity"] in names]


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


def test_files(run, call, tmp_path):
    queries = "\ufefftown 1\tnear\t?\r\n\tnorth of\ttown 2\ntown 1\tnear\t\n"
    source, target = tmp_path / "queries.tsv", tmp_path / "answers.tsv"
    source.write_text(queries, encoding="utf-8", newline="")
    call("predict", run, "--input", source, "--output", target, "-k", 2)
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
        (b"town 1\tnear\t?\n\n", ":2: expected head, relation and tail with TABs between them, got a blank line"),
        (b"town 1\tnear\n", ":1: expected head, relation and tail with TABs between them, got 2 fields"),
        (b"town 1\tnear\ttown 2\n", ":1: expected one of head and tail to be ? or empty, got 'town 1' and 'town 2'"),
        (b"?\tnear\t\n", ":1: expected one of head and tail to be ? or empty"),
        (b"town 1\tnear\t?\n?\tnear\ttwon 2\n", ":2: unknown entity 'twon 2'"),
        (b"town 1\tnaer\t?\n", "unknown relation 'naer': not among the 3 of this graph; did you mean 'near'"),
        (b"town \xff\tnear\t?\n", ":1: expected text in UTF-8, got byte 0xff"),
        (b"", "got an empty file"),
    ],
)
def test_bad_files(run, call, tmp_path, content, words):
    source, target = tmp_path / "queries.tsv", tmp_path / "answers.tsv"
    source.write_bytes(content)
    target.write_text("mine")
    assert words in call("predict", run, "--input", source, "--output", target, status=1).stderr
    assert target.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.tsv", "queries.tsv"]


def test_unwritable_answers(run, call, tmp_path):
    source = tmp_path / "queries.tsv"
    source.write_text("town 1\tnear\t?\n")
    for target, words in (tmp_path, "is a folder"), (tmp_path / "no" / "x", f"cannot write {tmp_path}/no/x: No such"):
        assert words in call("predict", run, "--input", source, "--output", target, status=1).stderr


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        ([], 2, "expected --relation with --head or --tail, or --input"),
        (["--relation", "near"], 2, "expected --relation with --head or --tail"),
        (["--head", "town 1"], 2, "expected --relation with --head or --tail"),
        (["--input", "x", "--head", "y"], 2, "--head is for a single query"),
        (["--input", "x", "--json"], 2, "--json is for a single query"),
        (["--output", "x", *QUERY], 2, "--output is for the answers to --input"),
        ([*QUERY, "-k", "0"], 2, "0 is not in the range"),
        ([*QUERY, "--tail", "town 2", "-k", "3"], 2, "-k is for an open side"),
        ([*QUERY, "--tail", "town 2", "--new-only"], 2, "--new-only is for an open side"),
        (["--head", "twon 1", "--relation", "near"], 1, "unknown entity 'twon 1'"),
        (["--input", "nowhere.tsv"], 1, "nowhere.tsv: No such file"),
    ],
)
def test_refuses(run, call, options, status, words):
    assert words in call("predict", run, *options, status=status).stderr


def test_not_a_run(call, tmp_path):
    assert f"found no config.yaml in {tmp_path}" in call("predict", tmp_path, *QUERY, status=1).stderr
