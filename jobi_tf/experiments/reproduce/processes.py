"""Runs, each in a process of its own: one after another, or several at once."""

import os
import queue
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jobi_tf.experiments.processes import WorkerProcess
from jobi_tf.experiments.reproduce.plan import PlannedRun


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
    working: dict[Path, WorkerProcess] = {}
    try:
        while waiting or working:
            while waiting and len(working) < jobs:
                run = waiting.pop(0)
                tell(Event(run, "begun", {"epoch": run.epochs_done}))
                working[run.path] = _started(run, jobs, events)
            event = events.get()
            if event.kind in ("done", "failed"):
                working.pop(event.run.path).close()
            if event.kind == "failed":
                failed[event.run] = event.content["reason"]
            tell(event)
    finally:
        for process in working.values():
            process.terminate()
        for process in working.values():
            process.close()
    return failed


def _started(run: PlannedRun, jobs: int, events: "queue.Queue[Event]") -> WorkerProcess:
    """Starts the process of a run, whose last event is `done` or `failed`, however it ends."""
    run.path.parent.mkdir(parents=True, exist_ok=True)
    log = run.path.with_name(f"{run.path.name}.log")
    last = ""

    def tell(kind: str, content: dict[str, Any]) -> None:
        nonlocal last
        if kind != "ended":
            last = kind
        elif last in ("done", "failed"):
            return
        else:
            kind = "failed"
            content = {"reason": f"its process ended with status {content['status']}: see {log}"}
        events.put(Event(run, kind, content))

    threads = None if jobs == 1 else max(1, (os.cpu_count() or 1) // jobs)
    request = {"settings": run.config.model_dump(exclude_unset=True), "threads": threads, "jobs": jobs}
    return WorkerProcess("jobi_tf.experiments.reproduce.worker", request, log, tell)
