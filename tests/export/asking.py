"""Querying an export from Python."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

# Signature → name of the answers, inputs, and the column of the answers in a triple.
PREDICT = {
    f"predict_{new}{side}s": (side, inputs, column)
    for new in ("", "new_")
    for side, inputs, column in (("tail", ("head", "relation"), 2), ("head", ("relation", "tail"), 0))
}


def load(folder: Path) -> Callable[..., dict[str, np.ndarray]]:
    """Returns a function of a signature's name and its inputs that returns its outputs; strings as str."""
    model = tf.saved_model.load(str(folder))

    def ask(signature: str, **inputs: object) -> dict[str, np.ndarray]:
        specs = model.signatures[signature].structured_input_signature[1]
        tensors = {name: tf.constant(values, specs[name].dtype) for name, values in inputs.items()}
        return {name: _text(x.numpy()) for name, x in model.signatures[signature](**tensors).items()}

    return ask


def query(graph, triples: np.ndarray, signature: str, k: int | list[int]) -> dict[str, list]:
    """Returns the inputs of a `predict_*` signature for triples of ids, int [N, 3]."""
    columns = named_columns(graph, triples)
    ks = [k] * len(triples) if isinstance(k, int) else k
    return {name: columns[name] for name in PREDICT[signature][1]} | {"k": ks}


def named(graph, triples: np.ndarray) -> list[tuple[str, str, str]]:
    """Returns triples of ids [N, 3] by name."""
    return [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in triples.tolist()]


def named_columns(graph, triples: np.ndarray) -> dict[str, list[str]]:
    """Returns the names of heads, relations and tails of triples of ids [N, 3]."""
    columns = map(list, zip(*named(graph, triples), strict=True))
    return dict(zip(("head", "relation", "tail"), columns, strict=True))


def random_ids(graph, count: int, seed: int = 0) -> np.ndarray:
    """Returns any triples, known or not: int32 [count, 3]."""
    sizes = (graph.num_entities, graph.num_relations, graph.num_entities)
    return np.random.default_rng(seed).integers(0, sizes, (count, 3)).astype(np.int32)


def with_each_entity(triple: np.ndarray, column: int, entities: object) -> np.ndarray:
    """Returns a triple with each of the entities in one column, int [len(entities), 3]."""
    triples = np.repeat(triple[None], len(entities), 0)
    triples[:, column] = entities
    return triples


def _text(array: np.ndarray) -> np.ndarray:
    return np.array([x.decode() for x in array.flat], object).reshape(array.shape) if array.dtype == object else array
