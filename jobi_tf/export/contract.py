"""The interface of an export as `signature.json` describes it, and its tables of ids."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from jobi_tf.data.graph import Graph

PACKAGES = ("jobi-tf", "tensorflow", "keras", "numpy")
EXAMPLE_K = 10


def example_requests(graph: Graph, rows: int, top_k: int) -> dict[str, dict[str, list[Any]]]:
    """Returns for each signature the inputs of up to `rows` training triples."""
    ids = graph.train[:rows].tolist()
    triples = [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in ids]
    names, numbers = (
        dict(zip(("head", "relation", "tail"), map(list, zip(*rows, strict=True)), strict=True))
        for rows in (triples, ids)
    )
    k = {"k": [min(EXAMPLE_K, top_k)] * len(ids)}
    tails, heads = (
        {name: names[name] for name in inputs} | k for inputs in (("head", "relation"), ("relation", "tail"))
    )
    return {
        "serving_default": names,
        "score_ids": numbers,
        "predict_tails": tails,
        "predict_heads": heads,
        "predict_new_tails": tails,
        "predict_new_heads": heads,
        "embed": {"entity": names["head"]},
    }


def inputs_of(function: Any) -> dict[str, tf.TensorSpec]:
    """Returns the inputs of a traced function, by name."""
    return {spec.name: spec for spec in function.structured_input_signature[0]}


def describe_signatures(functions: Mapping[str, Any]) -> dict[str, Any]:
    """Returns names, types and shapes of inputs and outputs; -1 is a size that the request decides."""
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
    """Returns the versions of the packages that wrote the export."""
    return {name: version(name) for name in PACKAGES}


def write_id_tables(folder: Path, graph: Graph) -> None:
    """Writes `entities.tsv` and `relations.tsv`: id, name and number of training triples."""
    head, relation, tail = np.asarray(graph.train).T
    ids = {"entities": np.concatenate([head, tail[head != tail]]), "relations": relation}
    for kind, vocabulary in (("entities", graph.entities), ("relations", graph.relations)):
        counts = np.bincount(ids[kind], minlength=len(vocabulary)).tolist()
        with (folder / f"{kind}.tsv").open("w", encoding="utf-8", newline="\n") as file:
            file.write("id\tname\ttriples\n")
            rows = enumerate(zip(vocabulary.names, counts, strict=True))
            file.writelines(f"{i}\t{name}\t{count}\n" for i, (name, count) in rows)
