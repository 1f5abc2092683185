"""What a run keeps on disk, and how it is written without ever being half there."""

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jobi_tf.errors import DataError
from jobi_tf.training.config import TrainConfig, read_settings


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Gives a path beside `path` to write to, and renames it to `path` when that succeeded."""
    beside = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        yield beside
        if path.is_dir():
            shutil.rmtree(path)
        beside.replace(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True) if beside.is_dir() else beside.unlink(missing_ok=True)


@dataclass(frozen=True)
class RunFolder:
    """The files of a run, by name.

    `config.yaml`, `environment.json`, `graph/` (vocabulary and triples), `model.keras` (the best weights),
    `metrics.jsonl` and `metrics.csv` (one row an epoch), `checkpoints/` (what `--resume` reads), `logs/` (TensorBoard).
    """

    path: Path

    @property
    def config(self) -> Path:
        """Every setting of the run."""
        return self.path / "config.yaml"

    @property
    def graph(self) -> Path:
        """The prepared graph."""
        return self.path / "graph"

    @property
    def model(self) -> Path:
        """The best model so far."""
        return self.path / "model.keras"

    @property
    def metrics(self) -> Path:
        """One JSON object an epoch."""
        return self.path / "metrics.jsonl"

    @property
    def logs(self) -> Path:
        """What TensorBoard reads."""
        return self.path / "logs"

    def checkpoints(self) -> list[Path]:
        """Returns the complete checkpoints, oldest first; each holds `model.keras` and `state.json`."""
        return sorted((self.path / "checkpoints").glob("epoch-*"))

    def checkpoint(self, epoch: int) -> Path:
        """Returns the folder for the checkpoint after `epoch` epochs."""
        return self.path / "checkpoints" / f"epoch-{epoch:06d}"

    def read_config(self) -> TrainConfig:
        """Reads the settings.

        Raises:
            DataError: this is not the folder of a run.
        """
        if not self.config.is_file():
            raise DataError(f"expected the folder of a run, found no config.yaml in {self.path}")
        return TrainConfig.create(read_settings(self.config), str(self.config))

    def read_metrics(self) -> list[dict[str, Any]]:
        """Returns the rows of `metrics.jsonl`, without a last line that a kill cut short."""
        if not self.metrics.exists():
            return []
        lines = self.metrics.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines]


def describe_environment() -> dict[str, Any]:
    """Returns versions, machine, command line and date, for the record."""
    packages = ("jobi-tf", "tensorflow", "keras", "numpy", "protobuf")
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "versions": {name: version(name) for name in packages},
    }
