"""Searches for good settings: Optuna chooses them, processes of their own train them, validation judges."""

import os
import queue
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jobi_tf.errors import JobiError, MissingExtraError, UsageError
from jobi_tf.experiments.processes import WorkerProcess, alone
from jobi_tf.experiments.search_results import Results, SearchFolder, results_of
from jobi_tf.experiments.spaces import Space
from jobi_tf.files import written_beside
from jobi_tf.training.config import read_settings

if TYPE_CHECKING:
    from jobi_tf.data.graph import Graph
    from jobi_tf.experiments.search_study import Study

SECONDS_FOR_THE_LOCK = 15
# A process that is killed (out of memory, a machine that goes down) is started again so many times.
MOST_CRASHES = 2
FAILURES_IN_A_ROW = 5


class Event(NamedTuple):
    """What a trial's process says: `epoch`, `ranking`, `done`, `failed`, and at last `ended` with its exit status."""

    trial: int
    kind: str
    content: dict[str, Any]


class Watcher(Protocol):
    """What is told about a search while it goes."""

    def begun(self, results: Results) -> None:
        """The search begins, or goes on after `results`."""

    def trial_begun(self, number: int, params: dict[str, Any]) -> None:
        """A trial begins, or goes on."""

    def epoch(self, number: int, epoch: int, epochs: int) -> None:
        """A trial has finished an epoch."""

    def trial_ended(self, number: int, results: Results) -> None:
        """A trial has ended; `results` hold it."""


def search(space: Space, out: str | Path, jobs: int = 1, watcher: Watcher | None = None) -> Results:
    """Searches, or goes on with the search in a folder, and returns its trials.

    A search that was ended in any way goes on where it was: trials that were running keep their number and settings,
    and go on from their checkpoints.

    Args:
        space: what to search.
        out: folder of the search.
        jobs: trials at a time, each in a process of its own; they share the processors.
        watcher: is told how it goes.

    Raises:
        UsageError: the space cannot work, or the folder holds another search.
        DataError: the data cannot be used.
        MissingExtraError: Optuna is not installed.
        JobiError: no trial had a result, or something stood in the way of all.
    """
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("searching needs Optuna: pip install 'jobi-tf[search]'") from None
    from jobi_tf.experiments.search_study import Study

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space.check()
    folder = SearchFolder(Path(out))
    if folder.path.exists() and not folder.space.is_file() and (not folder.path.is_dir() or any(folder.path.iterdir())):
        raise UsageError(f"expected a new or empty folder, or that of a search, {out} holds other files")
    graph = _graph(space)
    (folder.path / "trials").mkdir(parents=True, exist_ok=True)
    with _alone(folder) as lock:
        _keep(space, folder)
        study = Study(space, folder, graph.fingerprint)
        return _Search(study, jobs, lock, watcher).run()


class _Search:
    """Begins trials and handles what their processes say."""

    def __init__(self, study: "Study", jobs: int, lock: int, watcher: Watcher | None):
        self.study = study
        self.jobs = jobs
        self.lock = lock
        self.watcher = watcher
        self.threads = max(1, len(os.sched_getaffinity(0)) // jobs) if jobs > 1 else None
        self.events: queue.Queue[Event] = queue.Queue()
        self.processes: dict[int, WorkerProcess] = {}
        self.said: dict[int, Event] = {}  # the last word of each process
        self.unfinished = study.unfinished()
        self.failures = 0

    def run(self) -> Results:
        """Goes on until no trial is left."""
        if self.watcher:
            self.watcher.begun(self.results())
        try:
            while self._fill():
                self._handle(self.events.get())
        finally:
            for process in self.processes.values():
                process.terminate()
            for process in self.processes.values():
                process.close()
        results = self.results()
        results.write()
        if not results.ranked():
            reasons = [trial.reason for trial in results.trials if trial.reason]
            raise JobiError(f"no trial had a result: {reasons[-1] if reasons else 'all were pruned'}")
        return results

    def results(self) -> Results:
        """Returns the trials as they are now."""
        return results_of(self.study.optuna, self.study.space, self.study.folder)

    def _fill(self) -> bool:
        """Begins trials while there are some and there is room; returns whether one is running."""
        while len(self.processes) < self.jobs:
            number = self.unfinished.pop(0) if self.unfinished else self.study.ask()
            if number is None:
                break
            if self.study.is_pruned(number):  # the search was killed before that trial had ended
                self._finish(number)
            else:
                self._start(number)
        return bool(self.processes)

    def _start(self, number: int) -> None:
        params, space, folder = self.study.params(number), self.study.space, self.study.folder
        request = {
            "settings": space.config(params).model_dump(exclude_unset=True),
            "run_dir": str(folder.trial(number).path),
            "metric": space.metric,
            "params": params,
            "domains": {parameter.name: parameter.as_mapping() for parameter in space.parameters},
            "threads": self.threads,
        }
        # It holds the lock too, so that no other search begins in the folder before it has ended.
        self.processes[number] = WorkerProcess(
            "jobi_tf.experiments.search_worker",
            request,
            folder.log(number),
            lambda kind, content: self.events.put(Event(number, kind, content)),
            inherits=(self.lock,),
        )
        if self.watcher:
            self.watcher.trial_begun(number, params)

    def _handle(self, event: Event) -> None:
        number = event.trial
        if event.kind == "ranking":
            self._handle_ranking(number, **event.content)
        elif event.kind == "epoch":
            self._say_epoch(number, **event.content)
        elif event.kind != "ended":
            self.said[number] = event
        else:
            self.processes.pop(number).close()
            self._handle_end(number, self.said.pop(number, None), event.content["status"])

    def _handle_ranking(self, number: int, epoch: int, epochs: int, value: float, so_far: dict[str, Any]) -> None:
        self.study.note(number, so_far)
        # After its last epoch a trial is complete, however it did.
        stop = self.study.report(number, epoch, value, last=epoch == epochs)
        self.processes[number].send({"stop": stop})
        self._say_epoch(number, epoch, epochs)

    def _say_epoch(self, number: int, epoch: int, epochs: int) -> None:
        if self.watcher:
            self.watcher.epoch(number, epoch, epochs)

    def _handle_end(self, number: int, word: Event | None, status: int) -> None:
        if word is None:
            self._handle_crash(number, status)
        elif word.kind == "done":
            self.study.note(number, word.content)
            self._finish(number)
        elif word.content["stop"]:
            reason = word.content["reason"]
            raise JobiError(f"trial {number} could not go on: {reason}; the same command goes on with it")
        else:
            self._fail(number, word.content["reason"])

    def _handle_crash(self, number: int, status: int) -> None:
        crashes = self.study.count_crash(number)
        if crashes <= MOST_CRASHES:
            self.unfinished.insert(0, number)
            return
        how = f"signal {-status}" if status < 0 else f"status {status}"
        self._fail(number, f"its process ended by {how}, {crashes} times; its log is {self.study.folder.log(number)}")

    def _finish(self, number: int) -> None:
        self.study.tell(number)
        self.study.folder.log(number).unlink(missing_ok=True)
        self._say_ended(number)

    def _fail(self, number: int, reason: str) -> None:
        self.study.tell_failed(number, reason)
        self.failures += 1
        results = self._say_ended(number)
        if self.failures == FAILURES_IN_A_ROW and not results.ranked():
            raise JobiError(f"the first {self.failures} trials failed, the last one since {reason}")

    def _say_ended(self, number: int) -> Results:
        results = self.results()
        results.write()  # after each trial: a killed search leaves its table behind
        if self.watcher:
            self.watcher.trial_ended(number, results)
        return results


def _graph(space: Space) -> "Graph":
    """Prepares the data set, once for all trials, and refuses one without a validation split."""
    graph = space.config({}).load_graph()
    if not len(graph.valid):
        raise UsageError(f"expected validation triples in {graph.name}, by which trials are judged, found none")
    return graph


def _alone(folder: SearchFolder) -> AbstractContextManager[int]:
    """Holds the lock of a search, as its processes do: those of a search that was killed may need a moment to end."""
    refusal = UsageError(f"expected to be alone in {folder.path}: a search is running there")
    return alone(folder.path / ".lock", refusal, SECONDS_FOR_THE_LOCK)


def _keep(space: Space, folder: SearchFolder) -> None:
    """Writes the space; refuses to go on with another one, but for the number of trials."""
    if folder.space.is_file():
        before, now = read_settings(folder.space), space.as_mapping()
        for key in ("settings", "search", "sampler", "metric", "seed", "prune"):
            was = before.get(key)
            if key == "search" and was == now[key] and list(was) != list(now[key]):  # a grid's points would change
                raise UsageError(
                    f"expected the search of {folder.path}, with {', '.join(was)} in this order, "
                    f"got {', '.join(now[key])}: choose another folder by --out"
                )
            if was != now[key]:
                if isinstance(was, dict) and isinstance(now[key], dict):
                    name = next(n for n in was | now[key] if was.get(n, was) != now[key].get(n, now))
                    key, was, got = f"{key}.{name}", was.get(name, "left out"), now[key].get(name, "left out")
                else:
                    got = now[key]
                raise UsageError(
                    f"expected the search of {folder.path}, where {key} is {was!r}, got {got!r}: "
                    "choose another folder by --out"
                )
    with written_beside(folder.space) as beside:
        space.write(beside)
