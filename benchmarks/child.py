"""Measurements that need a process of their own: fresh, or with a peak of memory that is theirs alone."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jobi_tf.errors import JobiError


def call(task: str, say: Callable[[str], None], home: Path | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Calls a task of `tasks.py` in a new Python process and returns what it measured.

    Args:
        task: name of the task.
        say: is told what the task says on its way.
        home: cache of prepared graphs; None for the user's.
        arguments: of the task; numbers, texts, paths, and mappings of them.

    Raises:
        JobiError: the task failed; with its last words.
    """
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"} | os.environ
    if home is not None:
        environment["JOBI_TF_HOME"] = str(home)
    command = [sys.executable, "-m", f"{__package__}.tasks", task, json.dumps(dict(arguments), default=str)]
    lines, error = run(command, say, environment)
    if error is not None:
        raise JobiError(f"{task} failed in a process of its own: {error}")
    return json.loads(lines[-1])


def run(
    command: list[str], say: Callable[[str], None], environment: dict[str, str] | None = None
) -> tuple[list[str], str | None]:
    """Runs a command to its end, or ends it where this process is interrupted.

    Its lines on stdout that begin with two blanks are for the person who waits, and are said at once.

    Returns:
        The other lines of its stdout; None if it succeeded, else why it did not, by its last words on stderr.

    Raises:
        JobiError: there is no such command.
    """
    lines: list[str] = []
    with tempfile.TemporaryFile() as errors:  # a pipe that nobody reads could fill up
        try:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace", env=environment
            )
        except OSError as problem:
            raise JobiError(f"cannot run {command[0]}: {problem.strerror}") from None
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("  "):
                    say(line.rstrip())
                else:
                    lines.append(line.rstrip("\n"))
            status = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip().splitlines()
    return lines, _reason(status, said) if status else None


def _reason(status: int, said: list[str]) -> str:
    if status == -signal.SIGKILL:
        return "it was killed, probably because the memory did not suffice"
    if status < 0:
        return f"it was ended by {signal.Signals(-status).name}"
    if not said:
        return f"it ended with status {status} without a word"
    # Of pip and git these lines tell more than their last ones; of Python the last one is the exception.
    return next((line.strip() for line in said if line.strip().startswith(("fatal:", "ERROR: "))), said[-1].strip())
