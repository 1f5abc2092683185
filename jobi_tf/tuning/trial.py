"""One trial of a search, trained in a process of its own."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobi_tf.evaluation.metrics import best_row
from jobi_tf.jobs import run_lock, train_or_resume
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.run_folder import RunFolder

if TYPE_CHECKING:
    import keras

    from jobi_tf.training.recording import Training


def train_trial(config: TrainConfig, params: dict[str, Any], callback: "keras.callbacks.Callback") -> None:
    """Trains a trial into its run folder, from its last checkpoint if it has one, with `params` for TensorBoard."""
    folder = RunFolder(Path(config.run_dir or ""))

    def begin(training: "Training") -> list["keras.callbacks.Callback"]:
        import tensorflow as tf
        from tensorboard.plugins.hparams import api as hparams

        with tf.summary.create_file_writer(str(training.folder.logs)).as_default():
            values = {name: "default" if value is None else value for name, value in params.items()}
            hparams.hparams(values, trial_id=folder.path.name)
        return [callback]

    with run_lock(folder.path):
        train_or_resume(config, begin)


def summary(folder: RunFolder, config: TrainConfig) -> dict[str, Any]:
    """Returns the validation metrics of the epoch that a run keeps, that epoch, the number of epochs and their time."""
    rows = folder.read_metrics()
    best = best_row(rows, config.monitor) or rows[-1]
    metrics = {name.removeprefix("val_"): value for name, value in best.items() if name.startswith("val_")}
    seconds = sum(row.get("seconds") or 0 for row in rows)
    return {"metrics": metrics, "best_epoch": best["epoch"], "epochs": rows[-1]["epoch"], "seconds": seconds}
