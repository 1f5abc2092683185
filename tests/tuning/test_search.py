"""Searches: most without trainings, those that are stopped with trainings in processes of their own."""

import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import yaml

pytest.importorskip("optuna", reason="needs the extra search")

import optuna
import sqlalchemy

from jobi_tf.errors import DataError, JobiError, UsageError
from jobi_tf.jobs import Epoch, JobError, JobKilledError, Jobs, JobStoppedError
from jobi_tf.training.run_folder import RunFolder
from jobi_tf.tuning import search as module
from jobi_tf.tuning.results import DATABASE, SPACE, number
from jobi_tf.tuning.search import open_study, search
from jobi_tf.tuning.spaces import Space
from tests.processes import epoch_rows, stop_when

SMALL = {
    "dataset": "world",
    "batch_size": 500,
    "negatives": 2,
    "eval_every": 1,
    "patience": 99,
    "tensorboard": "hparams",
}
SEARCH = {
    "dim": {"low": 4, "high": 400, "log": True},
    "learning_rate": {"low": 0.001, "high": 0.1},
    "joint": [True, False],
    "alpha": {"low": 0.1, "high": 2, "when": {"joint": True}},
}


def space(search=SEARCH, epochs=2, **more):
    mapping = {"settings": SMALL | {"epochs": epochs}, "search": search, "trials": 6, **more}
    return Space.parse(mapping, "mine", "mine.yaml")


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "trials.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def trained(monkeypatch):
    """Replaces training: the metric is better for small `dim`. Returns what was trained; may hold failures to raise."""

    class Trained(list):
        def __init__(self):
            self.failures = {}
            self.values = lambda config, epoch: 1 / config.dim + 0.1 * config.joint

    found = Trained()

    def run(self, task, config, *, log, on_epoch):
        found.append({name: getattr(config, name) for name in SEARCH | {"p": None} if name in config.model_fields_set})
        if error := found.failures.pop(len(found), None):
            raise error
        folder = RunFolder(Path(config.run_dir))
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.write_config(config)
        lines = []
        for epoch in range(1, config.epochs + 1):
            logs = {f"val_{name}": found.values(config, epoch) for name in ("mrr", "hits@1", "hits@3", "hits@10")}
            lines.append(json.dumps(logs | {"epoch": epoch, "seconds": 1.0}) + "\n")
            if on_epoch(Epoch(epoch, config.epochs, logs)):
                break
        folder.metrics.write_text("".join(lines))

    monkeypatch.setattr(Jobs, "run", run)
    return found


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_conditions_and_the_number_of_trials(tmp_path, trained, sampler):
    results = search(space(sampler=sampler), tmp_path / "out", jobs=2)
    assert len(trained) == len(results.trials) == 6
    assert all(("alpha" in params) == params["joint"] for params in trained)
    best = results.ranked()[0]
    assert best.value == max(1 / x["dim"] + 0.1 * x["joint"] for x in trained)
    assert yaml.safe_load((tmp_path / "out" / "best.yaml").read_text())["dim"] == best.params["dim"]
    more = search(space(sampler=sampler, trials=8), tmp_path / "out")
    assert [number(trial) for trial in more.trials] == [*range(8)]
    assert len(trained) == 8


def test_nothing_is_trained_twice(tmp_path, trained):
    small = space({"p": {"low": 0.1, "high": 0.3, "step": 0.2}, "joint": [True, False]}, trials=12)
    results = search(small, tmp_path / "out")
    assert len(trained) == len(results.trials) <= 4
    assert {params["p"] for params in trained} <= {0.1, 0.3}


def test_a_grid_is_searched_once(tmp_path, trained):
    grid = space({"joint": [True, False], "dim": [4, 8, 16]}, sampler="grid", trials=5)
    search(grid, tmp_path / "out")
    assert trained == list(grid.points())[:5]
    search(grid, tmp_path / "out")
    assert len(trained) == 5


@pytest.mark.parametrize(
    ("prune", "pruned"),
    [({"method": "median", "startup": 2}, [32]), ({"method": "halving", "first": 2, "factor": 2}, [8, 16, 32])],
)
def test_pruning(tmp_path, trained, prune, pruned):
    grid = space({"dim": [4, 8, 16, 32]}, epochs=4, sampler="grid", prune=prune)
    if prune["method"] == "median":
        trained.values = lambda config, epoch: {4: 0.1, 8: 0.5, 16: 0.6, 32: 0.2}[config.dim]
    results = search(grid, tmp_path / "out")
    assert [t.params["dim"] for t in results.trials if t.state.name == "PRUNED"] == pruned
    assert all(t.value is not None and t.user_attrs["epochs"] < 4 for t in results.trials if t.state.name == "PRUNED")


def test_failures(tmp_path, trained):
    """A trial that fails is noted; a killed one is retried; a stopped search and a full disk lose no trial."""
    grid, out = space({"dim": [4, 8, 16, 32]}, sampler="grid", trials=None), tmp_path / "out"
    trained.failures = {1: JobError("the loss is nan"), 2: JobKilledError("killed"), 3: JobError("full", fatal=True)}
    with pytest.raises(JobiError, match="full"):
        search(grid, out)
    trained.failures = {5: JobStoppedError("stopped")}
    results = search(grid, out)
    assert [(number(t), t.params["dim"], t.state.name) for t in results.trials] == [
        *((0, 4, "FAIL"), (1, 8, "COMPLETE"), (2, 16, "COMPLETE"), (3, 32, "COMPLETE"))
    ]
    assert results.trials[0].user_attrs["reason"] == "the loss is nan"
    assert [row["run"] for row in rows(out)] == [f"trials/{i:04d}" for i in range(4)]


def test_a_trial_that_is_always_killed_fails(tmp_path, trained):
    trained.failures = {i: JobKilledError("killed") for i in range(1, 9)}
    with pytest.raises(JobiError, match="killed"):
        search(space({"dim": [4]}, sampler="grid"), tmp_path / "out")
    assert len(trained) == 1 + module.MOST_CRASHES


@pytest.mark.processes
def test_a_trial_of_a_killed_search_is_retried(tmp_path, trained, monkeypatch):
    """Killed before the trial had a heartbeat, and after."""
    monkeypatch.setattr(module, "HEARTBEAT", 1)
    monkeypatch.setattr(module, "GRACE", 1)
    grid = space({"dim": [4, 8, 16]}, sampler="grid")
    study = open_study(grid, tmp_path, grid.config({}).load_graph().fingerprint)
    grid.write(tmp_path / SPACE)
    study.ask()
    code = """
import os, sys, optuna
def die(trial):
    trial.suggest_categorical("dim", [4, 8, 16])
    os._exit(9)
storage = optuna.storages.RDBStorage("sqlite:///" + sys.argv[1], heartbeat_interval=1)
optuna.load_study(study_name="search", storage=storage).optimize(die, n_trials=1)
"""
    assert subprocess.run([sys.executable, "-c", code, tmp_path / DATABASE]).returncode == 9
    assert [trial.state.name for trial in study.trials] == ["RUNNING", "RUNNING", "WAITING"]
    time.sleep(2.5)
    results = search(grid, tmp_path)
    assert [(number(t), t.params["dim"], t.state.name) for t in results.trials] == [
        *((0, 4, "COMPLETE"), (1, 8, "COMPLETE"), (2, 16, "COMPLETE"))
    ]
    assert len(trained) == 3


def test_the_colour_bar_is_clear_of_the_last_setting(tmp_path, trained, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="needs the extra plot")
    searched = {"dim": [4, 8], "negatives_mode": ["own", "shared-by-side"]}
    results, figures = search(space(searched, sampler="grid"), tmp_path / "out"), []
    with monkeypatch.context() as patch:
        patch.setattr(pyplot, "close", figures.append)
        assert [file.stem for file in results.draw()] == ["history", "parallel", "importances"]
    _, bar, *settings = figures[1].axes
    texts = [text for axis in settings for text in axis.get_yticklabels()]
    assert bar.get_window_extent().x0 > max(text.get_window_extent().x1 for text in texts)
    pyplot.close("all")


def test_several_machines_share_a_storage(tmp_path, trained):
    storage, chosen = f"sqlite:///{tmp_path}/shared.db", space(SEARCH, trials=3)
    first = search(chosen, tmp_path / "a" / "mine", storage=storage)
    second = search(chosen, tmp_path / "b" / "mine", storage=storage)
    assert len(trained) == 3
    assert first.trials == second.trials
    texts = [(tmp_path / x / "mine" / "best.yaml").read_text() for x in "ab"]
    assert texts[0] == texts[1]


def test_a_study_holds_one_search(tmp_path, trained):
    storage = f"sqlite:///{tmp_path}/shared.db"
    search(space(trials=2), tmp_path / "a" / "mine", storage=storage)
    with pytest.raises(UsageError, match="metric"):
        search(space(trials=4, metric="hits@10"), tmp_path / "b" / "mine", storage=storage)
    assert len(trained) == 2
    assert not (tmp_path / "b" / "mine" / SPACE).exists()  # so that it can be corrected


def test_a_storage_of_another_version_of_optuna(tmp_path, trained):
    search(space(trials=1), tmp_path / "out")
    connection = sqlite3.connect(tmp_path / "out" / DATABASE)
    connection.execute("UPDATE alembic_version SET version_num = 'v9.0.0.a'")
    connection.commit()
    with pytest.raises(DataError, match=r"search\.db"):
        search(space(trials=2), tmp_path / "out")


def test_a_folder_holds_one_search(tmp_path, trained):
    before = {"search": {"dim": [2, 4]}, "sampler": "grid"}
    search(space(**before), tmp_path / "out")
    changes = [{"search": {"dim": [2, 6]}}, {"search": {"p": [0.0, 0.3]}}, {"metric": "hits@10"}, {"seed": 1}]
    for change in (*changes, {"epochs": 5}):
        key = "settings" if "epochs" in change else next(iter(change))
        with pytest.raises(UsageError, match=key):
            search(space(**(before | change)), tmp_path / "out")


def test_defaults_may_be_written_out(tmp_path, trained):
    search(space(trials=1), tmp_path / "out")
    search(space(trials=2, metric="mrr", seed=0, sampler="tpe"), tmp_path / "out")
    assert len(trained) == 2
    with pytest.raises(UsageError, match=r"metric mrr,.* got hits@10"):
        search(space(trials=2, metric="hits@10"), tmp_path / "out")
    search(space(trials=1, metric="hits@10"), tmp_path / "other")
    with pytest.raises(UsageError, match=r"metric hits@10,.* got mrr"):
        search(space(trials=2), tmp_path / "other")


def test_other_weights_are_other_data(tmp_path, trained):
    path = tmp_path / "facts.tsv"
    settings = SMALL | {"dataset": str(path), "split": "0.8/0.1/0.1", "weights": "4", "epochs": 2}
    weighted = Space.parse({"settings": settings, "search": {"dim": [4, 8]}, "trials": 1}, "mine", "mine.yaml")
    for weight in (1, 2):
        path.write_text("".join(f"e{i}\tr\te{i + 1}\t{weight + i % 2}\n" for i in range(100)))
        if weight == 1:
            search(weighted, tmp_path / "out")
    with pytest.raises(UsageError, match="data that the search"):
        search(weighted, tmp_path / "out")


def test_other_data_and_a_damaged_file(tmp_path):
    open_study(space(), tmp_path, "graph")
    with pytest.raises(UsageError, match="world"):
        open_study(space(), tmp_path, "other")
    (tmp_path / DATABASE).write_bytes(b"no database" * 100)
    with pytest.raises(DataError, match=r"search\.db"):
        open_study(space(), tmp_path, "graph")
    with pytest.raises(UsageError, match="nosuch"):
        open_study(space(), tmp_path, "graph", "nosuch://host/db")


def test_a_storage_that_is_lost_ends_the_search(tmp_path, trained, monkeypatch):
    """With one error, although Optuna raises another one meanwhile, and without those of its heartbeats."""
    of_threads = []
    monkeypatch.setattr(threading, "excepthook", of_threads.append)
    monkeypatch.setattr(module, "HEARTBEAT", 1)

    def lose(*arguments: object) -> None:
        raise sqlalchemy.exc.OperationalError("SELECT", {}, Exception("connection refused"))

    def on_event(trial, event):
        if event:
            monkeypatch.setattr(sqlalchemy.orm.Session, "query", lose)
            time.sleep(1.5)

    with pytest.raises(JobiError, match="connection refused"):
        search(space({"dim": [4]}, sampler="grid"), tmp_path / "out", on_event=on_event)
    assert not of_threads


@pytest.mark.parametrize(("url", "match"), [("mysql://host/db", "MySQLdb"), ("sqlite:////no/such/file", "such")])
def test_a_storage_that_cannot_be_opened_leaves_no_folder(tmp_path, url, match):
    with pytest.raises(UsageError, match=match):
        search(space(), tmp_path / "out", storage=url)
    assert not (tmp_path / "out").exists()


def test_a_database_in_another_encoding(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise TypeError("cannot use a string pattern on a bytes-like object")  # as SQLAlchemy does

    monkeypatch.setattr(optuna, "create_study", fail)
    with pytest.raises(UsageError, match="UTF8"):
        open_study(space(), tmp_path, "graph", f"sqlite:///{tmp_path}/shared.db")


def interrupt(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_options_of_the_command(call, tmp_path, monkeypatch):
    assert "practitioner" in call("search", "--list").stdout
    call("search", status=2)
    assert "dataset" in call("search", "practitioner", status=2).stderr
    both = ("--dataset", "world", "--set", "dataset=umls")
    assert "--dataset" in call("search", "practitioner", *both, status=2).stderr
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    taken = ("--dataset", "world", "--out", tmp_path / "taken")
    assert str(tmp_path / "taken") in call("search", "practitioner", *taken, status=2).stderr
    with monkeypatch.context() as patch:
        patch.setattr(module, "search", interrupt)
        small = ("practitioner", "--dataset", "world", "--out", tmp_path / "out")
        assert str(tmp_path / "out") in call("search", *small, status=130).stderr
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "jobi_tf.tuning.spaces")
    assert "jobi-tf[search]" in call("search", "practitioner", "--dataset", "world", status=1).stderr


@pytest.mark.processes
def test_a_killed_search_loses_and_doubles_nothing(tmp_path, call, monkeypatch):
    """Killed in its first trial, which then continues from its checkpoint."""
    path, out = tmp_path / "small.yaml", tmp_path / "out"
    space({"dim": [2, 4]}, 12, sampler="grid", metric="mrr").write(path)
    code = "import sys, jobi_tf.tuning.search as s; s.HEARTBEAT = 1; from jobi_tf.cli.main import main; main()"
    command = [sys.executable, "-c", code, "search", path, "--out", out, "-q"]
    stop_when(lambda: len(epoch_rows(out / "trials" / "0000")) >= 2, command, signal.SIGKILL)
    before = epoch_rows(out / "trials" / "0000")
    assert 2 <= len(before) < 12
    monkeypatch.setattr(module, "HEARTBEAT", 1)
    monkeypatch.setattr(module, "GRACE", 3)
    result = call("search", path, "--out", out)
    assert [(row["trial"], row["state"], row["dim"]) for row in rows(out)] == [
        *(("0", "complete", "2"), ("1", "complete", "4"))
    ]
    assert epoch_rows(out / "trials" / "0000")[: len(before)] == before
    for row in rows(out):
        run = out / row["run"]
        assert [epoch["epoch"] for epoch in epoch_rows(run)] == [*range(1, 13)]
        assert float(row["value"]) == float(row["mrr"]) == max(epoch["val_mrr"] for epoch in epoch_rows(run))
        assert any(b"dim" in path.read_bytes() for path in (run / "logs").glob("events*"))  # for TensorBoard's HParams
    assert "2 complete" in result.stdout
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    assert len(list(out.glob("*.png"))) == 3


@pytest.mark.processes
def test_two_processes_begin_one_search(tmp_path):
    path, out = tmp_path / "small.yaml", tmp_path / "out"
    space({"dim": [2, 4]}, 1, sampler="grid").write(path)
    command = [sys.executable, "-m", "jobi_tf", "search", path, "--out", out, "-q"]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [(process.communicate()[1], process.returncode) for process in both] == [("", 0)] * 2
    assert sorted(row["dim"] for row in rows(out)) == ["2", "4"]


@pytest.mark.processes
def test_a_trial_whose_process_is_killed_continues(tmp_path):
    """As the system does when memory runs out."""
    killed = []

    def kill(trial, event):
        if isinstance(event, Epoch) and event.epoch == 3 and not killed:
            killed.extend(x for x in psutil.Process().children() if "spawn_main" in " ".join(x.cmdline()))
            for child in killed:
                os.kill(child.pid, signal.SIGKILL)

    (trial,) = search(space({"dim": [2]}, 6, sampler="grid"), tmp_path / "out", on_event=kill).trials
    assert killed
    assert trial.state.name == "COMPLETE"
    assert (number(trial), trial.user_attrs["epochs"]) == (0, 6)
    assert not (tmp_path / "out" / "trials" / "0000.log").exists()
