"""What a signature of a model takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import invalid


@dataclass(frozen=True)
class TensorSpec:
    """An input or output.

    Args:
        tensor: name in the graph.
        dtype: TensorFlow's name of it, such as `string` or `float`.
        numpy: NumPy's type; object for strings.
        number: TensorFlow's number of the type.
        shape: sizes, None where any will do; None if not even the rank is known.
    """

    tensor: str
    dtype: str
    numpy: np.dtype
    number: int
    shape: tuple[int | None, ...] | None

    @property
    def is_string(self) -> bool:
        """Whether its values are strings."""
        return self.numpy.kind == "O"

    @property
    def batched(self) -> bool:
        """Whether the first dimension counts rows."""
        return bool(self.shape) and self.shape is not None and self.shape[0] is None

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of a shape can be fed."""
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            theirs in (None, ours) for theirs, ours in zip(self.shape, shape, strict=True)
        )

    def __str__(self) -> str:
        """Type and shape, such as `string [?]`."""
        return f"{self.dtype} {shape_text(self.shape)}"


@dataclass(frozen=True)
class Signature:
    """A function of a model, by the names of its inputs and outputs.

    Args:
        name: its key.
        method: TensorFlow Serving's method that it is for.
        inputs: what it takes, in order of names.
        outputs: what it gives, in order of names.
    """

    name: str
    method: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]

    @property
    def batched(self) -> bool:
        """Whether rows of several requests may be computed together."""
        return all(spec.batched for spec in (*self.inputs.values(), *self.outputs.values()))

    def check(self, inputs: Mapping[str, np.ndarray]) -> int:
        """Checks what a request brings; returns its number of rows (1 if the signature has none).

        Raises:
            Refusal: names, types or shapes are not those of the inputs.
        """
        if inputs.keys() != self.inputs.keys():
            raise invalid(self._names_differ(set(inputs)))
        for name, spec in self.inputs.items():
            array = inputs[name]
            if array.dtype != spec.numpy or not spec.fits(array.shape):
                kind = "string" if array.dtype == object else _NAMES.get(array.dtype.name, array.dtype.name)
                raise invalid(f'expected {spec} for input "{name}", got {kind} {shape_text(array.shape)}')
        rows = {inputs[name].shape[0] for name, spec in self.inputs.items() if spec.batched}
        if len(rows) > 1:
            raise invalid("Batching session Run() input tensors must have equal 0th-dimension size")
        return rows.pop() if rows else 1

    def _names_differ(self, got: set[str]) -> str:
        """TensorFlow Serving's words for inputs that are missing or too many."""
        wanted = set(self.inputs)
        if len(got) == len(wanted):
            return (
                f"input tensor alias not found in signature: {min(got - wanted)}. "
                f"Inputs expected to be in the set {_set(wanted)}."
            )
        return (
            f"input size does not match signature: {len(got)}!={len(wanted)} len({_set(got)}) != len({_set(wanted)}). "
            f"Sent extra: {_set(got - wanted)}. Missing but required: {_set(wanted - got)}."
        )

    def filtered(self, outputs: list[str]) -> list[str]:
        """The names of the outputs that a request asks for; all, if it names none.

        Raises:
            Refusal: a name is unknown or comes twice.
        """
        for i, name in enumerate(outputs):
            if name not in self.outputs:
                raise invalid(
                    f"output tensor alias not found in signature: {name} "
                    f"Outputs expected to be in the set {_set(set(self.outputs))}."
                )
            if name in outputs[:i]:
                raise invalid(f"duplicate output tensor alias: {name}")
        return outputs or list(self.outputs)


def signature_of(name: str, definition: Any) -> Signature:
    """Reads a `SignatureDef`."""
    return Signature(name, definition.method_name, _specs(definition.inputs, name), _specs(definition.outputs, name))


def _specs(infos: Mapping[str, Any], signature: str) -> dict[str, TensorSpec]:
    import tensorflow as tf

    specs = {}
    for name in sorted(infos):
        info = infos[name]
        dtype = tf.dtypes.as_dtype(info.dtype)
        shape = tf.TensorShape(info.tensor_shape)
        specs[name] = TensorSpec(
            info.name,
            _NAMES.get(dtype.name, dtype.name),
            np.dtype(dtype.as_numpy_dtype),
            int(info.dtype),
            None if shape.rank is None else tuple(shape.as_list()),
        )
    return specs


_NAMES = {"float32": "float", "float64": "double"}


def shape_text(shape: tuple[int | None, ...] | None) -> str:
    """A shape as TensorFlow writes it, such as `[?,3]`."""
    if shape is None:
        return "of any shape"
    return "[" + ",".join("?" if size is None else str(size) for size in shape) + "]"


def _set(names: set[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"
