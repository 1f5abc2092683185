"""Commands that are stopped from outside while they train."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil


def epoch_rows(run: Path) -> list[dict]:
    """The metrics of each epoch of a run, but for times."""
    path = run / "metrics.jsonl"
    every = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{k: v for k, v in row.items() if k not in ("seconds", "triples_per_second")} for row in every]


def stop_when(
    condition: Callable[[], bool], command: Sequence[object], how: signal.Signals
) -> subprocess.CompletedProcess:
    """Starts a command and sends it a signal once the condition holds; its children must end too."""
    process = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 180
    try:
        while not condition():
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(how)
        _, printed = process.communicate(timeout=60)
        assert not psutil.wait_procs(children, 60)[1]
        return subprocess.CompletedProcess(command, process.returncode, stderr=printed)
    finally:
        process.kill()
        process.communicate()
