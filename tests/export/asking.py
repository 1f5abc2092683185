"""Asking an export from Python."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf


def load(folder: Path) -> Callable[..., dict[str, np.ndarray]]:
    """Returns a function of a signature's name and its inputs, that gives its outputs; strings as str."""
    model = tf.saved_model.load(str(folder))

    def ask(signature: str, **inputs: object) -> dict[str, np.ndarray]:
        specs = model.signatures[signature].structured_input_signature[1]
        tensors = {name: tf.constant(values, specs[name].dtype) for name, values in inputs.items()}
        return {name: _text(x.numpy()) for name, x in model.signatures[signature](**tensors).items()}

    return ask


def _text(array: np.ndarray) -> np.ndarray:
    return np.array([x.decode() for x in array.flat], object).reshape(array.shape) if array.dtype == object else array


def named(graph, triples: np.ndarray) -> list[tuple[str, str, str]]:
    """Returns triples of ids [N, 3] by name."""
    return [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in triples.tolist()]


def random_ids(graph, count: int, seed: int = 0) -> np.ndarray:
    """Returns any triples, known or not: int32 [count, 3]."""
    sizes = (graph.num_entities, graph.num_relations, graph.num_entities)
    return np.random.default_rng(seed).integers(0, sizes, (count, 3)).astype(np.int32)
