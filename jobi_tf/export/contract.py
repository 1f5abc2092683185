"""What callers of an export have to know, as `signature.json`."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import tensorflow as tf

from jobi_tf.data.graph import Graph

PACKAGES = ("jobi-tf", "tensorflow", "keras", "numpy")


def example_requests(graph: Graph, count: int) -> dict[str, dict[str, list[Any]]]:
    """Returns for each signature the inputs of up to `count` training triples."""
    triples = graph.train[:count].tolist()
    heads, relations, tails = (
        [names[row[i]] for row in triples] for i, names in enumerate((graph.entities, graph.relations, graph.entities))
    )
    ids = zip(("head", "relation", "tail"), map(list, zip(*triples, strict=True)), strict=True)
    return {
        "serving_default": {"head": heads, "relation": relations, "tail": tails},
        "score_ids": dict(ids),
        "predict_tails": {"head": heads, "relation": relations},
        "predict_heads": {"relation": relations, "tail": tails},
        "embed": {"entity": heads},
    }


def inputs_of(function: Any) -> dict[str, tf.TensorSpec]:
    """Returns the inputs of a traced function, by name."""
    return {spec.name: spec for spec in function.structured_input_signature[0]}


def describe_signatures(functions: Mapping[str, Any]) -> dict[str, Any]:
    """Returns names, types and shapes of inputs and outputs; -1 is the size of the batch."""
    return {
        name: {"inputs": _describe(inputs_of(function)), "outputs": _describe(function.structured_outputs)}
        for name, function in functions.items()
    }


def _describe(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {"dtype": tensor.dtype.name, "shape": [-1 if size is None else size for size in tensor.shape]}
        for name, tensor in tensors.items()
    }


def versions() -> dict[str, str]:
    """Returns the versions of what wrote the export."""
    return {name: version(name) for name in PACKAGES}
