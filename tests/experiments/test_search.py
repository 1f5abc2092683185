"""Searches with trainings, each in a process of its own."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

pytest.importorskip("optuna", reason="needs the extra search")

from jobi_tf.experiments.search import search
from jobi_tf.experiments.spaces import parse_space

SMALL = {"dataset": "world", "batch_size": 500, "negatives": 2, "eval_every": 1, "patience": 99}


def write_space(folder: Path, epochs: int = 2, search: dict | None = None, **more) -> Path:
    path = folder / "small.yaml"
    space = {"settings": SMALL | {"epochs": epochs}, "search": search or {"dim": [2, 6, 4]}, "sampler": "grid", **more}
    path.write_text(yaml.safe_dump(space))
    return path


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "trials.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def found(call, tmp_path_factory):
    """The folder of a finished search of three trials, two at a time, and what it said."""
    folder = tmp_path_factory.mktemp("search")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOBI_TF_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        result = call("search", write_space(folder, metric="mrr"), "--out", folder / "out", "--jobs", 2)
    return folder / "out", result


def test_trials_are_runs_and_the_best_can_be_trained(found, call, tmp_path):
    folder, result = found
    every = rows(folder)
    assert [(row["trial"], row["state"], row["dim"]) for row in every] == [
        *(("0", "complete", "2"), ("1", "complete", "6"), ("2", "complete", "4"))
    ]
    for row in every:
        run = folder / row["run"]
        metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        kept = max(metrics, key=lambda epoch: epoch["val_mrr"])
        assert float(row["value"]) == float(row["mrr"]) == kept["val_mrr"]
        assert int(row["best_epoch"]) == kept["epoch"]
        assert yaml.safe_load((run / "config.yaml").read_text())["dim"] == int(row["dim"])
    best = max(every, key=lambda row: float(row["value"]))
    assert re.search(
        rf"3 complete; best by validation MRR:\ntrial .*\n{best['trial']} +{float(best['mrr']):.4f} ", result.stdout
    )
    assert "3/3  trial" in result.stderr
    assert not list((folder / "trials").glob("*.log"))
    call("train", "-q", "--config", folder / "best.yaml", "--run-dir", tmp_path / "run")
    again = [json.loads(line)["val_mrr"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert float(best["value"]) in again


def test_a_finished_search_only_prints_its_result(found, call, monkeypatch):
    folder, result = found
    monkeypatch.setattr("jobi_tf.experiments.search.WorkerProcess", None)
    again = call("search", folder.parent / "small.yaml", "--out", folder, "-q")
    assert again.stdout == result.stdout
    assert again.stderr == ""


def test_the_picture(found):
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    assert (found[0] / "search.png").read_bytes().startswith(b"\x89PNG")


def test_trials_in_the_hparams_plugin(found):
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

    folder, _ = found
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(folder))
    context = backend_context.Context(TBContext(data_provider=provider, logdir=str(folder), multiplexer=multiplexer))
    request = api_pb2.ListSessionGroupsRequest(slice_size=10, allowed_statuses=[api_pb2.STATUS_SUCCESS])
    groups = list_session_groups.Handler(RequestContext(), context, "", request).run().session_groups
    shown = {}
    for group in groups:
        values = {f"{value.name.group}/{value.name.tag}": value.value for value in group.metric_values}
        shown[group.name] = (group.hparams["dim"].number_value, values["/best_mrr"])
        assert {"/best_hits@10", "validation/epoch_mrr", "validation/epoch_hits@10"} <= values.keys()
    assert shown == {
        f"{int(row['trial']):04d}": (float(row["dim"]), pytest.approx(float(row["mrr"]))) for row in rows(folder)
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"search": {"dim": [2, 6]}}, "where search.dim is {'choices': [2, 6, 4]}, got {'choices': [2, 6]}"),
        ({"search": {"p": [0.0, 0.3]}}, "where search.dim is {'choices': [2, 6, 4]}, got 'left out'"),
        ({"epochs": 5}, "where settings.epochs is 2, got 5"),
        ({"metric": "hits@1"}, "where metric is 'mrr', got 'hits@1'"),
    ],
)
def test_a_folder_holds_one_search(found, call, tmp_path, change, message):
    space = write_space(tmp_path, **({"metric": "mrr"} | change))
    result = call("search", space, "--out", found[0], status=2)
    assert f"{message}: choose another folder by --out" in result.stderr


def test_what_cannot_work(call, tmp_path, monkeypatch):
    assert "practitioner" in call("search", "--list").stdout
    assert "expected a YAML file or the name" in call("search", status=2).stderr
    assert (
        "small.yaml: search.dim: expected dim to be"
        in call("search", write_space(tmp_path, search={"dim": [0]}), status=2).stderr
    )
    assert "expected a data set" in call("search", "practitioner", status=2).stderr
    assert (
        "expected --dataset or --set dataset=…, got both"
        in call("search", "practitioner", "--dataset", "world", "--set", "dataset=umls", status=2).stderr
    )
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    assert (
        "expected a new or empty folder"
        in call("search", write_space(tmp_path), "--out", tmp_path / "taken", status=2).stderr
    )
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "pip install 'jobi-tf[search]'" in call("search", write_space(tmp_path), status=1).stderr


def test_a_search_is_alone_in_its_folder(found, monkeypatch):
    from jobi_tf.errors import UsageError
    from jobi_tf.experiments import search as module
    from jobi_tf.experiments.search_results import SearchFolder
    from jobi_tf.experiments.spaces import read_space

    folder, _ = found
    monkeypatch.setattr(module, "SECONDS_FOR_THE_LOCK", 0)
    with module._alone(SearchFolder(folder)), pytest.raises(UsageError, match="a search is running there"):
        search(read_space(folder.parent / "small.yaml"), folder)


@pytest.mark.slow
def test_a_trial_that_fails_is_told_and_the_search_goes_on(tmp_path):
    # Chunks of ten triples do not fit into batches of five: only the training itself can tell.
    mapping = {
        "settings": SMALL | {"epochs": 1, "negatives_mode": "shared", "dim": 2},
        "search": {"batch_size": [5, 500]},
        "sampler": "grid",
    }
    del mapping["settings"]["batch_size"]
    results = search(parse_space(mapping, "fails", "fails.yaml"), tmp_path / "out")
    failed, complete = results.trials
    assert (failed.state, complete.state) == ("failed", "complete")
    assert "expected" in failed.reason
    assert "Traceback" in (tmp_path / "out" / "trials" / "0000.log").read_text()


@pytest.mark.slow
def test_a_search_that_is_stopped_loses_and_doubles_nothing(tmp_path, call):
    """Interrupted in its first trial, killed in its second: it ends as one that went through."""
    grid = {"dim": [2, 4]}
    out, space = tmp_path / "out", write_space(tmp_path, epochs=40, search=grid)

    def stop(number: int, trial: int) -> tuple[int, str]:
        command = [sys.executable, "-m", "jobi_tf.cli", "search", space, "--out", out]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            deadline = time.monotonic() + 180
            while not epochs(out, trial):
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(number)
            return process.wait(60), process.stderr.read()
        finally:
            process.kill()
            process.communicate()

    status, words = stop(signal.SIGINT, trial=0)
    assert status == 130
    assert words.endswith(f"Interrupted; the same command goes on with the search in {out}.\n")
    assert "Traceback" not in words
    first = epochs(out, 0)
    assert 1 <= len(first) < 40
    status, _ = stop(signal.SIGKILL, trial=1)
    assert status == -signal.SIGKILL
    assert epochs(out, 0)[: len(first)] == first  # it went on where it was
    assert 1 <= len(epochs(out, 1)) < 40
    call("search", space, "--out", out)
    through = tmp_path / "through"
    call("search", space, "--out", through)
    assert [row | {"seconds": ""} for row in rows(out)] == [row | {"seconds": ""} for row in rows(through)]
    assert [row["state"] for row in rows(out)] == ["complete", "complete"]
    for trial in (0, 1):
        assert len(epochs(out, trial)) == 40
        assert epochs(out, trial) == epochs(through, trial)


def epochs(folder: Path, trial: int) -> list[dict]:
    """The metrics of each epoch, but for times."""
    path = folder / "trials" / f"{trial:04d}" / "metrics.jsonl"
    every = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{k: v for k, v in row.items() if k not in ("seconds", "triples_per_second")} for row in every]


@pytest.mark.slow
def test_a_trial_whose_process_is_killed_goes_on(tmp_path):
    """As the system does when memory runs out."""
    space = parse_space(
        {"settings": SMALL | {"epochs": 30}, "search": {"dim": [2]}, "sampler": "grid"}, "killed", "killed.yaml"
    )

    class Killer:
        kills = 0

        def begun(self, results):
            pass

        def trial_begun(self, number, params):
            pass

        def epoch(self, number, epoch, epochs):
            if epoch == 5 and not self.kills:
                self.kills += 1
                # The child of this process that trains: its parent is known to the system only.
                for path in Path("/proc").glob("[0-9]*/stat"):
                    pid, parent = path.parent.name, path.read_text().rpartition(")")[2].split()[1]
                    if parent == str(os.getpid()) and "search_worker" in (path.parent / "cmdline").read_text():
                        os.kill(int(pid), signal.SIGKILL)

        def trial_ended(self, number, results):
            pass

    killer = Killer()
    (trial,) = search(space, tmp_path / "out", watcher=killer).trials
    assert killer.kills == 1
    assert (trial.state, trial.epochs) == ("complete", 30)
    assert len(epochs(tmp_path / "out", 0)) == 30
