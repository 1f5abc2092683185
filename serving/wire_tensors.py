"""Tensors of TensorFlow Serving's messages, as the client writes and reads them."""

from collections.abc import Sequence
from math import prod

import numpy as np

from jobi_tf.errors import JobiError

from . import wire_pb2 as wire

_FIELDS = {
    wire.DT_FLOAT: ("float_val", np.float32),
    wire.DT_INT32: ("int_val", np.int32),
    wire.DT_INT64: ("int64_val", np.int64),
    wire.DT_BOOL: ("bool_val", np.bool_),
    wire.DT_STRING: ("string_val", np.object_),
}


def of_strings(strings: Sequence[str]) -> wire.TensorProto:
    """Returns a tensor of strings, [N]."""
    shape = wire.TensorShapeProto(dim=[wire.TensorShapeProto.Dim(size=len(strings))])
    return wire.TensorProto(dtype=wire.DT_STRING, tensor_shape=shape, string_val=[text.encode() for text in strings])


def to_array(tensor: wire.TensorProto) -> np.ndarray:
    """Returns the values of a tensor; strings as an array of `str` objects.

    Raises:
        JobiError: it is of another type than an exported model answers with, or not whole.
    """
    if tensor.dtype not in _FIELDS:
        raise JobiError(f"expected a tensor of floats, integers, booleans or strings, got type {tensor.dtype}")
    field, dtype = _FIELDS[tensor.dtype]
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    try:
        if tensor.tensor_content:
            values = np.frombuffer(tensor.tensor_content, np.dtype(dtype).newbyteorder("<"))
        elif tensor.dtype == wire.DT_STRING:
            values = np.array([text.decode() for text in tensor.string_val], dtype)
        else:
            values = np.array(getattr(tensor, field), dtype)
        if 0 < values.size < prod(shape):  # the last value stands for all that follow
            values = np.concatenate([values, np.repeat(values[-1:], prod(shape) - values.size)])
        return values.reshape(shape)
    except ValueError as error:
        raise JobiError(f"expected a whole tensor of shape {shape}: {error}") from None
