"""Trains one trial of a search: `python -m jobi_tf.experiments.search_worker`, started by `search`.

The first line on stdin is the request: `settings`, `run_dir`, `metric`, `params` and `domains` (for TensorBoard) and
`threads` (None: as many as TensorFlow takes). After each ranking it says the metric, and goes on when told so.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobi_tf.experiments.worker import Channel, main, train_or_resume

if TYPE_CHECKING:
    import keras

    from jobi_tf.training.recording import Training


def _train(request: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Trains, or goes on from a checkpoint, and returns the metrics of the epoch that the run keeps."""
    from jobi_tf.experiments.search_hparams import Session
    from jobi_tf.training.config import TrainConfig
    from jobi_tf.training.run_folder import RunFolder

    folder = RunFolder(Path(request["run_dir"]))
    begun: list[tuple[Training, Session]] = []

    def begin(training: "Training") -> list["keras.callbacks.Callback"]:
        session = Session(folder.logs, request["params"], request["domains"])
        begun.append((training, session))
        return [_watch(channel, request["metric"], training)]

    try:
        config = TrainConfig.create(request["settings"] | {"run_dir": str(folder.path)})
        train_or_resume(config, folder, begin)
    except Exception:
        for _, session in begun:
            session.end(failed=True)
        raise
    training, session = begun[0]
    so_far = _so_far(training)
    session.end(so_far["metrics"])
    return so_far


def _so_far(training: "Training", *more: dict[str, Any]) -> dict[str, Any]:
    """Returns the validation metrics of the epoch that the run keeps, given rows that are not written yet."""
    from jobi_tf.evaluation.metrics import best_row

    rows = [*training.folder.read_metrics(), *more]
    best = best_row(rows, training.config.monitor) or rows[-1]
    metrics = {name.removeprefix("val_"): value for name, value in best.items() if name.startswith("val_")}
    seconds = sum(row.get("seconds") or 0 for row in rows)
    return {"best_epoch": best["epoch"], "epochs": rows[-1]["epoch"], "metrics": metrics, "seconds": seconds}


def _watch(channel: Channel, metric: str, training: "Training") -> "keras.callbacks.Callback":
    import keras

    class Watch(keras.callbacks.Callback):
        """Tells the search about each epoch, and stops when it says so."""

        def on_epoch_end(self, epoch: int, logs: dict) -> None:
            value, epochs = logs.get(f"val_{metric}"), training.config.epochs
            if value is None:
                channel.say("epoch", epoch=epoch + 1, epochs=epochs)
                return
            row = {name: float(x) for name, x in logs.items()} | {"epoch": epoch + 1}
            so_far = _so_far(training, row)
            channel.say("ranking", epoch=epoch + 1, epochs=epochs, value=float(value), so_far=so_far)
            if channel.hear()["stop"]:
                self.model.stop_training = True

    return Watch()


def _about_failure(error: Exception) -> dict[str, Any]:
    """Tells to stop where the failure is none of the trial's settings, such as a full disk: the next would fail too."""
    from jobi_tf.errors import JobiError

    return {"stop": isinstance(error, OSError) and not isinstance(error, JobiError)}


if __name__ == "__main__":
    main(_train, _about_failure)
