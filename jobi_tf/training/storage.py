"""Models in files: `.keras` files, and checkpoints of TensorFlow, which parameter servers write and read in parts."""

import errno
import math
import os
import re
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from jobi_tf.errors import DataError, damaged
from jobi_tf.files import written_beside
from jobi_tf.models.jobi import JoBi
from jobi_tf.workers import has_servers

_OVERHEAD = 2**20  # bytes of a saved model beside its weights, at most


def save_model(model: JoBi, path: Path) -> None:
    """Writes a model as a `.keras` file, complete or not at all.

    Keras 3.15 would hold two more copies of all weights while it writes such a file; as a folder it writes them one by
    one.
    """
    optimizer = getattr(model, "optimizer", None)  # a model that is not compiled has none
    variables = [*model.variables, *(optimizer.variables if optimizer else ())]
    size = sum(math.prod(x.shape) * tf.as_dtype(x.dtype).size for x in variables)
    with written_beside(path) as beside, tempfile.TemporaryDirectory(prefix=".tmp-", dir=path.parent) as folder:
        if shutil.disk_usage(folder).free < 2 * size + _OVERHEAD:  # HDF5 may crash when it closes a file on a full disk
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        try:
            model.save(folder, zipped=False)
        except (RuntimeError, UnboundLocalError) as error:
            # HDF5 fails when it closes a file on a full disk, and Keras hides why a file cannot be opened.
            if number := re.search(r"errno = (\d+)", f"{error} {error.__context__}"):
                raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
            raise
        with zipfile.ZipFile(beside, "w") as archive:
            for file in sorted(Path(folder).glob("*.*")):
                archive.write(file, file.name)


def save_bare_model(model: JoBi, path: Path) -> None:
    """Writes the model, complete or not at all: as a `.keras` file, or with parameter servers as a folder.

    The optimizer, whose state may take twice the memory of the weights, is left out.
    """
    if has_servers(model.distribute_strategy):
        with written_beside(path) as beside:
            beside.mkdir()
            write_weights(model, beside)
        return
    optimizer = model.optimizer
    model.optimizer, model.compiled = None, False  # Keras would save both.
    try:
        save_model(model, path)
    finally:
        model.optimizer, model.compiled = optimizer, True


def load_model(path: str | Path, compile: bool = True) -> JoBi:
    """Reads a model that was saved as a `.keras` file, by `model.save` or by a run.

    Args:
        path: the file.
        compile: whether to compile the model, if it was saved with an optimizer and losses.

    Raises:
        DataError: the file is missing or damaged, or has an object of a class that is not registered.
    """
    with damaged("a saved model", path):
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise DataError(f"expected a saved model in {path}, got a truncated file or one of another kind")
            with zipfile.ZipFile(file) as archive:
                # Python 3.12 and later skip this check for files that are not read from start to end, as h5py reads.
                if member := archive.testzip():
                    raise ValueError(f"Bad CRC-32 for file {member!r}")
        try:
            model = keras.saving.load_model(path, compile=compile)
        except TypeError as error:
            if missing := re.search(r"Could not locate (class|function) '(.*?)'", str(error)):
                reason = f"import the module that registers the {missing[1]} {missing[2]} first"
                reason += ", or pass compile=False" * compile
                registered = "classes registered by keras.saving.register_keras_serializable"
                raise DataError(f"expected {registered} in the saved model {path}: {reason}") from None
            raise
        if not isinstance(model, JoBi):
            raise DataError(f"expected a JoBi model in {path}, got the model {type(model).__name__}")
        return model


def has_weights(folder: Path) -> bool:
    """Returns whether a folder has a checkpoint of TensorFlow."""
    return (folder / "variables.index").is_file()


def write_weights(model: JoBi, folder: Path, **more: Any) -> None:
    """Writes the weights of a model into an existing folder; any number of servers, or none, can read them.

    `more` are variables and lists of variables to write with them, by name.
    """
    _checkpoint(model, more).write(str(folder / "variables"))


def read_weights(model: JoBi, folder: Path, **more: Any) -> None:
    """Restores the weights of a model, with `more` all that was written with them; raises a `DataError` for others."""
    with damaged("a saved model", folder):
        try:
            status = _checkpoint(model, more).read(str(folder / "variables"))
        except tf.errors.OpError as error:
            raise ValueError(error.message) from None
        if more:
            status.assert_consumed()
        else:  # what the optimizer keeps may be there too
            status.assert_existing_objects_matched().expect_partial()


def _checkpoint(model: JoBi, more: dict[str, Any]) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(weights=[variable.value for variable in model.weights], **more)
