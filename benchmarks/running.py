"""Runs a suite: its tasks in turns, A B A B …, each in a process of its own, and of two checkouts where asked."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results import Measured, figure

WORKER = Path(__file__).with_name("worker.py")
# As `jobi-tf train` sets the allocator: freed memory is kept for the next step.
KEEP_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
}
KEEPS_MEMORY = {"train", "quality", "epochs"}


class MeasurementError(Exception):
    """A measurement failed; the message says why."""


@dataclass(frozen=True)
class Task:
    """A measurement.

    Args:
        function: function of worker.py, or a command that answers rounds as worker.py does.
        arguments: its arguments. Tasks with the same function and arguments share a process.
        round: arguments of each of its rounds.
    """

    function: str | Sequence[str]
    arguments: dict[str, Any] = field(default_factory=dict)
    round: dict[str, Any] = field(default_factory=dict)


class Line(NamedTuple):
    """A figure to make of what a suite measured.

    Args:
        name: unique, `suite/figure`.
        what: description for the table.
        task: name of the task.
        key: which of its values.
        ratio: `TASK / TASK`, whose values of the same key are divided round by round.
        target: comparison and bound, such as `<= 1.12`, on the ratio, or on the median if there is no ratio.
        unit: unit of the values; by default that of the key.
    """

    name: str
    what: str
    task: str
    key: str
    ratio: str = ""
    target: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Suite:
    """Tasks that are measured in turns.

    Args:
        tasks: the tasks by name.
        lines: the figures.
        data: name of the graph.
        once: it takes too long to be repeated, or to be warmed up.
        in_turns: whether all tasks are measured in each round, and not one task after the other.
    """

    tasks: dict[str, Task]
    lines: list[Line]
    data: str
    once: bool = False
    in_turns: bool = True


@dataclass(frozen=True)
class Setting:
    """How to measure.

    Args:
        work: folder for files that nobody keeps, up to 3 GB.
        repeats: rounds that count.
        tiny: every suite in a form that takes seconds and whose figures mean nothing.
        against: root of another checkout to measure in turns with this one.
        say: called with lines about the progress.
    """

    work: Path

    repeats: int = 5
    tiny: bool = False
    against: Path | None = None
    say: Callable[[str], None] = print

    @cached_property
    def dataset(self) -> Path:
        """Folder with FB15K-237 as text, or with a synthetic graph of its size where it cannot be had."""
        name = "world" if self.tiny else "fb15k-237"
        folder = self.work / name
        try:
            # The one task that uses the cache of the user, which may hold the archive.
            self.once(Task("text", {"dataset": name, "folder": str(folder)}), own_cache=False)
        except MeasurementError as error:
            self.say(f"{name} cannot be loaded: {error}; a synthetic graph of the same size takes its place")
            return self.synthetic(14_541, 237, 310_116)
        return folder

    def synthetic(self, entities: int, relations: int, triples: int) -> Path:
        """Returns a folder with a synthetic graph as text, written when it is first needed."""
        folder = self.work / f"synthetic-{entities}-{relations}-{triples}-0"
        if not folder.exists():
            self.say(f"  writing a graph of {entities:,} entities and {triples:,} triples")
            sizes = {"--entities": entities, "--relations": relations, "--triples": triples, "--out": folder}
            options = [str(x) for option in sizes.items() for x in option]
            self.once(Task("command", {"arguments": ["data", "synthesize", *options]}))
        return folder

    def once(self, task: Task, own_cache: bool = True) -> dict[str, float]:
        """Returns what one round of a task of this checkout measured."""
        with Worker(task, self.work, None, own_cache) as worker:
            return worker.measure(task.round)


@dataclass
class Worker:
    """A process that measures a task round by round.

    Args:
        task: the task.
        work: folder that holds its working directory, one for each checkout, with the cache.
        checkout: root of another checkout; None for this one.
        own_cache: whether it has a cache of its own and not that of the user.
    """

    task: Task
    work: Path
    checkout: Path | None = None
    own_cache: bool = True
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "Worker":
        """Starts the process."""
        function = self.task.function
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"} | os.environ
        folder = self.work / ("other" if self.checkout else "here")
        folder.mkdir(exist_ok=True)
        if self.own_cache:
            environment["JOBI_TF_HOME"] = str(folder / "cache")
        if function in KEEPS_MEMORY:
            environment |= KEEP_MEMORY
        command = list(function)
        if isinstance(function, str):
            command = [str(python(self.checkout)), str(WORKER), function, json.dumps(self.task.arguments)]
        self._errors = self._stack.enter_context(tempfile.TemporaryFile())
        self._process = self._stack.enter_context(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                env=environment,
                cwd=folder,
            )
        )
        return self

    def measure(self, arguments: dict[str, Any]) -> dict[str, float]:
        """Returns what a round measured.

        Raises:
            MeasurementError: the process ended, with the last line of its stderr, or answered something else.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(arguments), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            try:
                return json.loads(answer)
            except ValueError:
                raise MeasurementError(f"expected a JSON object from the process, got {answer!r}") from None
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        raise MeasurementError(lines[-1].strip() if lines else f"the process ended with status {status}")

    def __exit__(self, *error: object) -> None:
        """Closes the stdin of the process, which ends it."""
        with suppress(BrokenPipeError):  # it has ended already
            self._stack.close()


def python(checkout: Path | None) -> Path:
    """Returns the Python of a checkout, in which it is installed."""
    return Path(sys.executable) if checkout is None else checkout / ".venv" / "bin" / "python"


def run(name: str, suite: Suite, setting: Setting) -> Iterator[dict[str, Any]]:
    """Measures a suite and yields its figures, and for what could not be measured the reason."""
    checkouts = [None] if setting.against is None else [None, setting.against]
    # A suite without figures only prepares files for the next ones.
    rounds = 1 if suite.once and (len(checkouts) == 1 or not suite.lines) else setting.repeats
    first = 0 if suite.once else -1  # a round that does not count
    measured: dict[Path | None, Measured] = {checkout: {} for checkout in checkouts}
    failures: dict[tuple[Path | None, str], str] = {}
    tasks = list(suite.tasks.items())
    for group in [tasks] if suite.in_turns else [[task] for task in tasks]:
        with ExitStack() as stack:
            workers: dict[str, Worker] = {}
            for turn in range(first, rounds):
                setting.say(f"  {', '.join(dict(group))}: round {turn + 1} of {rounds}")
                for key, task in group:
                    for checkout in checkouts if isinstance(task.function, str) else [None]:
                        if (checkout, key) in failures:
                            continue
                        process = f"{checkout} {task.function} {task.arguments}"
                        try:
                            if process not in workers:
                                workers[process] = stack.enter_context(Worker(task, setting.work, checkout))
                            answer = workers[process].measure(task.round)
                        except (MeasurementError, OSError) as error:
                            failures[checkout, key] = str(error)
                            continue
                        if turn >= 0:
                            measured[checkout].setdefault(key, []).append(answer)
    for (checkout, key), reason in failures.items():
        measured[checkout].pop(key, None)
        yield {"name": f"{name}/{key}", "reason": f"{checkout}: {reason}" if checkout else reason}
    for line in suite.lines:
        if made := figure(line, suite, measured[None], measured.get(setting.against, {}) if setting.against else {}):
            yield made
