"""Trainings in processes of their own, for searches and experiments.

TensorFlow returns memory only when its process ends, and if a process is killed for lack of memory, the others go on.
Protocol: a child sends an `Epoch` after each epoch, and receives whether to stop; if it fails, it sends a `JobError`.
A child ends when its parent ends.
"""

import multiprocessing
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jobi_tf.errors import JobiError, explain
from jobi_tf.files import run_lock
from jobi_tf.launch import cores, end_with

if TYPE_CHECKING:
    import keras

    from jobi_tf.training.config import TrainConfig
    from jobi_tf.training.run import Run

SECONDS_FOR_THE_LOCK = 15  # a process whose parent was killed may need a moment to end
SECONDS_TO_END = 10


class Epoch(NamedTuple):
    """An epoch that ended, from 1, the largest number of epochs, and the metrics in Keras' `logs`."""

    epoch: int
    epochs: int
    logs: dict[str, float]


class JobError(JobiError):
    """A job failed; `fatal`: others would fail too, as with a full disk."""

    def __init__(self, reason: str, fatal: bool = False):
        super().__init__(reason)
        self.fatal = fatal


class JobKilledError(JobError):
    """The process of a job was killed from outside, as by the system when memory runs out."""


class JobStoppedError(JobiError):
    """The job was ended by `Jobs.stop`."""


class Jobs:
    """Runs tasks in processes of their own, up to `count` at a time, which share the cores and the memory of GPUs.

    `run` blocks, and may be called from several threads. Processes are spawned: a script that uses this needs
    `if __name__ == "__main__":`. Leaving the context ends the processes that still run.
    """

    def __init__(self, count: int = 1):
        self.count = count
        self.threads = max(1, cores() // count) if count > 1 else None
        self.stopped = False
        self._processes: set[multiprocessing.process.BaseProcess] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> "Jobs":
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def run(self, task: Callable[..., object], *arguments: Any, log: Path, on_epoch: Callable[[Epoch], Any]) -> None:
        """Calls `task(*arguments, callback)` in a new process, and waits until it has ended.

        The callback is one of Keras for the training that the task does; `on_epoch` gets its epochs, and returns
        whether it should stop. What the process prints is in the file `log`, which is removed if it succeeds. Raises
        `JobError` if the task failed, `JobKilledError` or `JobStoppedError`.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")  # the process may die before it opens it
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_child, args=(theirs, log, self.threads, task, arguments), daemon=True)
        with self._lock:
            if self.stopped:
                raise JobStoppedError("the job was not started, since all are stopped")
            process.start()
            self._processes.add(process)
        theirs.close()
        try:
            while isinstance(message := ours.recv(), Epoch):
                ours.send(bool(on_epoch(message)))
            raise message
        except (EOFError, ConnectionError):  # the process has ended
            pass
        finally:
            ours.close()
            process.join(SECONDS_TO_END)
            process.kill()
            process.join()
            with self._lock:
                self._processes.discard(process)
        if process.exitcode == 0:
            log.unlink(missing_ok=True)
        elif self.stopped:
            raise JobStoppedError(f"the job was stopped: see {log}")
        else:
            raise JobKilledError(f"its process ended with status {process.exitcode}: see {log}")

    def stop(self) -> None:
        """Ends all jobs, and starts no more; checkpoints stay."""
        with self._lock:
            self.stopped = True
            for process in self._processes:
                process.terminate()


def train_or_resume(config: "TrainConfig", callback: "keras.callbacks.Callback") -> "Run":
    """Trains into the folder of a run, from its last checkpoint if it has one, while no other process does."""
    from jobi_tf.training.run_folder import RunFolder
    from jobi_tf.training.train import resume, train

    folder = RunFolder(Path(config.run_dir or ""))
    with run_lock(folder.path, SECONDS_FOR_THE_LOCK):
        if folder.checkpoints():
            return resume(folder.path, callbacks=[callback])
        shutil.rmtree(folder.path, ignore_errors=True)  # its first epoch was never completed
        return train(config=config, callbacks=[callback])


def _child(connection: Connection, log: Path, threads: int | None, task: Callable, arguments: Sequence[Any]) -> None:
    """Runs a task in the process that was started for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which then ends its children
    end_with(multiprocessing.parent_process().pid)  # type: ignore[union-attr, arg-type]
    with log.open("w", encoding="utf-8") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        _share_devices(threads)
        task(*arguments, _reporter(connection))
    except Exception as error:
        traceback.print_exc()
        reason = " ".join((explain(error) or f"{type(error).__name__}: {error}").split())[:500]
        connection.send(JobError(reason, fatal=isinstance(error, OSError)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # TensorFlow takes a while to shut down, and everything is saved


def _share_devices(threads: int | None) -> None:
    """Limits the threads of TensorFlow, and makes it take GPU memory as it needs it instead of all at once."""
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    if threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def _reporter(connection: Connection) -> "keras.callbacks.Callback":
    """Returns a callback that sends each epoch to the parent process, and stops the training if the answer is true."""
    import keras

    def report(epoch: int, logs: dict) -> None:
        values = {name: float(value) for name, value in logs.items()}
        connection.send(Epoch(epoch + 1, callback.params["epochs"], values))
        if connection.recv():
            callback.model.stop_training = True

    callback = keras.callbacks.LambdaCallback(on_epoch_end=report)
    return callback
