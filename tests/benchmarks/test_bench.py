"""Every benchmark runs, in a form that takes seconds; no figure is looked at for its size."""

import json
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jobi_tf.benchmarks import comparison, setting
from jobi_tf.benchmarks.child import call as call_task
from jobi_tf.benchmarks.child import run as run_command
from jobi_tf.benchmarks.environments import PEERS, environment
from jobi_tf.benchmarks.figures import Figure, Ratio, Target, Unmeasured
from jobi_tf.benchmarks.registry import BENCHMARKS
from jobi_tf.benchmarks.report import COLUMNS, Report
from jobi_tf.benchmarks.run import run
from jobi_tf.benchmarks.setting import Setting
from jobi_tf.errors import DataError, JobiError, UsageError

FIGURES = {
    "training": {"joint", "plain", "step", "biased", "sampler"},
    "shared": {"joint"},
    "quality": {"time"},
    "scale": {"own", "shared"},
    "ranking": {"product", "rank"},
    "data": {"open", "prepare", "prepare-memory", "open-large"},
    "large": {"epoch", "memory", "memory-training", "rank", "filter"},
    "growth": {"entities"},
    "memory": {"resident", "growth"},
    "serving": {
        *(f"{x}-{protocol}-4" for x in ("score-1", "score-64", "tails") for protocol in ("REST", "gRPC")),
        *(f"{x}-{how}" for x in ("start", "first-score-1", "first-tails") for how in ("with", "without")),
        *(f"tails-{protocol}-p99" for protocol in ("REST", "gRPC")),
    },
    "peers": {f"{peer}-{what}" for peer in PEERS for what in ("train", "train-shared", "rank")},
}


@pytest.fixture
def peer(tmp_path) -> Path:
    """No Python and no peer: a program that prints what a peer's script would, to try what is around it."""
    return program(
        tmp_path / "peer", 'name=$(basename "$1" _complex.py)\necho PEER $name train 9\necho PEER $name rank 3'
    )


def program(path: Path, lines: str) -> Path:
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def tiny(tmp_path) -> Setting:
    (tmp_path / "work").mkdir()
    return Setting(tmp_path / "work", tmp_path, repeats=2, tiny=True, say=lambda text: None)


def test_every_benchmark_is_tried():
    assert FIGURES.keys() == BENCHMARKS.keys()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_tiny_form(name, call, peer, tmp_path):
    pythons = [option for other in PEERS for option in ("--peer-python", f"{other}={peer}")]
    output = tmp_path / "out.json"
    said = call("bench", "--tiny", "--only", name, "--repeats", 2, "--output", output, *pythons).stdout
    content = json.loads(output.read_text())
    assert content["machine"].keys() >= {"cpu", "cores", "memory_bytes"}
    assert content["versions"].keys() == {"python", "tensorflow", "keras", "numpy", "jobi-tf"}
    assert content["date"].startswith("20")
    assert content["tiny"]
    figures = {figure["name"]: figure for figure in content["figures"]}
    assert figures.keys() == {f"{name}/{figure}" for figure in FIGURES[name]}
    for figure in figures.values():
        assert figure["once"] or len(figure["repeats"]) == 2
        assert figure["min"] <= figure["median"] <= figure["max"]
        assert figure["median"] > 0 or figure["name"] == "memory/growth"
        assert figure["what"] in said
    assert bool(figures) != bool(content["unmeasured"])
    if name == "growth":
        assert (tmp_path / "growth.csv").read_text().startswith("varied,entities,")
        assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def a_figure(median: float, ratio: float | None = None, **changes) -> Figure:
    of = Ratio("joint / plain", [ratio] * 3) if ratio else None
    return replace(Figure("a/b", "a step", "ms", [median - 1, median, median + 2], "umls", of), **changes)


def test_committed_figures_stand_beside(tmp_path):
    Report(results=[a_figure(20, 1.1)]).write(tmp_path / "figures.json")
    committed = Report.read(tmp_path / "figures.json")
    assert committed.figures == [a_figure(20, 1.1)]
    now = Report(results=[a_figure(25, 1.3, target=Target("<=", 1.12))])
    row = dict(zip(COLUMNS, now.rows(committed)[0], strict=True))
    assert row == {
        "what": "a step",
        "median": "25.0 ms",
        "spread": "24.0–27.0",
        "ratio to what": "1.30 (1.30–1.30) joint / plain",
        "target": "<= 1.12 missed",
        "committed": "20.0 (+25% now), ratio 1.10",
    }
    for other in (Report(results=[a_figure(25, data="world")]), Report(tiny=True, results=[a_figure(25)])):
        assert other.rows(committed)[0][-1] == "–"
    assert now.rows(None)[0][-1] == "–"
    (tmp_path / "figures.json").write_text('{"figures": 1}')
    with pytest.raises(DataError, match=r"figures\.json, which is damaged"):
        Report.read(tmp_path / "figures.json")


def test_ratios_are_medians_over_turns():
    assert Ratio.pairwise("a / b", [2, 30, 8], [1, 10, 2]).median == 3
    assert a_figure(20, 1.12, target=Target("<=", 1.12)).met
    assert not a_figure(20, target=Target("<", 20)).met
    assert a_figure(20, target=Target(">=", 20)).met


def test_a_failure_does_not_lose_the_others(tiny, tmp_path, monkeypatch):
    def ranking(setting):
        yield a_figure(1)
        raise JobiError("expected so")

    monkeypatch.setattr("jobi_tf.benchmarks.ranking.ranking", ranking)
    monkeypatch.setattr("jobi_tf.benchmarks.shared.shared", lambda setting: 1 / 0)
    monkeypatch.setattr("jobi_tf.benchmarks.data.data", lambda setting: [a_figure(2, name="data/c")])
    report = Report(tiny=True)
    run(("data", "ranking", "shared"), tiny, report, tmp_path / "out.json", lambda error: None)
    assert [figure.name for figure in report.figures] == ["a/b", "data/c"]
    assert report.failed
    assert report.unmeasured == [
        Unmeasured("shared", "ZeroDivisionError: division by zero", True),
        Unmeasured("ranking", "JobiError: expected so", True),
    ]


def test_interruption_keeps_what_was_measured(call, tmp_path, monkeypatch):
    def ranking(setting):
        yield a_figure(1)
        raise KeyboardInterrupt

    monkeypatch.setattr("jobi_tf.benchmarks.ranking.ranking", ranking)
    output = tmp_path / "out.json"
    result = call("bench", "--tiny", "--only", "ranking", "--only", "memory", "--output", output, status=130)
    assert "a step" in result.stdout
    assert "what was measured until then is kept" in result.stderr
    assert [figure["name"] for figure in json.loads(output.read_text())["figures"]] == ["a/b"]


def test_the_command_fails_with_a_benchmark(call, tmp_path, monkeypatch):
    monkeypatch.setattr("jobi_tf.benchmarks.ranking.ranking", lambda setting: 1 / 0)
    result = call("bench", "--tiny", "--only", "ranking", "--output", tmp_path / "out.json", status=1)
    assert "ranking: ZeroDivisionError" in result.stdout


def test_bad_options(call, tmp_path):
    assert "peers " in call("bench", "--list").stdout
    for options, words in (
        (("--only", "everything"), "Invalid value for '--only'"),
        (("--output", tmp_path / "nowhere" / "a.json"), "in a folder that exists"),
        (("--peer-python", "pykeen=nowhere"), "expected --peer-python"),
    ):
        assert words in call("bench", "--tiny", *options, status=2).stderr


def test_a_graph_takes_the_place_of_one_that_cannot_be_had(tiny, monkeypatch):
    said = []

    def unreachable(name):
        raise JobiError("the network failed")

    monkeypatch.setattr(setting, "load_graph", unreachable)
    monkeypatch.setattr(setting, "_STAND_IN", (64, 5, 600))
    there = replace(tiny, tiny=False, say=said.append)
    assert there.graph.name == "synthetic-64-5-600-0"
    assert there.stand_in
    assert "the network failed" in said[0]
    report = Report(stand_in=there.graph.name, results=[a_figure(1, data=there.graph.name), a_figure(1)])
    assert [row[0] for row in report.rows()] == ["a step †", "a step"]
    assert "could not be had" in report.lines()[0]


def test_a_peer_that_cannot_be_timed_is_a_sentence(tiny, peer, tmp_path, monkeypatch):
    def unreachable(other, say):
        raise JobiError("no network")

    monkeypatch.setattr(comparison, "environment", unreachable)
    broken = program(tmp_path / "broken", "echo no such module >&2; exit 3")
    silent = program(tmp_path / "silent", "echo hello")
    results = list(comparison.peers(replace(tiny, pythons={"pykeen": broken, "ampligraph": silent})))
    assert [(result.name, result.failed) for result in results] == [
        ("peers/pykeen", True),
        ("peers/ampligraph", True),
        ("peers/libkge", False),
    ]
    assert results[0].reason == "not timed: pykeen_complex.py failed: no such module"
    assert "expected lines `PEER ampligraph train 123`" in results[1].reason
    assert "not timed: no network" in results[2].reason


def test_an_environment_is_made_once(tmp_path, monkeypatch):
    def python(command, say):
        folder = Path(command[-1]) if "venv" in command else Path(command[0]).parents[1]
        calls.append(command[-1])
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        return [], "ERROR: no such version" if "pip" in command and len(calls) == 2 else None

    calls: list[str] = []
    monkeypatch.setenv("JOBI_TF_HOME", str(tmp_path))
    monkeypatch.setattr("jobi_tf.benchmarks.environments.run", python)
    with pytest.raises(JobiError, match=r"PyKEEN 1\.11\.1 cannot be installed: ERROR: no such version"):
        environment(PEERS["pykeen"], print)
    assert not any((tmp_path / "peers").iterdir())
    expected = tmp_path / "peers" / "pykeen-1.11.1" / "bin" / "python"
    assert {environment(PEERS["pykeen"], print) for _ in range(2)} == {expected}
    assert len(calls) == 4
    monkeypatch.setattr("jobi_tf.benchmarks.environments._version", lambda python: (3, 99))
    with pytest.raises(JobiError, match=r"needs Python 3\.11 or older"):
        environment(PEERS["ampligraph"], print)


def test_processes_of_their_own(tmp_path):
    said: list[str] = []
    with pytest.raises(JobiError, match=r"load failed in a process of its own: .*expected a folder or a file"):
        call_task("load", said.append, tmp_path, {"dataset": tmp_path / "nowhere"})
    lines, error = run_command([sys.executable, "-c", "print('  on its way'); print(1)"], said.append, dict(os.environ))
    assert (lines, error, said) == (["1"], None, ["  on its way"])
    with pytest.raises(JobiError, match="cannot run"):
        run_command([str(tmp_path / "nothing")], said.append)
    with pytest.raises(UsageError, match="can be written"):
        run((), Setting(tmp_path, tmp_path), Report(), tmp_path)
