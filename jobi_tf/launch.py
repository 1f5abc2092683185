"""The workers, and parameter servers, of a training as processes of this machine."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from jobi_tf.errors import JobiError

LAUNCHED = "JOBI_TF_LAUNCHED"  # environment variable of the processes: the command that started them
MOST_RESTARTS = 20  # of a worker; one that never has enough memory is killed again and again
SECONDS_FOR_THE_CHIEF = 3  # to report by itself what failed in another worker too, such as a wrong setting


class _Task:
    """A process, by its place in `TF_CONFIG`; the chief has the terminal, others write to a file."""

    def __init__(self, job: str, index: int, cluster: dict[str, list[str]], command: list[str], output: IO | None):
        self.name = {"chief": "the chief", "ps": f"parameter server {index}"}.get(job, f"worker {index}")
        self.job, self.output, self._command, self.restarts = job, output, command, 0
        # The cores are shared, unless the environment says otherwise.
        threads = max(1, cores() // sum(map(len, cluster.values())))
        config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        options = {"--workers": "worker", "--servers": "ps"}
        counts = [f"{option} {len(cluster[job])}" for option, job in options.items() if job in cluster]
        own = {"TF_CONFIG": config, LAUNCHED: f"launch {' '.join(counts)} --"}
        self._environment = {"TF_NUM_INTRAOP_THREADS": str(threads), **os.environ, **own}
        self.start()

    def start(self) -> None:
        """Starts the process, again if it was killed."""
        self.process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
            process_group=0,  # Ctrl-C reaches this process alone, which passes it on
        )


def launch(workers: int, arguments: Sequence[str], servers: int = 0) -> int:
    """Runs `jobi-tf` with the same arguments in several processes, each with a `TF_CONFIG`, until all have ended.

    The first process, the chief, uses the terminal; without servers it is the first worker. If a process fails, its
    output is shown and all others are ended. Signals to this process are forwarded to the chief, which prints how
    to resume. With parameter servers there is a chief beside the workers, and a worker that is killed is started again,
    up to `MOST_RESTARTS` times.

    Returns:
        The exit status of the process that failed first, 0 if none did.

    Raises:
        JobiError: a process was killed.
        KeyboardInterrupt: the chief was interrupted before it could print anything.
    """
    jobs = {"chief": 1, "worker": workers, "ps": servers} if servers else {"worker": workers}
    ports = iter(_free_ports(sum(jobs.values())))
    cluster = {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items()}
    command = [sys.executable, "-m", "jobi_tf", *arguments]
    tasks: list[_Task] = []
    received: set[int] = set()

    def forward(number: int, frame: object) -> None:
        received.add(number)
        tasks[0].process.send_signal(number)  # the others wait for it, which may need them to complete its step

    with contextlib.ExitStack() as stack:
        try:
            for job, count in jobs.items():
                for index in range(count):
                    output = stack.enter_context(tempfile.TemporaryFile()) if tasks else None
                    tasks.append(_Task(job, index, cluster, command, output))
            with signals_handled(forward, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                while failed := _first_to_fail(tasks, bool(servers)):
                    killed = failed.job == "worker" and failed.process.returncode < 0
                    if not servers or not killed or failed.restarts == MOST_RESTARTS:
                        break
                    failed.restarts += 1
                    print(f"{failed.name} was killed, and is started again", file=sys.stderr)
                    failed.start()
            if failed is None:
                return 0
            status = failed.process.returncode
            if failed.output:
                failed.output.seek(0)
                for line in failed.output.read().decode("utf-8", "replace").splitlines():
                    print(f"[{failed.name}] {line}", file=sys.stderr)
        finally:
            for task in tasks:  # checkpoints are complete or not there
                task.process.kill()
                task.process.wait()
    if status < 0:
        if -status in received:  # before it could handle the signal
            raise KeyboardInterrupt
        advice = "start them again, a training with --resume RUN if it has a checkpoint"
        raise JobiError(
            f"{failed.name} was killed ({signal.Signals(-status).name}) and the others were ended; {advice}"
        )
    return status


def end_with(parent: int) -> None:
    """Lets a thread end this process once its parent has ended, as by SIGKILL."""

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(128 + signal.SIGINT)  # checkpoints are complete or not there

    threading.Thread(target=wait, daemon=True).start()


def cores() -> int:
    """Returns the number of cores that this process may use."""
    import psutil  # not for `jobi-tf --help`

    current = psutil.Process()
    affinity = current.cpu_affinity() if hasattr(current, "cpu_affinity") else None  # macOS has none
    return len(affinity) if affinity else psutil.cpu_count() or 1


def _first_to_fail(tasks: list[_Task], servers: bool) -> _Task | None:
    """Waits until one has failed, which it returns, or all have ended; with servers, until the chief has."""
    chief = tasks[0]
    while True:
        ended = [task for task in tasks if task.process.poll() is not None]
        failed = [task for task in ended if task.process.returncode]
        if failed:
            if chief.process.poll() is None and failed[0].process.returncode > 0:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    chief.process.wait(SECONDS_FOR_THE_CHIEF)
            return chief if chief.process.returncode else failed[0]
        if len(ended) == len(tasks) or (servers and chief in ended):
            return None
        time.sleep(0.02)


@contextmanager
def signals_handled(handler: Any, *numbers: int) -> Iterator[None]:
    """Handles signals in another way while the block runs; those that are ignored, as by `nohup`, stay ignored."""
    before = {x: signal.signal(x, handler) for x in numbers if signal.getsignal(x) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [x.getsockname()[1] for x in sockets]
