"""The files of a run, which are written completely or not at all."""

import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jobi_tf.data.graph import Graph
from jobi_tf.errors import DataError, UsageError, damaged, without_passwords
from jobi_tf.evaluation.metrics import best_row
from jobi_tf.files import check_new, read_json, written_beside
from jobi_tf.training.config import TrainConfig, read_settings

# Runs that are part of the package, by name.
PRETRAINED = {"world": Path(__file__).parents[1] / "datasets" / "world" / "run"}


def run_path(folder: str | Path) -> Path:
    """Returns the folder of a run; `world` is that of the package unless there is a folder of that name."""
    path = Path(folder)
    return path if path.exists() else PRETRAINED.get(str(folder), path)


class RunFolder:
    """The files of a run, by name, in the folder `path`."""

    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.yaml"  # every setting of the run
        self.graph = path / "graph"  # folder of the prepared graph, vocabulary and triples
        self.model = path / "model.keras"  # the best weights so far
        self.sharded_model = path / "model"  # the same with parameter servers: a folder, which they write in parts
        self.metrics = path / "metrics.jsonl"  # a JSON object for each epoch; `metrics.csv` has the same
        self.logs = path / "logs"  # for TensorBoard
        self.evaluations = path / "evaluations"  # metrics (`test.json`) and ranks (`test.npz`)
        self.soft_labels = path / "soft-labels.npz"  # those that the recipe auto made for the run

    def checkpoints(self) -> list[Path]:
        """Returns the complete checkpoints, oldest first; each holds the model and `state.json`."""
        return sorted((self.path / "checkpoints").glob("epoch-*"))

    def checkpoint(self, epoch: int, step: int = 0) -> Path:
        """Returns the folder for the checkpoint after `epoch` epochs and `step` steps of the next one."""
        return self.path / "checkpoints" / (f"epoch-{epoch:06d}" + (f"-step-{step:08d}" if step else ""))

    def stored_model(self) -> Path | None:
        """Returns the file or folder of the best model, or the last checkpoint if there is none yet, or None."""
        paths = (self.model, self.sharded_model, *self.checkpoints()[-1:])
        return next((path for path in paths if path.exists()), None)

    def begin(self, config: TrainConfig, graph: Graph) -> None:
        """Writes settings, graph and environment of a new run; raises a `UsageError` if the folder has files by now."""
        check_new(self.path.absolute())
        self.path.mkdir(parents=True, exist_ok=True)
        graph.save(self.graph)
        self.write_config(config)
        environment = json.dumps(describe_environment(), indent=1) + "\n"
        (self.path / "environment.json").write_text(environment, encoding="utf-8")

    def read_config(self) -> TrainConfig:
        """Reads the settings; raises a `DataError` if they are damaged or missing, as in the folder of no run."""
        if not self.config.is_file():
            raise DataError(f"expected the folder of a run, found no config.yaml in {self.path}")
        try:
            settings = read_settings(self.config)
            trained_here = settings.get("strategy") != "parameter-server" and not settings.get("own_program")
            if settings.get("average_epochs") is None and trained_here:
                settings["average_epochs"] = 1  # of a run that is older than this setting
            if self.soft_labels.exists():  # the folder may have been moved
                settings["soft_labels"] = str(self.soft_labels.absolute())
            return TrainConfig.create(settings, str(self.config))
        except UsageError as error:
            raise DataError(str(error)) from None

    def write_config(self, config: TrainConfig) -> None:
        """Writes the settings, complete or not at all."""
        with written_beside(self.config) as beside:
            config.write(beside)

    def read_state(self, checkpoint: Path) -> dict[str, Any]:
        """Reads `epoch`, `step` and the running `metrics` of a checkpoint, or raises a `DataError`."""
        path = checkpoint / "state.json"
        with damaged("the state of a run", path):
            return json.loads(path.read_text(encoding="utf-8"))

    def read_metrics(self) -> list[dict[str, Any]]:
        """Returns the rows of `metrics.jsonl`; raises a `DataError` if the file is damaged."""
        if not self.metrics.exists():
            return []
        with damaged("a JSON object for each epoch", self.metrics):
            lines = self.metrics.read_text(encoding="utf-8").split("\n")[:-1]
            return [json.loads(line) for line in lines]


def run_summary(folder: RunFolder) -> dict[str, Any]:
    """Summarizes the metrics of a run's epochs.

    Returns:
        `best_epoch` (that of the model, the last one if none was ranked), its validation `metrics`, the number of
        `epochs`, and their `seconds`.
    """
    rows = folder.read_metrics() or [{"epoch": 0}]
    best = best_row(rows, folder.read_config().monitor) or rows[-1]
    return {
        "metrics": {name.removeprefix("val_"): x for name, x in best.items() if name.startswith("val_")},
        "best_epoch": best["epoch"],
        "epochs": rows[-1]["epoch"],
        "seconds": sum(row.get("seconds") or 0 for row in rows),
    }


def stored_evaluation(run_dir: Path) -> dict[str, Any]:
    """Returns the stored metrics of the test split; empty if there are none, or they are of a model of another epoch.

    Raises:
        DataError: the file is damaged.
    """
    folder = RunFolder(run_dir)
    result = read_json(folder.evaluations / "test.json", "the metrics of an evaluation", "epoch")
    return result if result and result["epoch"] == run_summary(folder)["best_epoch"] else {}


def describe_environment() -> dict[str, Any]:
    """Returns versions, machine, command line and date, for the record."""
    packages = ("jobi-tf", "tensorflow", "keras", "numpy", "protobuf")
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": [without_passwords(x) for x in sys.argv],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "versions": {name: version(name) for name in packages},
    }
