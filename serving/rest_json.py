"""The JSON of TensorFlow Serving's REST: requests in rows and in columns."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .errors import Refusal, invalid, shortened
from .rest_values import is_object, read_flat, read_nested, text
from .signature import Signature, TensorSpec, shape_text

_PARSER = {  # TensorFlow Serving's parser has other words than Python's
    "Expecting value": "Invalid value.",
    "Expecting property name enclosed in double quotes": "Missing a name for object member.",
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Expecting ',' delimiter": "Missing a comma or } after an object member, or a comma or ] after an array element.",
    "Unterminated string starting at": "Missing a closing quotation mark in string.",
    "Invalid control character at": "Invalid encoding in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
    "Extra data": "The document root must not be followed by other values.",
}
Limit = Callable[[int], None]


def parse(body: bytes) -> dict[str, Any]:
    """Reads the object that a request's body holds.

    Raises:
        Refusal: it holds none.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        document = json.loads(body.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise invalid(f"JSON Parse error: {_PARSER.get(error.msg, error.msg)} at offset: {error.pos}") from None
    except UnicodeDecodeError as error:
        raise invalid(f"JSON Parse error: Invalid encoding in string. at offset: {error.start}") from None
    except RecursionError:
        raise invalid("JSON Parse error: The document is nested too deeply.") from None
    except ValueError:  # a number of thousands of digits
        raise invalid("JSON Parse error: Number too big to be stored in double.") from None
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {text(document)} Is not object")
    return document


def signature_name(document: Mapping[str, Any]) -> str:
    """The signature that a request names; empty for the default one.

    Raises:
        Refusal: the name is no text.
    """
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {text(document)} not formatted correctly. 'signature_name' key must be a string value."
        )
    return name


def read_inputs(document: Mapping[str, Any], signature: Signature, limit: Limit) -> dict[str, np.ndarray]:
    """Reads the inputs of a request, from `instances` or from `inputs`.

    Args:
        document: the request.
        signature: says which inputs are expected.
        limit: is asked whether a number of rows will do before they are read.

    Raises:
        Refusal: they do not fit.
    """
    rows, columns = "instances" in document, "inputs" in document
    if rows and columns:
        raise invalid(
            f"JSON Value: {text(document)} Not formatted correctly expecting only one of 'inputs' or 'instances' "
            "keys to exist "
        )
    if rows:
        return _read_rows(document, signature.inputs, limit)
    if columns:
        return _read_columns(document["inputs"], signature.inputs, limit)
    raise invalid("Missing 'inputs' or 'instances' key")


def _read_rows(document: Mapping[str, Any], specs: Mapping[str, TensorSpec], limit: Limit) -> dict[str, np.ndarray]:
    rows = document["instances"]
    if not isinstance(rows, list):
        raise invalid(f"JSON Value: {text(document)} Excepting 'instances' to be an list/array")
    if not rows:
        raise invalid(f"JSON Value: {text(document)} No values in 'instances' array")
    limit(len(rows))
    if not isinstance(rows[0], dict) and len(specs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
            "tensorinfo_map"
        )
    if is_object(rows[0]):
        _check_objects(rows, specs)
        return {name: _column([row[name] for row in rows], spec, f" key: {name}") for name, spec in specs.items()}
    for i, row in enumerate(rows):
        if is_object(row):
            raise invalid(f"Expecting value/list but got object at item {i} of input list")
    return {name: _column(rows, spec, "") for name, spec in specs.items()}


def _check_objects(rows: list[Any], specs: Mapping[str, TensorSpec]) -> None:
    names = specs.keys()
    for i, row in enumerate(rows):
        if not is_object(row):
            raise invalid(f"Expecting object but got list at item {i} of input list")
        if row.keys() == names:
            continue
        other = next((key for key in row if key not in names), None)
        if other is not None:
            raise _failed(i, f" key: {shortened(other, 100)}", f"JSON object: does not have named input: {other}")
        raise invalid(
            f"Failed to process element: {i} of 'instances' list. JSON object: {text(row)} must only have keys: "
            f"{','.join(names)}"
        )


def _column(values: list[Any], spec: TensorSpec, key: str) -> np.ndarray:
    """Reads one input: a value for each row."""
    flat = read_flat(values, spec)
    if flat is not None:
        return flat
    arrays: list[np.ndarray] = []
    for i, value in enumerate(values):
        try:
            arrays.append(read_nested(value, spec))
            _check_equal(arrays[0].shape, arrays[i].shape)
        except Refusal as refused:
            raise _failed(i, key, refused.message) from None
    return np.stack(arrays)


def _check_equal(first: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if math.prod(shape) != math.prod(first):
        raise invalid(f"Expecting tensor size: {math.prod(first)} but got: {math.prod(shape)}")
    if shape != first:
        raise invalid(f"Expecting shape {shape_text(first)} but got: {shape_text(shape)}")


def _failed(i: int, key: str, reason: str) -> Refusal:
    return invalid(
        f"Failed to process element: {i}{key} of 'instances' list. Error: INVALID_ARGUMENT: {shortened(reason)}"
    )


def _read_columns(inputs: Any, specs: Mapping[str, TensorSpec], limit: Limit) -> dict[str, np.ndarray]:
    if not is_object(inputs):
        if len(specs) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
                "tensorinfo_map"
            )
        inputs = dict.fromkeys(specs, inputs)
    arrays = {}
    for name, spec in specs.items():
        if name not in inputs:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
        value = inputs[name]
        flat = None
        if isinstance(value, list):
            if spec.batched:
                limit(len(value))
            flat = read_flat(value, spec)
        arrays[name] = read_nested(value, spec) if flat is None else flat
    return arrays
