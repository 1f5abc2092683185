"""`jobi-tf reproduce` that is stopped from outside, and called again."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

import jobi_tf

SETTINGS = {"dim": 4, "batch_size": 400, "negatives": 2, "epochs": 30, "eval_every": 10, "patience": 9}
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


def is_free(lock) -> bool:
    """Whether no process works on the run any more."""
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_experiment_goes_on_where_it_was(number, tmp_path, call):
    experiment = tmp_path / "mine.yaml"
    experiment.write_text(yaml.safe_dump(EXPERIMENT))
    arguments = ["reproduce", experiment, "--runs", tmp_path / "runs", "--out", tmp_path / "out"]
    command = [sys.executable, "-m", "jobi_tf.cli", *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ, start_new_session=True)
    try:
        wait_for(lambda: any(len(rows(run)) > 3 for run in tmp_path.glob("runs/world/*/seed-0")), process)
        process.send_signal(number)
        status, words = process.wait(60), process.stderr.read()
    finally:
        process.kill()
        process.communicate()
    run = next(tmp_path.glob("runs/world/*/seed-0"))
    wait_for(lambda: is_free(run.with_name(".seed-0.lock")))
    assert 3 < len(rows(run)) < SETTINGS["epochs"]
    assert not (tmp_path / "out").exists()
    if number == signal.SIGTERM:
        assert status == 130
        assert words.splitlines()[-1] == "Interrupted. The same command goes on from here."
        assert "Traceback" not in words

    told = call(*arguments, "--dry-run").stdout
    done = max(int(path.name.removeprefix("epoch-")) for path in (run / "checkpoints").glob("epoch-*"))
    assert f"0 of 1, seed 0 at epoch {done}" in told
    result = call(*arguments)
    assert f"mine [1/1] world: JoBi, seed 0: goes on after epoch {done}\n" in result.stderr
    assert "1 of 1 runs complete" in result.stdout

    whole = jobi_tf.train("world", **SETTINGS, run_dir=tmp_path / "whole", callbacks=())
    assert rows(run) == rows(whole.path)
    found, expected = json.loads((run / "evaluation.json").read_text())["test"], jobi_tf.evaluate(whole).to_dict()
    assert {k: v for k, v in found.items() if k != "triples_per_second"} == {
        k: v for k, v in expected.items() if k != "triples_per_second"
    }


def test_a_run_that_another_process_trains_is_left_to_it(tmp_path, call):
    experiment = tmp_path / "mine.yaml"
    experiment.write_text(yaml.safe_dump(EXPERIMENT))
    arguments = ["reproduce", experiment, "--runs", tmp_path / "runs", "--out", tmp_path / "out"]
    folder = tmp_path / "runs" / "world"
    # A dry run tells the folder.
    name = next(line.split()[-1] for line in call(*arguments, "--dry-run").stdout.splitlines() if "world: JoBi" in line)
    assert name.startswith(str(folder))
    lock = tmp_path / "runs" / "world" / name.rpartition("/")[2] / ".seed-0.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        said = call(*arguments, status=1).stderr
    assert "expected" in said
    assert "for itself, but another process is training that run" in said
    assert not (lock.parent / "seed-0").exists()
