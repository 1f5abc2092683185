"""The JSON of TensorFlow Serving's REST: answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring

import numpy as np

from .errors import Code, Refusal, invalid
from .versions import Version

_TOKENS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def predictions(outputs: Mapping[str, np.ndarray], by_rows: bool) -> bytes:
    """Writes the answer to a request in rows or in columns.

    Args:
        outputs: arrays by name.
        by_rows: whether the answer is one of rows.

    Raises:
        Refusal: the outputs do not have rows in common, or a type that JSON cannot express.
    """
    names = sorted(outputs)
    if not by_rows:
        columns = {name: _tensor(name, outputs[name]) for name in names}
        if len(names) == 1:
            return f'{{"outputs": {columns[names[0]]}}}'.encode()
        return "".join(
            ['{"outputs": {', ",\n".join(f"{json.dumps(name)}: {columns[name]}" for name in names), "}}"]
        ).encode()
    _check_rows(outputs)
    texts = [_rows(name, outputs[name]) for name in names]
    if len(names) == 1:
        return "".join(['{"predictions": [', ", ".join(texts[0]), "]}"]).encode()
    row = "{" + ", ".join(json.dumps(name).replace("%", "%%") + ": %s" for name in names) + "}"
    return "".join(
        ['{"predictions": [', ",\n".join([row % values for values in zip(*texts, strict=True)]), "]}"]
    ).encode()


def error(message: str) -> bytes:
    """Writes the body of an answer that is none."""
    return json.dumps({"error": message}, ensure_ascii=False).encode(errors="replace")


def models(names: Sequence[str]) -> bytes:
    """Writes the names of all models; TensorFlow Serving has no such answer."""
    return json.dumps({"models": names}, ensure_ascii=False).encode()


def names(found: Sequence[str]) -> bytes:
    """Writes names that complete what was typed."""
    return json.dumps({"names": found}, ensure_ascii=False).encode()


def status(versions: Sequence[Version]) -> bytes:
    """Writes the states of versions."""
    found = [
        {
            "version": str(version.number),
            "state": version.state.name,
            "status": {"error_code": version.code.name, "error_message": version.error},
        }
        for version in versions
    ]
    return json.dumps({"model_version_status": found}, indent=1).encode()


def metadata(model: str, version: Version) -> bytes:
    """Writes the signatures of a version."""
    from google.protobuf.json_format import MessageToDict

    signatures = {
        name: MessageToDict(definition, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        for name, definition in version.servable.definitions.items()
    }
    answer = {
        "model_spec": {"name": model, "signature_name": "", "version": str(version.number)},
        "metadata": {"signature_def": {"signature_def": signatures}},
    }
    return json.dumps(answer, indent=1).encode()


def _check_rows(outputs: Mapping[str, np.ndarray]) -> None:
    rows = 0
    for name, array in outputs.items():
        if not array.shape:
            raise invalid(f"Tensor name: {name} has no shape information ")
        if len(array) < 1:
            raise invalid(f"Tensor name: {name} has invalid batch size: {len(array)}")
        if rows not in (0, len(array)):
            raise invalid(f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {rows}")
        rows = len(array)


def _tensor(name: str, array: np.ndarray) -> str:
    return _nested(_texts(name, array), array.shape) if array.size else json.dumps(array.tolist())


def _rows(name: str, array: np.ndarray) -> list[str]:
    """One text for each row."""
    if not array.size:
        return [json.dumps(row) for row in array.tolist()]
    texts = _texts(name, array)
    if array.ndim == 1:
        return texts
    size = len(texts) // len(array)
    return [_nested(texts[i : i + size], array.shape[1:]) for i in range(0, len(texts), size)]


def _nested(texts: list[str], shape: tuple[int, ...]) -> str:
    """Puts texts of values into nested lists."""
    for size in shape[:0:-1]:
        texts = [f"[{', '.join(texts[i : i + size])}]" for i in range(0, len(texts), size)]
    return f"[{', '.join(texts)}]" if shape else texts[0]


def _texts(name: str, array: np.ndarray) -> list[str]:
    """One text for each value."""
    kind = array.dtype.kind
    if kind == "f":
        return _decimals(array.ravel())
    values = array.ravel().tolist()
    if kind == "O":
        if name.endswith("_bytes"):
            return [f'{{"b64": "{base64.b64encode(value).decode()}"}}' for value in values]
        return [encode_basestring(value.decode(errors="replace")) for value in values]
    if kind == "b":
        return ["true" if value else "false" for value in values]
    if kind in "iu":
        return [str(value) for value in values]
    raise Refusal(Code.INVALID_ARGUMENT, f"Failed to write JSON value for tensor type: {array.dtype.name}")


def _decimals(array: np.ndarray) -> list[str]:
    """Numbers with six digits if that is enough, else with all that their type holds; with a point or an exponent."""
    values = tuple(array.tolist())
    texts = ("%.6g " * len(values) % values).split()
    exact = np.array([float(text) for text in texts], array.dtype) == array
    if not exact.all():
        digits = {2: 5, 4: 9, 8: 17}[array.dtype.itemsize]
        longer = (f"%.{digits}g " * len(values) % values).split()
        texts = [short if same else long for short, same, long in zip(texts, exact.tolist(), longer, strict=True)]
    return [text if "." in text or "e" in text else _TOKENS.get(text, text + ".0") for text in texts]
