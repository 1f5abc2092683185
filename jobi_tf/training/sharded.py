"""Weights as checkpoints of TensorFlow, which parameter servers write and read, each its parts of the tables."""

from pathlib import Path
from typing import Any

import tensorflow as tf

from jobi_tf.errors import DataError
from jobi_tf.models.jobi import JoBi


def has_weights(folder: Path) -> bool:
    """Returns whether a folder has such a checkpoint."""
    return (folder / "variables.index").is_file()


def write_weights(model: JoBi, folder: Path, **more: Any) -> None:
    """Writes the weights of a model into an existing folder; any number of servers, or none, can read them.

    Args:
        model: the model.
        folder: the folder.
        **more: variables and lists of variables to write with them, by name.
    """
    _checkpoint(model, more).write(str(folder / "variables"))


def read_weights(model: JoBi, folder: Path, **more: Any) -> None:
    """Restores the weights of a model, and `more` of what was written with them.

    Raises:
        DataError: a file is missing or damaged, or the model has other sizes.
    """
    try:
        status = _checkpoint(model, more).read(str(folder / "variables"))
        status.assert_existing_objects_matched().expect_partial()
    except (tf.errors.OpError, ValueError, AssertionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"expected the weights of a model in {folder}, which are damaged: {reason}") from None


def _checkpoint(model: JoBi, more: dict[str, Any]) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(weights=[variable.value for variable in model.weights], **more)
