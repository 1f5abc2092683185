"""Arrays from and to the tensors of gRPC messages, as the server reads and writes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from .errors import Code, Refusal, invalid
from .signature import Signature, TensorSpec, shape_text

# The field of a TensorProto that holds the values of a type.
_FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "int8": "int_val",
    "int16": "int_val",
    "int32": "int_val",
    "uint8": "int_val",
    "uint16": "int_val",
    "int64": "int64_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "bool": "bool_val",
    "object": "string_val",
}
_LARGEST = 2**27  # values of a tensor: few bytes of a message may stand for many


def arrays_of(
    tensors: Mapping[str, Any], signature: Signature, limit: Callable[[int], None] | None = None
) -> dict[str, np.ndarray]:
    """Reads the inputs of a request; those that the signature does not have come empty.

    Args:
        tensors: `TensorProto` by name.
        signature: says which types are expected.
        limit: is asked whether a number of rows will do before anything of that size is made.

    Raises:
        Refusal: a tensor is damaged, or not of the signature's type and shape.
    """
    known = signature.inputs
    return {
        name: _array(name, tensor, known[name], limit) if name in known else np.empty(0)
        for name, tensor in tensors.items()
    }


def fill(tensor: Any, array: np.ndarray, spec: TensorSpec) -> None:
    """Writes an array into an empty `TensorProto`, value by value, as TensorFlow Serving does."""
    tensor.dtype = spec.number
    for size in array.shape:
        tensor.tensor_shape.dim.add().size = size
    field = _FIELDS.get(array.dtype.name)
    if field is None:
        raise Refusal(Code.UNIMPLEMENTED, f"outputs of type {spec.dtype} are not supported")
    getattr(tensor, field).extend(array.ravel().tolist())


def _array(name: str, tensor: Any, spec: TensorSpec, limit: Callable[[int], None] | None) -> np.ndarray:
    """One tensor; strings come as an object array of bytes."""
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    if tensor.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise _damaged(name)
    if tensor.dtype != spec.number or not spec.fits(shape):
        raise invalid(f'expected {spec} for input "{name}", got {_type(tensor.dtype)} {shape_text(shape)}')
    if limit is not None and spec.batched:
        limit(shape[0])
    count = math.prod(shape)
    if count > _LARGEST:
        raise invalid(f'expected at most {_LARGEST} values for input "{name}", got {count}')
    field = _FIELDS.get(spec.numpy.name)
    if field is None:
        raise Refusal(Code.UNIMPLEMENTED, f"inputs of type {spec.dtype} are not supported")
    if tensor.tensor_content:
        return _from_content(name, tensor, spec, count).reshape(shape)
    return _from_values(name, getattr(tensor, field), spec, count).reshape(shape)


def _from_content(name: str, tensor: Any, spec: TensorSpec, count: int) -> np.ndarray:
    content = tensor.tensor_content
    if not spec.is_string:
        if len(content) != count * spec.numpy.itemsize:
            raise _damaged(name)
        return np.frombuffer(content, spec.numpy)
    try:  # strings are written with their lengths before them, which only TensorFlow reads
        return tf.io.parse_tensor(tensor.SerializeToString(), tf.string).numpy()
    except tf.errors.OpError:
        raise _damaged(name) from None


def _from_values(name: str, values: Any, spec: TensorSpec, count: int) -> np.ndarray:
    """The last value stands for all that follow it, and nothing for zeros: so TensorFlow packs tensors."""
    if len(values) > count:
        raise _damaged(name)
    array = np.empty(count, spec.numpy)
    try:
        array[: len(values)] = values
    except OverflowError:
        raise _damaged(name) from None
    array[len(values) :] = values[-1] if len(values) else (b"" if spec.is_string else 0)
    return array


def _damaged(name: str) -> Refusal:
    return invalid(f"tensor parsing error: {name}")


def _type(number: int) -> str:
    try:
        return tf.dtypes.as_dtype(number).name
    except TypeError:
        return f"type {number}"
