"""`jobi-tf reproduce` that is stopped from outside, and called again."""

import json
import signal
import sys

import pytest
import yaml
from filelock import FileLock

import jobi_tf
from jobi_tf.errors import JobiError
from jobi_tf.reproduce import runs
from jobi_tf.reproduce.runs import PlannedRun, Source, make_run
from jobi_tf.training.config import TrainConfig
from tests.processes import epoch_rows, stop_when

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


def test_a_stopped_experiment_continues_where_it_was(tmp_path, call):
    experiment = tmp_path / "mine.yaml"
    experiment.write_text(yaml.safe_dump(EXPERIMENT))
    arguments = ["reproduce", experiment, "--runs", tmp_path / "runs", "--out", tmp_path / "out"]
    command = [sys.executable, "-m", "jobi_tf", *arguments]

    def has_begun() -> bool:
        return any(len(epoch_rows(run)) > 2 for run in tmp_path.glob("runs/world/*/seed-0"))

    stopped = stop_when(has_begun, command, signal.SIGTERM)
    assert stopped.returncode == 130
    assert "Traceback" not in stopped.stderr
    (run,) = tmp_path.glob("runs/world/*/seed-0")
    assert 2 < len(epoch_rows(run)) < SETTINGS["epochs"]
    assert not (tmp_path / "out").exists()

    done = max(int(path.name.removeprefix("epoch-")) for path in (run / "checkpoints").glob("epoch-*"))
    assert f"0 of 1, seed 0 at epoch {done}" in call(*arguments, "--dry-run").stdout
    result = call(*arguments)
    assert f"mine [1/1] world: JoBi, seed 0: continues after epoch {done}\n" in result.stderr
    assert "1 of 1 runs complete" in result.stdout

    whole = jobi_tf.train("world", **SETTINGS, run_dir=tmp_path / "whole", callbacks=())
    assert epoch_rows(run) == epoch_rows(whole.path)
    found, expected = json.loads((run / "evaluation.json").read_text())["test"], jobi_tf.evaluate(whole).to_dict()
    assert {k: v for k, v in found.items() if k != "triples_per_second"} == {
        k: v for k, v in expected.items() if k != "triples_per_second"
    }


def test_a_run_that_another_process_trains_is_left_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "SECONDS_FOR_THE_LOCK", 0)
    config = TrainConfig.create({"dataset": "world", "run_dir": tmp_path / "seed-0"})
    run = PlannedRun(Source("world", "world"), "plain", None, "world: plain", config)
    with FileLock(tmp_path / ".seed-0.lock"), pytest.raises(JobiError, match="seed-0"):
        make_run(run, 1, None)
    assert not run.path.exists()
