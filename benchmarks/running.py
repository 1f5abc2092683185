"""Runs a suite: its tasks in turns, A B A B …, each in its own process, and for two checkouts if requested."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.results import Figure, Line, Measured

WORKER = Path(__file__).with_name("worker.py")
# As `jobi-tf train` sets the allocator.
KEEP_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=33554432:"
    f"glibc.malloc.trim_threshold={2**31 - 1}:glibc.malloc.hugetlb=1"
}
KEEPS_MEMORY = {"train", "quality", "epochs", "rows"}
FOLDERS = {"JOBI_TF_ARCHIVES", "JOBI_TF_HOME"}  # environment variables that may hold a relative path


class MeasurementError(Exception):
    """A measurement failed; the message says why."""


@dataclass(frozen=True)
class Task:
    """A measurement. Tasks with the same function and arguments share a process."""

    function: str | Sequence[str]  # of worker.py, or a command that answers rounds as worker.py does
    arguments: dict[str, Any] = field(default_factory=dict)
    round: dict[str, Any] = field(default_factory=dict)  # arguments of each of its rounds


@dataclass(frozen=True)
class Suite:
    """Tasks that are measured in turns, by name, and the figures that are made of them; `data` names the graph."""

    tasks: dict[str, Task]
    lines: list[Line]
    data: str
    once: bool = False  # it takes too long to be repeated, or to be warmed up


@dataclass(frozen=True)
class Setting:
    """How to measure."""

    work: Path  # folder for temporary files, up to 3 GB
    repeats: int = 5  # rounds that count
    tiny: bool = False  # every suite in a form that takes seconds and whose figures mean nothing
    against: Path | None = None  # root of another checkout to measure in turns with this one
    log: Callable[[str], None] = print  # called with lines about the progress

    @cached_property
    def dataset(self) -> Path:
        """Folder with FB15K-237 as text."""
        folder = self.work / ("world" if self.tiny else "fb15k-237")
        # The one task that uses the cache of the user, which may hold the archive.
        self._once(Task("text", {"dataset": folder.name, "folder": str(folder)}), own_cache=False)
        return folder

    def synthetic(self, entities: int, relations: int, triples: int) -> Path:
        """Returns a folder with a synthetic graph as text, written when it is first needed."""
        folder = self.work / f"synthetic-{entities}-{relations}-{triples}-0"
        if not folder.exists():
            self.log(f"  writing a graph of {entities:,} entities and {triples:,} triples")
            sizes = f"--entities {entities} --relations {relations} --triples {triples}"
            arguments = ["data", "synthesize", *sizes.split(), "--out", str(folder)]
            self._once(Task("command", {"arguments": arguments}))
        return folder

    def shards(self, folder: Path) -> Path:
        """Returns a folder with the triples of a graph as shards."""
        shards = self.work / f"{folder.name}-shards"
        arguments = ["data", "prepare", str(folder), "--shards", "4", "--out", str(shards)]
        self._once(Task("command", {"arguments": arguments}))
        return shards

    def _once(self, task: Task, own_cache: bool = True) -> None:
        with worker(task, self.work, None, own_cache) as measure:
            measure(task.round)


def python(checkout: Path | None) -> Path:
    """Returns the Python of a checkout, in which it is installed; None: of this one."""
    return Path(sys.executable) if checkout is None else checkout / ".venv" / "bin" / "python"


@contextmanager
def worker(
    task: Task, work: Path, checkout: Path | None = None, own_cache: bool = True
) -> Iterator[Callable[[dict[str, Any]], dict[str, float]]]:
    """Runs the process of a task until the block ends; gives a function that returns what a round measured.

    It works in a folder of `work`, one for each checkout, with its own cache if `own_cache`. The function raises
    `MeasurementError` if the process ended, with the last line of its stderr, or answered something else.
    """
    folder = work / ("other" if checkout else "here")
    folder.mkdir(exist_ok=True)
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"} | os.environ
    environment |= {"CUDA_VISIBLE_DEVICES": "-1"}  # the clocks do not wait for a GPU
    environment |= {x: str(Path(environment[x]).absolute()) for x in FOLDERS & environment.keys()}
    environment |= {"JOBI_TF_HOME": str(folder / "cache")} if own_cache else {}
    environment |= KEEP_MEMORY if task.function in KEEPS_MEMORY else {}
    command = task.function
    if isinstance(command, str):
        command = [str(python(checkout)), str(WORKER), command, json.dumps(task.arguments)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        tempfile.TemporaryFile() as errors,
        suppress(BrokenPipeError),  # of closing the stdin of a process that has ended
        subprocess.Popen(
            command, **pipes, stderr=errors, env=environment, cwd=folder, start_new_session=True
        ) as process,
    ):

        def measure(arguments: dict[str, Any]) -> dict[str, float]:
            answer = ""
            with suppress(BrokenPipeError):
                print(json.dumps(arguments), file=process.stdin, flush=True)
                answer = process.stdout.readline()  # type: ignore[union-attr]
            if answer:
                try:
                    return json.loads(answer)
                except ValueError:
                    raise MeasurementError(f"expected a JSON object from the process, got {answer!r}") from None
            status = process.wait()
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            raise MeasurementError(lines[-1].strip() if lines else f"the process ended with status {status}")

        try:
            yield measure
        except BaseException:  # such as Ctrl-C: the process, and those that it has started, would go on
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def run(name: str, suite: Suite, setting: Setting) -> Iterator[Figure]:
    """Measures a suite and yields its figures, and for what could not be measured the reason."""
    checkouts = [None, setting.against] if setting.against else [None]
    # A suite without figures only prepares files for the next ones.
    rounds = 1 if suite.once and (len(checkouts) == 1 or not suite.lines) else setting.repeats
    first = 0 if suite.once else -1  # a round that does not count
    turns = [
        (checkout, key, task)
        for key, task in suite.tasks.items()
        for checkout in (checkouts if isinstance(task.function, str) else [None])
    ]
    measured: dict[Path | None, Measured] = {None: {}, setting.against: {}}
    failures: dict[tuple[Path | None, str], str] = {}
    processes: dict[str, Callable] = {}
    with ExitStack() as stack:
        for turn in range(first, rounds):
            setting.log(f"  {', '.join(suite.tasks)}: round {turn + 1} of {rounds}")
            for checkout, key, task in turns:
                if (checkout, key) in failures:
                    continue
                process = f"{checkout} {task.function} {task.arguments}"
                try:
                    if process not in processes:
                        processes[process] = stack.enter_context(worker(task, setting.work, checkout))
                    answer = processes[process](task.round)
                except (MeasurementError, OSError) as error:
                    setting.log(f"  {key} failed: {error}")
                    failures[checkout, key] = str(error)
                    measured[checkout].pop(key, None)
                    continue
                if turn >= 0:
                    measured[checkout].setdefault(key, []).append(answer)
    for (checkout, key), reason in failures.items():
        yield {"name": f"{name}/{key}", "reason": f"{checkout}: {reason}" if checkout else reason}
    other = measured[setting.against] if setting.against else {}
    for line in suite.lines:
        if figure := line.figure(suite.data, measured[None], other):
            yield figure
