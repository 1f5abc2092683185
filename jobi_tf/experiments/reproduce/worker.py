"""Carries out one run: `python -m jobi_tf.experiments.reproduce.worker`, started by `processes`.

The first line on stdin is the request: `settings`, `threads` (None: as many as TensorFlow takes) and `jobs`. Each line
on stdout is a JSON object: `epoch` after each, at last `done` or `failed`.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobi_tf.errors import JobiError
from jobi_tf.experiments.processes import alone
from jobi_tf.experiments.worker import Channel, main, train_or_resume

if TYPE_CHECKING:
    import keras

    from jobi_tf.training.config import TrainConfig
    from jobi_tf.training.run import Run


def _carry_out(request: dict[str, Any], channel: Channel) -> dict[str, Any]:
    from jobi_tf.experiments.reproduce.record import read_record, write_record
    from jobi_tf.training.run_folder import RunFolder

    settings = request["settings"]
    path = Path(settings["run_dir"])
    path.parent.mkdir(parents=True, exist_ok=True)
    refusal = JobiError(f"expected {path} for itself, but another process is training that run")
    with alone(path.with_name(f".{path.name}.lock"), refusal):
        if read_record(path) is None:  # else another process was faster
            write_record(_trained(settings, channel), request["jobs"])
            # Three times as large as the model, and of use only to training.
            shutil.rmtree(RunFolder(path).path / "checkpoints", ignore_errors=True)
    return {}


def _trained(settings: dict[str, Any], channel: Channel) -> "Run":
    """Trains, or goes on from a checkpoint."""
    from jobi_tf.experiments.reproduce.plan import check_settings
    from jobi_tf.training.config import TrainConfig
    from jobi_tf.training.run_folder import RunFolder

    config, folder = TrainConfig.create(settings), RunFolder(Path(settings["run_dir"]))
    if folder.checkpoints():
        check_settings(folder, config)
    return train_or_resume(config, folder, [_watch(channel, config)])


def _watch(channel: Channel, config: "TrainConfig") -> "keras.callbacks.Callback":
    import keras

    class Watch(keras.callbacks.Callback):
        """Tells about each epoch."""

        def on_epoch_end(self, epoch: int, logs: dict) -> None:
            value = logs.get(f"val_{config.monitor}")
            channel.say("epoch", epoch=epoch + 1, epochs=config.epochs, value=None if value is None else float(value))

    return Watch()


if __name__ == "__main__":
    main(_carry_out)
