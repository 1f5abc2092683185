"""Runs TensorFlow Serving, where it is installed."""

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from jobi_tf.errors import JobiError

from .render import Batching, batching_config, flags, models_config, monitoring_config, pinned
from .settings import ServerSettings

PROGRAM = "tensorflow_model_server"
# What it has nothing for, by the names of `ServerSettings`.
LACKING = {
    "host": "listens on all addresses of the machine",
    "max_body": "has no limit on the size of requests",
    "max_rows": "has no limit on rows",
    "max_requests": "has no limit on the number of requests",
    "certificate": "has no TLS for REST",
    "key": "has no TLS for REST",
    "token": "asks for no token",
}


def lacking(settings: ServerSettings, given: Collection[str]) -> tuple[str, str] | None:
    """Returns the first of the settings that TensorFlow Serving cannot keep, with what it does instead; None if all.

    Args:
        settings: the settings.
        given: names of those that were asked for.
    """
    for name, instead in LACKING.items():
        if name in given and not (name == "host" and settings.host in ("0.0.0.0", "::")):
            return name, instead
    for name in ("grpc_port", "rest_port"):
        if getattr(settings, name) == 0:
            return name, "cannot let the system choose a port"
    if settings.poll != round(settings.poll) or settings.poll < 1:
        return "poll", "looks for versions after whole seconds"
    return None


def run(settings: ServerSettings, given: Collection[str], config: Path | None = None) -> None:
    """Runs TensorFlow Serving until it is told to end by SIGTERM or SIGINT.

    Args:
        settings: what is served, where; none of it `lacking`.
        given: names of the settings that were asked for.
        config: the file that the models came from, if they did; it is then read again when it changes.

    Raises:
        JobiError: the program is not installed, or it ended by itself.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise JobiError(f"expected {PROGRAM} on the PATH, found none")
    with tempfile.TemporaryDirectory(prefix="jobi-tf-serve-") as folder:
        status = _run_until_told([program, *arguments(settings, given, Path(folder), config)])
    if status is not None:
        raise JobiError(f"{PROGRAM} ended by itself, with status {status}")


def arguments(settings: ServerSettings, given: Collection[str], folder: Path, config: Path | None = None) -> list[str]:
    """Writes the files that TensorFlow Serving reads into a folder, and returns its arguments."""
    if config is None:
        config = folder / "models.config"
        config.write_text(models_config([pinned(model) for model in settings.models]), encoding="utf-8")
    (folder / "prometheus.config").write_text(monitoring_config(), encoding="utf-8")
    batched = bool({"batch_rows", "batch_wait"} & {*given})
    if batched:
        batching = Batching()
        if "batch_rows" in given:
            batching = replace(batching, max_rows=settings.batch_rows)
        if "batch_wait" in given:
            batching = replace(batching, wait=settings.batch_wait)
        (folder / "batching.conf").write_text(batching_config(batching), encoding="utf-8")
    return [
        f"--port={settings.grpc_port or 0}",
        f"--rest_api_port={settings.rest_port or 0}",
        f"--file_system_poll_wait_seconds={round(settings.poll)}",
        *flags(str(config), f"{folder}/", batched, settings.timeout),
    ]


def _run_until_told(command: Sequence[str]) -> int | None:
    """Runs a program, passing on the signals that end it; returns its status if it ended without one."""
    told: list[int] = []
    process: subprocess.Popen | None = None

    def pass_on(number: int, frame: FrameType | None) -> None:
        told.append(number)
        if process is not None:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        process = subprocess.Popen(command)
        if told:  # it came before there was anyone to pass it on to
            process.terminate()
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return None if told else status
