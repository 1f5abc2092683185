"""Pythons of their own that train: the side that starts them; `worker` is the other end."""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobi_tf.errors import JobiError

SECONDS_TO_END = 10


class WorkerProcess:
    """A Python that trains: TensorFlow cannot fork, gives memory back only when it ends, and may be killed.

    Each line on its stdin and stdout is a JSON object. It ends at once when its stdin ends, so also when this process
    is killed.

    Args:
        module: what it runs; see `worker.main`.
        request: what is asked of it.
        log: file for its stderr.
        tell: called in a thread with the kind and content of each message, and at last with `ended` and its `status`.
        inherits: files that it holds open until it ends.
    """

    def __init__(
        self,
        module: str,
        request: dict[str, Any],
        log: Path,
        tell: Callable[[str, dict[str, Any]], None],
        inherits: Sequence[int] = (),
    ):
        self._tell = tell
        with log.open("w", encoding="utf-8") as stderr:
            # A session of its own: Ctrl-C reaches this process alone, which then ends the others.
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ},
                start_new_session=True,
                pass_fds=inherits,
            )
        threading.Thread(target=self._listen, daemon=True).start()
        self.send(request)

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message; to a process that has died, in vain: its end is told."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass

    def terminate(self) -> None:
        """Tells it to end."""
        self._process.terminate()

    def close(self) -> None:
        """Waits for its end, and kills it if that takes too long."""
        try:
            self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            pass
        finally:  # also when a second Ctrl-C interrupts the wait
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:  # cut short by a kill
                continue
            self._tell(message.pop("kind"), message)
        self._tell("ended", {"status": self._process.wait()})


@contextmanager
def alone(lock: Path, refusal: JobiError, patience: float = 0) -> Iterator[int]:
    """Holds a lock file, and gives it, so that processes can hold it too; waits for it `patience` seconds.

    Raises:
        JobiError: another process holds it: the refusal.
    """
    file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise refusal from None
                time.sleep(0.1)
        yield file
    finally:
        os.close(file)
