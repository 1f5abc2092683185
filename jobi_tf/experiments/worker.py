"""The side of a process that was started to train; `processes` is the other end."""

import json
import os
import queue
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from jobi_tf.training.config import TrainConfig
    from jobi_tf.training.run import Run
    from jobi_tf.training.run_folder import RunFolder

INTERRUPTED = 128 + signal.SIGINT


class Channel:
    """Lines of JSON from and to the process that started this one."""

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
        os._exit(INTERRUPTED)  # the other process has gone; checkpoints are complete or not there


def main(
    work: Callable[[dict[str, Any], Channel], dict[str, Any]],
    about_failure: Callable[[Exception], dict[str, Any]] = lambda error: {},
) -> NoReturn:
    """Does what the first message asks for, says `done` or `failed` with the `reason`, and exits.

    Args:
        work: takes the request, of which `threads` (None: as many as TensorFlow takes) is seen to here, and returns
            what is said with `done`.
        about_failure: returns what is said besides the reason.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    channel = Channel()
    try:
        request = channel.hear()
        _set_threads(request["threads"])
        channel.say("done", **work(request, channel))
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    except Exception as error:
        traceback.print_exc()
        channel.say("failed", reason=_explain(error), **about_failure(error))
    sys.stderr.flush()
    os._exit(0)  # TensorFlow takes a while to leave, and there is nothing left to be kept


def train_or_resume(config: "TrainConfig", folder: "RunFolder", callbacks: Any) -> "Run":
    """Trains into a run folder, from its last checkpoint where there is one."""
    from jobi_tf.training.train import resume, train

    if folder.checkpoints():
        return resume(folder.path, callbacks=callbacks)
    shutil.rmtree(folder.path, ignore_errors=True)  # its first epoch never ended
    return train(config=config, callbacks=callbacks)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _set_threads(threads: int | None) -> None:
    if threads is not None:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def _explain(error: Exception) -> str:
    """Returns one sentence."""
    from jobi_tf.errors import JobiError

    text = " ".join(str(error).split())
    if isinstance(error, JobiError):
        return text
    if isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError":
        return "out of memory: the model or its batches are too large for this machine"
    return f"{type(error).__name__}: {text}"[:500]
