"""Trains one trial of a search: `python -m jobi_tf.experiments.search_worker`, started by `search_process`.

The first line on stdin is the request: `settings`, `run_dir`, `metric`, `params` and `domains` (for TensorBoard) and
`threads` (None: as many as TensorFlow takes). After each ranking it says the metric, and goes on when told so.
"""

import json
import os
import queue
import shutil
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import keras

    from jobi_tf.training.callbacks import Training

INTERRUPTED = 128 + signal.SIGINT


class Channel:
    """Lines of JSON from and to the search."""

    def __init__(self) -> None:
        # What libraries print goes to the log, so that stdout carries messages only.
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._received: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def say(self, kind: str, **content: Any) -> None:
        """Sends a message."""
        self._out.write(json.dumps({"kind": kind, **content}) + "\n")
        self._out.flush()

    def hear(self) -> dict[str, Any]:
        """Waits for a message."""
        return self._received.get()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._received.put(json.loads(line))
        os._exit(INTERRUPTED)  # the search has gone; checkpoints are complete or not there


def main() -> NoReturn:
    """Trains a trial and exits."""
    signal.signal(signal.SIGTERM, _interrupt)
    channel = Channel()
    try:
        request = channel.hear()
        _set_threads(request["threads"])
        channel.say("done", **_train(request, channel))
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    except Exception as error:
        traceback.print_exc()
        channel.say("failed", reason=_explain(error), stop=_concerns_all(error))
    sys.stderr.flush()
    os._exit(0)  # TensorFlow takes a while to leave, and there is nothing left to be kept


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _set_threads(threads: int | None) -> None:
    if threads is not None:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def _train(request: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Trains, or goes on from a checkpoint, and returns the metrics of the epoch that the run keeps."""
    from jobi_tf.experiments.search_hparams import Session
    from jobi_tf.training.config import TrainConfig
    from jobi_tf.training.run_folder import RunFolder
    from jobi_tf.training.train import resume, train

    folder = RunFolder(Path(request["run_dir"]))
    begun: list[tuple[Training, Session]] = []

    def begin(training: "Training") -> list["keras.callbacks.Callback"]:
        session = Session(folder.logs, request["params"], request["domains"])
        begun.append((training, session))
        return [_watch(channel, request["metric"], training)]

    try:
        if folder.checkpoints():
            resume(folder.path, callbacks=begin)
        else:
            shutil.rmtree(folder.path, ignore_errors=True)  # its first epoch never ended
            train(config=TrainConfig.create(request["settings"] | {"run_dir": str(folder.path)}), callbacks=begin)
    except Exception:
        for _, session in begun:
            session.end(failed=True)
        raise
    training, session = begun[0]
    so_far = _so_far(training)
    session.end(so_far["metrics"])
    return so_far


def _so_far(training: "Training") -> dict[str, Any]:
    """Returns the validation metrics of the epoch that the run keeps, after a ranking."""
    rows = {row["epoch"]: row for row in training.folder.read_metrics()}
    best = training.stopping.state["best_epoch"]
    metrics = {name.removeprefix("val_"): value for name, value in rows[best].items() if name.startswith("val_")}
    seconds = sum(row.get("seconds") or 0 for row in rows.values())
    return {"best_epoch": best, "epochs": max(rows), "metrics": metrics, "seconds": seconds}


def _watch(channel: Channel, metric: str, training: "Training") -> "keras.callbacks.Callback":
    import keras

    class Watch(keras.callbacks.Callback):
        """Tells the search about each epoch, and stops when it says so."""

        def on_epoch_end(self, epoch: int, logs: dict) -> None:
            value, epochs = logs.get(f"val_{metric}"), training.config.epochs
            if value is None:
                channel.say("epoch", epoch=epoch + 1, epochs=epochs)
                return
            channel.say("ranking", epoch=epoch + 1, epochs=epochs, value=float(value), so_far=_so_far(training))
            if channel.hear()["stop"]:
                self.model.stop_training = True

    return Watch()


def _explain(error: Exception) -> str:
    """Returns one sentence."""
    from jobi_tf.errors import JobiError

    text = " ".join(str(error).split())
    if isinstance(error, JobiError):
        return text
    if isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError":
        return "out of memory: the model or its batches are too large for this machine"
    return f"{type(error).__name__}: {text}"[:500]


def _concerns_all(error: Exception) -> bool:
    """Tells whether the failure is none of the trial's settings, such as a full disk: the next one would fail too."""
    from jobi_tf.errors import JobiError

    return isinstance(error, OSError) and not isinstance(error, JobiError)


if __name__ == "__main__":
    main()
