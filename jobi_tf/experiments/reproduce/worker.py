"""Carries out one run: `python -m jobi_tf.experiments.reproduce.worker`, started by `processes`.

The first line on stdin is the request: `settings`, `threads` (None: as many as TensorFlow takes) and `jobs`. Each line
on stdout is a JSON object: `epoch` after each, at last `done` or `failed`.
"""

import fcntl
import json
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import keras

    from jobi_tf.training.run import Run

STATUS_OF_INTERRUPTION = 128 + signal.SIGINT


def main() -> NoReturn:
    """Carries out a run and exits."""
    # What libraries print goes to the log, so that stdout carries messages only.
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()

    def say(kind: str, **content: Any) -> None:
        messages.write(json.dumps({"kind": kind, **content}) + "\n")
        messages.flush()

    try:
        _set_threads(request["threads"])
        _carry_out(request, say)
        say("done")
    except BaseException as error:
        traceback.print_exc()
        say("failed", reason=_explain(error))
    sys.stderr.flush()
    os._exit(0)  # TensorFlow takes a while to leave, and there is nothing left to be kept


def _end_with_the_parent() -> None:
    sys.stdin.read()
    os._exit(STATUS_OF_INTERRUPTION)  # checkpoints are complete or not there


def _set_threads(threads: int | None) -> None:
    if threads is not None:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def _carry_out(request: dict[str, Any], say: Any) -> None:
    from jobi_tf.experiments.reproduce.record import read_record, write_record
    from jobi_tf.training.run_folder import RunFolder

    settings = request["settings"]
    path = Path(settings["run_dir"])
    with _alone(path):
        if read_record(path) is None:  # else another process was faster
            write_record(_trained(settings, say), request["jobs"])
            # Three times as large as the model, and of use only to training.
            shutil.rmtree(RunFolder(path).path / "checkpoints", ignore_errors=True)


def _trained(settings: dict[str, Any], say: Any) -> "Run":
    """Trains, or goes on from a checkpoint."""
    from jobi_tf.experiments.reproduce.plan import check_settings
    from jobi_tf.training.config import TrainConfig
    from jobi_tf.training.run_folder import RunFolder
    from jobi_tf.training.train import resume, train

    config, folder = TrainConfig.create(settings), RunFolder(Path(settings["run_dir"]))
    callbacks = [_watch(say, config.epochs)]
    if folder.checkpoints():
        check_settings(folder, config)
        return resume(folder.path, callbacks=callbacks)
    shutil.rmtree(folder.path, ignore_errors=True)  # its first epoch never ended
    return train(config=config, callbacks=callbacks)


def _watch(say: Any, epochs: int) -> "keras.callbacks.Callback":
    import keras

    class Watch(keras.callbacks.Callback):
        """Tells about each epoch."""

        def on_epoch_end(self, epoch: int, logs: dict) -> None:
            value = logs.get("val_hits@10")
            say("epoch", epoch=epoch + 1, epochs=epochs, value=None if value is None else float(value))

    return Watch()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Holds a lock on the folder of a run.

    Raises:
        JobiError: another process holds it.
    """
    from jobi_tf.errors import JobiError

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobiError(f"expected {path} for itself, but another process is training that run") from None
        yield


def _explain(error: BaseException) -> str:
    """Returns one sentence."""
    from jobi_tf.errors import JobiError

    text = " ".join(str(error).split())
    if isinstance(error, JobiError):
        return text
    if isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError":
        return "out of memory: the model or its batches are too large for this machine"
    return f"{type(error).__name__}: {text}"[:500]


if __name__ == "__main__":
    main()
