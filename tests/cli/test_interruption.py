"""A run that is stopped from outside; each stop is a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

EPOCHS = 16
OPTIONS = ("--dim", "4", "--batch-size", "20", "--negatives", "5", "--epochs", str(EPOCHS), "--eval-every", "3")
OPTIONS += ("--patience", "9")


@pytest.fixture(scope="module")
def stop(triples, tmp_path_factory):
    """Starts a training, stops it by a signal after some epochs, and returns its folder, exit status and last words."""

    def stop(number: int, epochs: int) -> tuple:
        folder = tmp_path_factory.mktemp("stopped") / "run"
        command = [sys.executable, "-m", "jobi_tf.cli", "train", "--dataset", triples, "--run-dir", folder, *OPTIONS]
        # In a session of its own: the signal goes to this process alone, whoever runs the tests.
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ, start_new_session=True)
        try:
            deadline = time.monotonic() + 120
            while len(rows(folder)) < epochs:
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(number)
            return folder, process.wait(30), process.stderr.read()
        finally:
            process.kill()
            process.communicate()

    return stop


def rows(folder) -> list[dict]:
    """The metrics of each epoch, but for times."""
    path = folder / "metrics.jsonl"
    every = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{k: v for k, v in row.items() if k not in ("seconds", "triples_per_second")} for row in every]


@pytest.fixture(scope="module")
def uninterrupted(triples, call, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOBI_TF_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        call("train", "-q", "--dataset", triples, "--run-dir", folder, *OPTIONS)
    return folder


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_ends_as_an_uninterrupted_one(stop, uninterrupted, call, number):
    folder, status, words = stop(number, epochs=4)
    assert 4 <= len(rows(folder)) < EPOCHS
    if number == signal.SIGINT:
        assert status == 130
        assert words.endswith(f"\n  jobi-tf train --resume {folder}\n")
        assert "Traceback" not in words
    else:
        assert status == -signal.SIGKILL
    call("train", "-q", "--resume", folder)
    assert len(rows(folder)) == EPOCHS
    assert rows(folder) == rows(uninterrupted)
    assert call("predict", folder, "--head", "town 1", "--relation", "near", "--json").stdout == (
        call("predict", uninterrupted, "--head", "town 1", "--relation", "near", "--json").stdout
    )


def test_stopped_before_the_first_epoch(triples, call, tmp_path, monkeypatch):
    def interrupt(*arguments, **options):
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("keras.Model.fit", interrupt)
    result = call("train", "--dataset", triples, "--run-dir", tmp_path / "run", *OPTIONS, status=130)
    assert f"{tmp_path}/run" in result.stderr.splitlines()[-1]
    assert signal.getsignal(signal.SIGTERM) is before
    assert "checkpoint" in call("train", "--resume", tmp_path / "run", status=1).stderr
