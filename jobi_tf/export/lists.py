"""Lists that an exported model reads from its assets: neither variables nor part of its graph."""

import uuid
from pathlib import Path

import numpy as np
import tensorflow as tf


class AssetList(tf.saved_model.experimental.TrackableResource):
    """A list that is kept in a file of the export and read once, when the export is loaded.

    As a variable it would be part of the checkpoint; as a constant, of the graph, which may not exceed 2 GB. Like a
    lookup table, and unlike a variable, it stays in memory until it is destroyed: a signature that someone took out of
    a loaded export goes on answering when the rest is gone.

    Args:
        asset: the file. Whoever holds this list has to track the asset too, or it is not exported.
        dtype: type of the items: integers, little-endian; or strings, one a line.
    """

    def __init__(self, asset: tf.saved_model.Asset, dtype: tf.DType):
        super().__init__()
        self._path = asset.asset_path
        self._dtype = dtype
        self._shared_name = f"list_{uuid.uuid4()}"
        self._initialize()

    def value(self) -> tf.Tensor:
        """Returns all items, [N]."""
        value = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=self._dtype)
        return tf.ensure_shape(value, [None])

    def _create_resource(self) -> tf.Tensor:
        return tf.raw_ops.VarHandleOp(dtype=self._dtype, shape=[None], shared_name=self._shared_name)

    def _initialize(self) -> None:
        content = tf.io.read_file(self._path)
        if self._dtype == tf.string:
            items = tf.strings.split(content, "\n")[:-1]
        else:
            items = tf.io.decode_raw(content, self._dtype)
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=items)


def write_list(path: Path, items: np.ndarray) -> None:
    """Writes integers as `AssetList` reads them."""
    items.astype(items.dtype.newbyteorder("<"), copy=False).tofile(path)
