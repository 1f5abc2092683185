"""A run that is stopped from outside; each stop is a process of its own."""

import os
import signal
import sys

import pytest

from tests.processes import epoch_rows, stop_when

pytestmark = pytest.mark.processes
EPOCHS = 20
OPTIONS = ("--dim", "4", "--batch-size", "20", "--negatives", "5", "--epochs", str(EPOCHS), "--eval-every", "3")
OPTIONS += ("--patience", "9")


def stop(folder, number: int, epochs: int, *options: object) -> tuple[int, str]:
    """Starts a training, stops it by a signal after some epochs, and returns its exit status and last words."""
    command = [sys.executable, "-m", "jobi_tf", "train", *options]
    ended = stop_when(lambda: len(epoch_rows(folder)) >= epochs, command, number)
    return ended.returncode, ended.stderr


def test_a_stopped_run_ends_as_an_uninterrupted_one(triples, call, tmp_path):
    folder, whole = tmp_path / "stopped", tmp_path / "uninterrupted"
    status, words = stop(folder, signal.SIGINT, 3, "--dataset", triples, "--run-dir", folder, *OPTIONS)
    assert status == 130
    assert words.endswith(f"\n  jobi-tf train --resume {folder}\n")
    assert "Traceback" not in words
    status, _ = stop(folder, signal.SIGKILL, 6, "--resume", folder)
    assert status == -signal.SIGKILL
    assert 6 <= len(epoch_rows(folder)) < EPOCHS
    (folder / "checkpoints" / ".tmp-1-epoch-000007" / "model").mkdir(parents=True)  # as one killed while it writes
    (folder / ".tmp-1-model.keras").write_bytes(b"PK")
    call("train", "-q", "--resume", folder)
    assert not list(folder.rglob(".tmp-*"))
    call("train", "-q", "--dataset", triples, "--run-dir", whole, *OPTIONS)
    assert len(epoch_rows(folder)) == EPOCHS
    assert epoch_rows(folder) == epoch_rows(whole)
    answers = [call("predict", x, "--head", "town 1", "--relation", "near", "--json").stdout for x in (folder, whole)]
    assert answers[0] == answers[1]


def test_stopped_before_the_first_epoch(triples, call, tmp_path, monkeypatch, capfd):
    def interrupt(*arguments, **options):
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("keras.Model.fit", interrupt)
    monkeypatch.setattr("os._exit", sys.exit)
    call("train", "--dataset", triples, "--run-dir", tmp_path / "run", *OPTIONS, status=130)
    assert f"{tmp_path}/run" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
    assert "checkpoint" in call("train", "--resume", tmp_path / "run", status=1).stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_that_a_library_turns_into_another_error(number, call, monkeypatch):
    def interrupt():
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            raise SystemError("bad argument to internal function") from None

    monkeypatch.setattr("jobi_tf.datasets.loading.listing", interrupt)
    assert call("data", "list", status=130).stderr == "Interrupted.\n"
