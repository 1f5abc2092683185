import gzip
import hashlib
import json
import random
import re
import shlex

import pytest

import jobi_tf
from jobi_tf.data.graph import SPLITS


def lines(count: int = 400, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    names = [f"town {i}" for i in range(40)]
    ends = [names[int(40 * draw.random() ** 2)] for _ in range(2 * count)]
    return [f"{h}\t{draw.choice('rs')}\t{t}\n" for h, t in zip(ends[::2], ends[1::2], strict=True)]


def content(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def towns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "towns.tsv"
    path.write_text("".join([*lines(), "Oz\tr\ttown 1\n"]))
    return path


def test_what_is_built_can_be_read(towns, tmp_path, call):
    result = call("data", "build", "--from", "towns.tsv", "--valid", "20", "--test", "0.1", "--min-triples", "8")
    counts = dict(re.findall(r"^in (\w+) +(\d+)$", result.stdout, re.MULTILINE))
    graph = jobi_tf.load_graph(tmp_path / "towns-min8")
    assert counts == {split: str(len(graph.split(split))) for split in SPLITS}
    assert counts["valid"] == "20"
    assert result.stdout.endswith("--dataset towns-min8\n")
    assert "41 entities, 2 relations, 401 triples" in result.stderr
    assert "Oz" not in graph.entities.names
    assert graph.seen_in_training.all()
    every = [line for split in SPLITS for line in (tmp_path / "towns-min8" / f"{split}.txt").read_text().splitlines()]
    assert len(set(every)) == len(every)
    assert set(every) < {line.strip() for line in lines()}
    assert not list(tmp_path.glob(".towns*"))
    kept = re.search(r"^kept +(\d+) +(\d+) ", result.stdout, re.MULTILINE)
    assert (
        f": {kept[1]} entities, {kept[2]} relations; {counts['train']} t"
        in call("data", "prepare", "towns-min8").stdout
    )


def test_it_can_be_repeated(towns, tmp_path, call):
    call("data", "build", "--from", towns, "--seed", 3, "--no-header", "--out", "first")
    call("data", "build", "--from", towns, "--seed", 4, "--no-header", "--out", "other")
    facts = json.loads((tmp_path / "first" / "build.json").read_text())
    assert facts["recipe"] == {"min_triples": 5, "valid": None, "test": None, "seed": 3}
    assert facts["report"]["splits"]["test"] == len((tmp_path / "first" / "test.txt").read_text().splitlines())
    digest = hashlib.sha256(towns.read_bytes()).hexdigest()
    assert facts["from"] == [{"file": str(towns), "bytes": towns.stat().st_size, "sha256": digest}]
    for made in facts["made"]:
        assert hashlib.sha256((tmp_path / "first" / made["file"]).read_bytes()).hexdigest() == made["sha256"]
    assert {made["file"] for made in facts["made"]} == {"train.txt", "valid.txt", "test.txt"}
    (tmp_path / "first").rename(tmp_path / "before")
    call(*shlex.split(facts["command"])[1:], "--out", "first")
    assert content(tmp_path / "first") == content(tmp_path / "before")
    assert content(tmp_path / "first")["test.txt"] != content(tmp_path / "other")["test.txt"]


def test_several_files_of_every_kind(tmp_path, call):
    rows = lines()
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("".join(rows[:200]).encode()))
    fields = [line.strip().split("\t") for line in rows[150:]]
    (tmp_path / "b.csv").write_text("note,from,how,to\n" + "".join(f'"x, y",{h},{r},{t}\n' for h, r, t in fields))
    (tmp_path / "whole.tsv").write_text("".join(rows))
    call("data", "build", "--from", tmp_path / "whole.tsv", "--out", tmp_path / "one")
    call("data", "build", "--from", tmp_path / "a.txt.gz", "--out", tmp_path / "half")
    text = "note,from,how,to\n" + "".join(f"x,{','.join(line.strip().split(chr(9)))}\n" for line in rows[:200])
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    options = ("--columns", "from,how,to", "--out", tmp_path / "two")
    result = call("data", "build", "--from", tmp_path / "a.csv.gz", "--from", tmp_path / "b.csv", *options)
    assert re.search(rf"^without repeats +\d+ +2 +{len(set(rows))}$", result.stdout, re.MULTILINE)
    for split in SPLITS:
        assert (tmp_path / "one" / f"{split}.txt").read_text() == (tmp_path / "two" / f"{split}.txt").read_text()


def test_a_first_triple_never_reads_as_a_header(tmp_path, call):
    path = tmp_path / "odd.tsv"
    loops = "".join(f"{h}\tr\t{t}\n" for h in "hta" for t in "hta" if h == t or "a" in h + t)
    path.write_text("h\tr\tt\n\ufeffh\tr\tt\nt\tr\th\n" + loops)
    call("data", "build", "--from", path, "--no-header", "--out", tmp_path / "built", "--min-triples", "1")
    graph = jobi_tf.load_graph(tmp_path / "built")
    assert sum(len(part) for part in graph.splits.values()) == 10
    assert {*graph.entities.names} == {"h", "t", "a", "\ufeffh"}


def test_names_with_tabs_are_refused(tmp_path, call):
    path = tmp_path / "tabs.csv"
    every = "".join(f"{h},{r},{t}\n" for h in "abc" for r in "rs" for t in "abc")
    path.write_text(every + '"left\tout",r,a\n')
    call("data", "build", "--from", path, "--out", tmp_path / "built")
    path.write_text(every.replace("c,", '"c\td",'))
    error = call("data", "build", "--from", path, "--out", tmp_path / "tabs", "--min-triples", 1, status=1).stderr
    assert r"c\td" in error
    assert not list(tmp_path.glob("*tabs/"))


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--min-triples", "900"), 1, "900 triples"),
        (("--valid", "300", "--test", "300"), 1, r"300 valid and 300 test"),
        (("--valid", "some"), 2, "'some'"),
        (("--valid", "2.5"), 2, "2.5"),
        (("--test", "-5"), 2, "-5"),
        (("--seed", "1", "--seed", "2"), 2, "--seed"),
        (("--columns", "1,2"), 2, "'1,2'"),
        (("--out", "."), 2, "new or empty folder"),
        (("--from", "nowhere.tsv"), 2, "nowhere.tsv"),
        (("--from", "."), 2, r"'\.'"),
        (("--from", "towns.xls"), 2, "towns.xls"),
        (("--from", "bad.tsv"), 1, r"bad.tsv:2: "),
    ],
)
def test_what_cannot_be_built(towns, tmp_path, call, options, status, words):
    (tmp_path / "towns.xls").write_text("")
    (tmp_path / "bad.tsv").write_text("a\tr\tb\na\tr\n")
    stderr = call("data", "build", "--from", "towns.tsv", *options, status=status).stderr
    (error,) = [line for line in stderr.splitlines() if line.startswith("Error:")]
    assert re.search(words, error)
    assert {path.name for path in tmp_path.iterdir()} == {"towns.tsv", "towns.xls", "bad.tsv"}


def test_many_rounds_are_cut_in_the_table(tmp_path, call):
    path = tmp_path / "chain.tsv"
    path.write_text("".join(f"e{a}\tr\te{b}\n" for a, b in [*((0, i) for i in (1, 2, 3)), (1, 2), (1, 3), (2, 3)]))
    with path.open("a") as file:
        file.writelines(f"e{i}\tr\te{i + 1}\n" for i in range(3, 33))
    options = ("--min-triples", 2, "--valid", 1, "--test", 1, "--out", tmp_path / "built")
    table = call("data", "build", "--from", path, *options).stdout
    assert "round 20" in table
    assert "round 21" not in table
    assert re.search(r"… +\(10 more\)", table)
    assert re.search(r"kept +4 +1 +6", table)
