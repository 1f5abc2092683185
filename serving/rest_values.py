"""Values of JSON as arrays, as strict about types as TensorFlow Serving."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import Code, Refusal, invalid
from .signature import TensorSpec

_DEEPEST = 32  # dimensions of an array; no signature has more
_QUOTED = 300  # characters of a value in a message
_DIGITS = {"float32": 24, "float64": 53}  # bits of the integers that a type holds without loss


def read_flat(values: list[Any], spec: TensorSpec) -> np.ndarray | None:
    """Reads a list of plain values, fast; None where each needs a look of its own."""
    kinds = set(map(type, values))
    if spec.is_string and kinds <= {str}:
        array = np.empty(len(values), object)
        try:
            array[:] = [value.encode() for value in values]
        except UnicodeEncodeError:
            return None
        return array
    if spec.numpy.kind in "iu" and kinds == {int}:
        try:
            return np.array(values, spec.numpy)
        except OverflowError:
            return None
    return None


def read_nested(value: Any, spec: TensorSpec) -> np.ndarray:
    """Reads a value, or lists of values in lists; the first ones say how deep and how long the others must be.

    Raises:
        Refusal: lists or values do not fit.
    """
    shape: list[int] = []
    first = value
    while isinstance(first, list):
        shape.append(len(first))
        if len(shape) > _DEEPEST:
            raise invalid(f"Encountered list at unexpected level: {_DEEPEST} expected < {_DEEPEST}")
        first = first[0] if first else None
    leaves: list[Any] = []
    _gather(value, 0, shape, _reader(spec), leaves)
    array = np.empty(len(leaves), spec.numpy)
    array[:] = leaves
    return array.reshape(shape)


def is_object(value: Any) -> bool:
    """Whether a value holds others by name, and is not bytes in base64."""
    return isinstance(value, dict) and not _is_base64(value)


def text(value: Any) -> str:
    """The beginning of a value, for messages."""
    parts: list[str] = []
    size = 0
    for part in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        parts.append(part)
        size += len(part)
        if size > _QUOTED:
            return "".join(parts)[:_QUOTED] + "…"
    return "".join(parts)


def _gather(value: Any, level: int, shape: list[int], read: Callable[[Any], Any], leaves: list[Any]) -> None:
    """Collects the values of nested lists in order."""
    if not isinstance(value, list):
        if level != len(shape):
            raise invalid(
                f"JSON Value: {text(value)} found at incorrect level: {level + 1} in the JSON DOM. "
                f"Expected at level: {len(shape)}"
            )
        leaves.append(read(value))
        return
    if level >= len(shape):
        raise invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(value) != shape[level]:
        raise invalid(
            f"Encountered list at unexpected size: {len(value)} at level: {level} expected size: {shape[level]}"
        )
    for part in value:
        _gather(part, level + 1, shape, read, leaves)


def _reader(spec: TensorSpec) -> Callable[[Any], Any]:
    """What reads one value of a type."""
    kind = spec.numpy.kind
    if kind == "O":
        return lambda value: _string(value, spec)
    if kind == "b":
        return lambda value: value if isinstance(value, bool) else _refuse(value, spec)
    if kind in "iu":
        return lambda value: _integer(value, spec)
    if spec.numpy.name in _DIGITS:
        return lambda value: _decimal(value, spec)

    def unsupported(value: Any) -> Any:
        raise Refusal(Code.UNIMPLEMENTED, f"Conversion of JSON Value: {text(value)} to type: {spec.dtype}")

    return unsupported


def _string(value: Any, spec: TensorSpec) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise invalid("JSON Parse error: The surrogate pair in string is invalid.") from None
    if not isinstance(value, dict):
        _refuse(value, spec)
    if not _is_base64(value):
        raise invalid(f"JSON Value: {text(value)} not formatted correctly for base64 data")
    try:
        return base64.b64decode(_padded("".join(value["b64"].split())), validate=True)
    except (binascii.Error, ValueError):
        raise invalid("Unable to base64 decode") from None


def _padded(encoded: str) -> str:
    return encoded + "=" * (-len(encoded) % 4)


def _integer(value: Any, spec: TensorSpec) -> int:
    limits = np.iinfo(spec.numpy)
    if type(value) is not int or not limits.min <= value <= limits.max:
        _refuse(value, spec)
    return value


def _decimal(value: Any, spec: TensorSpec) -> float:
    if type(value) not in (int, float):
        _refuse(value, spec)
    if isinstance(value, int):
        fits = abs(value) < 2 ** _DIGITS[spec.numpy.name]
    else:
        fits = not math.isfinite(value) or abs(value) <= float(np.finfo(spec.numpy).max)
    if not fits:
        raise invalid(f"Cannot convert JSON value: {text(value)} to {spec.dtype} without loss of precision.")
    return float(value)


def _refuse(value: Any, spec: TensorSpec) -> Any:
    raise invalid(f"JSON Value: {text(value)} Type: {_kind(value)} is not of expected type: {spec.dtype}")


def _kind(value: Any) -> str:
    if value is None:
        return "Null"
    if isinstance(value, bool):
        return str(value)
    kinds = {"dict": "Object", "list": "Array", "str": "String"}
    return kinds.get(type(value).__name__, "Number")


def _is_base64(value: dict[str, Any]) -> bool:
    return len(value) == 1 and isinstance(value.get("b64"), str)
