"""The process of one trial, as the search sees it; `search_worker` is the other end."""

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

SECONDS_TO_END = 10


class Event(NamedTuple):
    """What a process says: `epoch`, `ranking`, `done`, `failed`, and at last `ended` with its exit status."""

    trial: int
    kind: str
    content: dict[str, Any]


class TrialProcess:
    """Trains one trial in a Python of its own: TensorFlow cannot fork, and what kills it kills no other trial.

    Each line on its stdin and stdout is a JSON object. It ends at once when its stdin ends, so also when the search is
    killed.

    Args:
        trial: number of the trial.
        request: what is asked of it, see `search_worker`.
        log: file for its stderr.
        events: where its events go.
        lock: an open file that it holds until it ends, so that no other search begins in the folder before.
    """

    def __init__(self, trial: int, request: dict[str, Any], log: Path, events: "queue.Queue[Event]", lock: int):
        self.trial = trial
        self._events = events
        environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
        with log.open("w", encoding="utf-8") as stderr:
            # A session of its own: Ctrl-C reaches the search alone, which then ends its processes.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jobi_tf.experiments.search_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                env=environment,
                start_new_session=True,
                pass_fds=(lock,),
            )
        threading.Thread(target=self._listen, daemon=True).start()
        self.send(request)

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message; to a process that has died, in vain: its end is told by an event."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass

    def terminate(self) -> None:
        """Tells the process to end."""
        self._process.terminate()

    def close(self) -> None:
        """Ends the process and waits for it."""
        self.terminate()
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
            self._events.put(Event(self.trial, message.pop("kind"), message))
        self._events.put(Event(self.trial, "ended", {"status": self._process.wait()}))
