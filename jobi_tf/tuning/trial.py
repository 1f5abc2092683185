"""One trial of a search, trained in a process of its own, which does not load Optuna."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobi_tf.evaluation.metrics import best_row
from jobi_tf.jobs import run_lock, train_or_resume
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.run_folder import RunFolder

if TYPE_CHECKING:
    import keras


def train_trial(config: TrainConfig, callback: "keras.callbacks.Callback") -> None:
    """Trains a trial into its run folder, from its last checkpoint if it has one."""
    with run_lock(Path(config.run_dir or "")):
        train_or_resume(config, [callback])


def summary(folder: RunFolder, config: TrainConfig) -> dict[str, Any]:
    """Returns the validation metrics of the epoch that a run keeps, that epoch, the number of epochs and their time."""
    rows = folder.read_metrics()
    best = best_row(rows, config.monitor) or rows[-1]
    metrics = {name.removeprefix("val_"): value for name, value in best.items() if name.startswith("val_")}
    seconds = sum(row.get("seconds") or 0 for row in rows)
    return {"metrics": metrics, "best_epoch": best["epoch"], "epochs": rows[-1]["epoch"], "seconds": seconds}
