"""The benchmarks run, in forms that take seconds; no value is checked for its size."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.results import COMMITTED, Line, committed, report, table
from benchmarks.running import Setting, Suite, Task, run
from benchmarks.suites import ON_REQUEST, SUITES

PEERS = sorted((COMMITTED.parent / "peers").glob("*.py"))


@pytest.fixture
def bench(tmp_path):
    def bench(*arguments: object, status: int = 0):
        out = tmp_path / "out.json"
        result = CliRunner().invoke(main, ["--out", str(out), *map(str, arguments)])
        assert result.exit_code == status, result.output
        return result, json.loads(out.read_text()) if out.exists() else None

    return bench


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A folder whose Python is the one of these tests."""
    python = tmp_path / "checkout" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return tmp_path / "checkout"


def script(path: Path, answer: str) -> Task:
    """A measurement of another library: a program that answers rounds."""
    path.write_text(f"import sys\nfor line in sys.stdin:\n    {answer}\n    sys.stdout.flush()\n")
    return Task((sys.executable, str(path)))


def test_two_checkouts_are_measured_in_turns(bench, checkout, monkeypatch):
    tasks = {"open": Task("load", {"dataset": "world"}), "prepare": Task("load", {"dataset": "world", "prepare": True})}
    lines = [
        Line("ranking/open", "opening", "open", "seconds", "open / prepare"),
        Line("ranking/prepare", "preparing", "prepare", "MB"),
    ]
    monkeypatch.setitem(SUITES, "ranking", lambda setting: iter([Suite(tasks, lines, "world")]))
    result, content = bench("--repeats", 2, "--only", "ranking", "--against", checkout)
    figures = {x["name"]: x for x in content["figures"]}
    assert figures.keys() == {"ranking/open", "ranking/prepare"}
    assert not content["unmeasured"]
    assert content["against"] == str(checkout)
    for x in figures.values():
        assert len(x["repeats"]) == len(x["against"]["repeats"]) == 2
        assert min(x["repeats"]) > 0
        assert x["what"] in result.stdout
    assert len(figures["ranking/open"]["ratio"]["repeats"]) == 2
    assert content["machine"].keys() >= {"cpu", "cores", "memory_bytes"}
    assert content["versions"].keys() >= {"python", "tensorflow", "jobi-tf"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SUITES if name not in ON_REQUEST])
def test_every_benchmark_runs(bench, tmp_path, name):
    _, content = bench("--tiny", "--repeats", 1, "--only", name)
    expected = {line.name for suite in SUITES[name](Setting(tmp_path, tiny=True)) for line in suite.lines}
    assert {x["name"] for x in content["figures"]} == expected
    assert (tmp_path / "growth.png").exists() == (name == "growth")


STEP = Line("a/step", "a step", "joint", "ms", "joint / plain", "<= 1.12")


def test_ratios_are_those_of_the_rounds():
    measured = {"joint": [{"ms": x} for x in (2.0, 30.0, 8.0)], "plain": [{"ms": x} for x in (1.0, 10.0, 2.0)]}
    other = {"joint": [{"ms": x} for x in (4.0, 30.0, 2.0)]}
    made = STEP.figure("umls", measured, other)
    assert (made["median"], made["min"], made["max"]) == (8, 2, 30)
    assert made["ratio"]["repeats"] == [2, 3, 4]
    assert made["target"] == {"of": "ratio", "comparison": "<=", "value": 1.12, "met": False}
    assert made["against"]["repeats"] == [0.5, 1, 4]
    alone = STEP._replace(ratio="", target="< 9").figure("umls", measured, {})
    assert alone["target"]["met"]
    assert not alone.keys() & {"ratio", "against"}
    assert STEP.figure("umls", {"joint": measured["joint"]}, {}) is None


def test_the_table_has_missed_beside_met_and_the_committed_values():
    def content(*values: float, data: str = "umls", tiny: bool = False):
        measured = {"joint": [{"ms": x} for x in values], "plain": [{"ms": 10.0} for _ in values]}
        lines = (STEP, Line("a/plain", "plain", "plain", "ms", target="< 11"))
        return report([line.figure(data, measured, {}) for line in lines], tiny, None)

    now = content(20, 25, 30)
    rows = table(now, content(20))
    assert rows[0] == {
        "what": "a step",
        "median": "25.0 ms",
        "spread": "20.0–30.0",
        "ratio": "2.50 (2.00–3.00) joint / plain",
        "target": "<= 1.12 missed",
        "committed": "20.0 (+25% now), ratio 2.00",
    }
    assert rows[1]["target"].endswith(" met")
    assert table(now, content(20, data="world"))[0]["committed"] == "–"
    assert table(content(20, tiny=True), committed())[0]["target"] == "<= 1.12"
    assert len(table(committed() | {"against": None}, committed())) == len(committed()["figures"])


def test_what_fails_does_not_lose_the_rest(tmp_path):
    tasks = {
        "peer": script(tmp_path / "peer.py", "print('{\"rate\": 3}')"),
        "broken": script(tmp_path / "broken.py", "raise ValueError('no such key: x')"),
        "silent": Task(("true",)),
        "chatty": script(tmp_path / "chatty.py", "print('hello')"),
        "missing": Task((str(tmp_path / "nothing"),)),
        "load": Task("load", {"dataset": str(tmp_path / "nowhere")}),
    }
    lines = [Line(f"a/{name}", name, name, "rate") for name in tasks]
    lines.append(Line("a/ratio", "ratio", "peer", "rate", "peer / broken"))
    results = list(run("a", Suite(tasks, lines, "umls"), Setting(tmp_path, repeats=2, log=lambda text: None)))
    reasons = {x["name"]: x["reason"] for x in results if "reason" in x}
    assert reasons.keys() == {"a/broken", "a/silent", "a/chatty", "a/missing", "a/load"}
    assert "no such key: x" in reasons["a/broken"]
    assert "nowhere" in reasons["a/load"]
    assert "hello" in reasons["a/chatty"]
    assert [(x["name"], x["repeats"]) for x in results if "reason" not in x] == [("a/peer", [3, 3])]


@pytest.mark.parametrize("name", ["ranking", "growth"])
def test_a_benchmark_that_fails_is_reported(bench, monkeypatch, name):
    broken = Suite({"a": Task(("false",))}, [Line(f"{name}/a", "a", "a", "ms")], "umls")
    monkeypatch.setitem(SUITES, name, lambda setting: iter([broken]))
    _, content = bench("--only", name, status=1)
    assert [x["name"] for x in content["unmeasured"]] == [f"{name}/a"]


def test_interruption_keeps_what_was_measured(bench, monkeypatch, tmp_path):
    task = script(tmp_path / "peer.py", "print('{\"rate\": 3}')")

    def suites(setting):
        yield Suite({"a": task}, [Line("ranking/a", "a step", "a", "rate")], "umls")
        raise KeyboardInterrupt

    monkeypatch.setitem(SUITES, "ranking", suites)
    result, content = bench("--only", "ranking", status=130)
    assert [x["name"] for x in content["figures"]] == ["ranking/a"]
    assert "a step" in result.stdout


def test_options_that_cannot_work(bench, tmp_path):
    assert "ranking" in bench("--list")[0].stdout
    for options in (["--only", "everything"], ["--against", tmp_path], ["--out", tmp_path / "nowhere" / "a.json"]):
        bench("--tiny", *options, status=2)


@pytest.mark.parametrize("path", PEERS, ids=lambda path: path.stem)
def test_scripts_of_peers_declare_what_they_need(path):
    block = re.match(r"# /// script\n((?:# .*\n)+?)# ///\n", path.read_text(encoding="utf-8"))
    needed = tomllib.loads(block[1].replace("# ", ""))
    assert needed["requires-python"]
    assert any(path.stem.split("_")[0] in x for x in needed["dependencies"])
