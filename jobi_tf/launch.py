"""The workers of a training as processes of this machine."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

import psutil

from jobi_tf.errors import JobiError

SECONDS_FOR_THE_CHIEF = 3  # to report by itself what failed in another worker too, such as a wrong setting


def launch(workers: int, arguments: Sequence[str]) -> int:
    """Runs `jobi-tf` with the same arguments in several processes, each with a `TF_CONFIG`, until all have ended.

    The first one, the chief, has the terminal. If one fails, all are ended, and what it printed last is shown. They are
    ended by a signal that interrupts this process too, and then the chief prints how to resume.

    Args:
        workers: number of processes.
        arguments: of `jobi-tf`.

    Returns:
        The exit status of the process that failed first, 0 if none did.

    Raises:
        JobiError: a process was killed.
    """
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(workers)]
    processes: list[subprocess.Popen] = []
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(workers)]
        try:
            for index, output in enumerate(outputs):
                processes.append(_start(addresses, index, arguments, output if index else None))
            with _forwarded(processes[0]):
                failed = _first_to_fail(processes)
            if failed is None:
                return 0
            status = processes[failed].returncode
            if failed:
                _show(outputs[failed], failed)
        finally:
            for process in processes:  # checkpoints are complete or not there
                process.kill()
                process.wait()
    if status < 0:
        name = "the chief, worker 0" if failed == 0 else f"worker {failed}"
        raise JobiError(
            f"{name} of {workers} was killed ({signal.Signals(-status).name}), and the others were ended; resume with "
            "the same command and --resume RUN instead of --run-dir and the settings"
        )
    return status


def _start(addresses: list[str], index: int, arguments: Sequence[str], output: IO | None) -> subprocess.Popen:
    cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    # The cores are shared, unless the environment says otherwise.
    threads = max(1, len(psutil.Process().cpu_affinity() or [0]) // len(addresses))
    environment = {"TF_NUM_INTRAOP_THREADS": str(threads), **os.environ, "TF_CONFIG": json.dumps(cluster)}
    return subprocess.Popen(
        [sys.executable, "-m", "jobi_tf.cli", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        process_group=0,  # Ctrl-C reaches this process alone, which passes it on
    )


def _first_to_fail(processes: list[subprocess.Popen]) -> int | None:
    """Waits until all processes have ended, or one has failed, and returns the number of that."""
    chief = processes[0]
    while True:
        ended = [i for i, process in enumerate(processes) if process.poll() is not None]
        failed = [i for i in ended if processes[i].returncode]
        if failed:
            if chief.poll() is None and processes[failed[0]].returncode > 0:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    chief.wait(SECONDS_FOR_THE_CHIEF)
            return 0 if chief.returncode else failed[0]
        if len(ended) == len(processes):
            return None
        time.sleep(0.02)


@contextmanager
def _forwarded(chief: subprocess.Popen) -> Iterator[None]:
    """Passes SIGINT and SIGTERM on to the chief, which ends as a training that is interrupted does.

    The others wait for it in their next step, and are ended after it: it may need them to complete its own step.
    """

    def forward(number: int, frame: object) -> None:
        chief.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(output: IO[bytes], worker: int) -> None:
    output.seek(0)
    for line in output.read().decode("utf-8", "replace").splitlines():
        print(f"[worker {worker}] {line}", file=sys.stderr)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [x.getsockname()[1] for x in sockets]
