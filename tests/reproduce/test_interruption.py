"""`jobi-tf reproduce` that is stopped from outside, and called again."""

import json
import subprocess
import sys
import time

import psutil
import pytest
import yaml
from filelock import FileLock

import jobi_tf
from jobi_tf import jobs
from jobi_tf.errors import JobiError
from jobi_tf.reproduce.runs import train_run
from jobi_tf.training.config import TrainConfig

pytestmark = pytest.mark.processes
SETTINGS = {
    "tensorboard": "none",
    "dim": 4,
    "batch_size": 400,
    "negatives": 2,
    "epochs": 12,
    "eval_every": 4,
    "patience": 9,
}
EXPERIMENT = {
    **{"title": "T", "shows": "S", "datasets": ["world"], "seeds": 1, "settings": SETTINGS},
    "rows": [{"name": "JoBi", "settings": {}}],
}


def rows(folder) -> list[dict]:
    """The metrics of each epoch, but for times."""
    path = folder / "metrics.jsonl"
    every = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{k: v for k, v in row.items() if k not in ("seconds", "triples_per_second")} for row in every]


def wait_for(condition, process=None) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert process is None or process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_stopped_experiment_continues_where_it_was(tmp_path, call):
    experiment = tmp_path / "mine.yaml"
    experiment.write_text(yaml.safe_dump(EXPERIMENT))
    arguments = ["reproduce", experiment, "--runs", tmp_path / "runs", "--out", tmp_path / "out"]
    command = [sys.executable, "-m", "jobi_tf.cli", *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_for(lambda: any(len(rows(run)) > 2 for run in tmp_path.glob("runs/world/*/seed-0")), process)
        children = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        _, printed = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Traceback" not in printed
        assert not psutil.wait_procs(children, 60)[1]
    finally:
        process.kill()
        process.communicate()
    (run,) = tmp_path.glob("runs/world/*/seed-0")
    assert 2 < len(rows(run)) < SETTINGS["epochs"]
    assert not (tmp_path / "out").exists()

    done = max(int(path.name.removeprefix("epoch-")) for path in (run / "checkpoints").glob("epoch-*"))
    assert f"0 of 1, seed 0 at epoch {done}" in call(*arguments, "--dry-run").stdout
    result = call(*arguments)
    assert f"mine [1/1] world: JoBi, seed 0: continues after epoch {done}\n" in result.stderr
    assert "1 of 1 runs complete" in result.stdout

    whole = jobi_tf.train("world", **SETTINGS, run_dir=tmp_path / "whole", callbacks=())
    assert rows(run) == rows(whole.path)
    found, expected = json.loads((run / "evaluation.json").read_text())["test"], jobi_tf.evaluate(whole).to_dict()
    assert {k: v for k, v in found.items() if k != "triples_per_second"} == {
        k: v for k, v in expected.items() if k != "triples_per_second"
    }


def test_a_run_that_another_process_trains_is_left_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "SECONDS_FOR_THE_LOCK", 0)
    run = tmp_path / "seed-0"
    with FileLock(tmp_path / ".seed-0.lock"), pytest.raises(JobiError, match="seed-0"):
        train_run(TrainConfig.create({"dataset": "world", "run_dir": run}), 1, None)
    assert not run.exists()
