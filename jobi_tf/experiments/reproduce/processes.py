"""Runs, each in a process of its own: one after another, or several at once."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jobi_tf.experiments.reproduce.plan import PlannedRun

SECONDS_TO_END = 10


class Event(NamedTuple):
    """What a run says: `begun`, `epoch`, `done`, or `failed` with its `reason`."""

    run: PlannedRun
    kind: str
    content: dict[str, Any]


def carry_out(runs: Sequence[PlannedRun], jobs: int, tell: Callable[[Event], None]) -> dict[PlannedRun, str]:
    """Trains and ranks runs, and returns those that failed, with the reason; one that fails does not stop the others.

    Whatever ends this function, and be it an interruption, ends its processes; their checkpoints stay.

    Args:
        runs: the runs, in the order to begin them.
        jobs: how many at once; they share the processors.
        tell: called with every event.
    """
    waiting, failed = list(runs), {}
    events: queue.Queue[Event] = queue.Queue()
    working: dict[Path, _Process] = {}
    try:
        while waiting or working:
            while waiting and len(working) < jobs:
                run = waiting.pop(0)
                tell(Event(run, "begun", {"epoch": run.epochs_done}))
                working[run.path] = _Process(run, jobs, events)
            event = events.get()
            if event.kind in ("done", "failed"):
                working.pop(event.run.path).close()
            if event.kind == "failed":
                failed[event.run] = event.content["reason"]
            tell(event)
    finally:
        for process in working.values():
            process.end()
        for process in working.values():
            process.close()
    return failed


class _Process:
    """A Python of its own: TensorFlow gives memory back only when it ends, and what kills it kills no other run.

    It ends at once when its stdin ends, so also when this process is killed.
    """

    def __init__(self, run: PlannedRun, jobs: int, events: "queue.Queue[Event]"):
        self._run, self._events = run, events
        run.path.parent.mkdir(parents=True, exist_ok=True)
        self._log = run.path.with_name(f"{run.path.name}.log")
        with self._log.open("w", encoding="utf-8") as stderr:
            # A session of its own: Ctrl-C reaches this process alone, which then ends the others.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jobi_tf.experiments.reproduce.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ},
                start_new_session=True,
            )
        threads = None if jobs == 1 else max(1, (os.cpu_count() or 1) // jobs)
        request = {"settings": run.config.model_dump(), "threads": threads, "jobs": jobs}
        threading.Thread(target=self._listen, args=(json.dumps(request),), daemon=True).start()

    def end(self) -> None:
        """Tells it to end."""
        self._process.terminate()

    def close(self) -> None:
        """Waits for its end."""
        try:
            self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            pass
        finally:  # also when a second Ctrl-C interrupts the wait
            self._process.kill()
            self._process.wait()

    def _listen(self, request: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:  # it has died already
            pass
        last = ""
        for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:  # cut short by a kill
                continue
            last = message.pop("kind")
            self._events.put(Event(self._run, last, message))
        if last not in ("done", "failed"):
            reason = f"its process ended with status {self._process.wait()}: see {self._log}"
            self._events.put(Event(self._run, "failed", {"reason": reason}))
