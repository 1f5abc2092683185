"""Embeddings to begin with: those of another run, or pretrained vectors, by name."""

from pathlib import Path

import keras
import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.errors import DataError, UsageError
from jobi_tf.models.jobi import JoBi
from jobi_tf.training.run import Run
from jobi_tf.training.vectors import read_vectors


def warm_start(model: JoBi, graph: Graph, run: Run) -> None:
    """Copies the embeddings and shared weights of a run into a model, by name; others stay as they are.

    Args:
        model: the model, of the graph.
        graph: the graph.
        run: the run, whose model has the same scorer and embedding size.

    Raises:
        UsageError: the models differ in scorer, embedding size or reciprocal relations.
        DataError: the graphs have no entity in common.
    """
    for name in ("dim", "reciprocal"):
        ours, theirs = getattr(model, name), getattr(run.model, name)
        if ours != theirs:
            raise UsageError(f"expected {name} {theirs} of {run} for a warm start, got {ours}")
    if type(model.scorer) is not type(run.model.scorer):
        raise UsageError(
            f"expected the scorer {run.model.scorer.name} of {run} for a warm start, got {model.scorer.name}"
        )
    entities = _common(graph.entities, run.graph.entities)
    if not len(entities):
        raise DataError(f"expected entities of {run.graph} in {graph} for a warm start, they have no name in common")
    _copy(model.entities.table, run.model.entities.table.numpy(), entities)
    relations = _common(graph.relations, run.graph.relations)
    sizes = np.array([graph.num_relations, run.graph.num_relations])
    for ours, theirs in zip(model.heads, run.model.heads, strict=False):
        table = theirs.relations.table.numpy()
        for inverse in range(1 + model.reciprocal):  # inverse relations follow
            _copy(ours.relations.table, table, relations + inverse * sizes)
        for name, weight in ours.shared.items():
            weight.assign(theirs.shared[name])
        if ours.net and theirs.net:
            ours.net.set_weights(theirs.net.get_weights())


def use_entity_vectors(model: JoBi, graph: Graph, path: Path) -> None:
    """Copies pretrained vectors into the entity table, by name; others stay as they are.

    Args:
        model: the model, of the graph.
        graph: the graph.
        path: an .npz file with `names`, str [N], and `vectors`, float [N, width]; or word2vec text, a line `name
            numbers…` for each entity, optionally after a line `N width`. In names of such a file spaces may be
            underscores.

    Raises:
        DataError: the file cannot be read, has another width than the model's, or none of its names is an entity.
    """
    width = model.entities.table.shape[1]
    names, vectors = read_vectors(path, width)
    if vectors.ndim != 2 or vectors.shape != (len(names), width):
        raise DataError(
            f"{path}: expected vectors of the shape {[len(names), width]} for {model.scorer.name} with dim "
            f"{model.dim}, got {list(vectors.shape)}"
        )
    if not np.isfinite(vectors).all():
        raise DataError(f"{path}: expected finite numbers, got NaN or infinity")
    rows = {name: row for row, name in enumerate(names)}
    found = [rows.get(name, rows.get(name.replace(" ", "_"))) for name in graph.entities.names]
    pairs = [(i, row) for i, row in enumerate(found) if row is not None]
    if not pairs:
        raise DataError(
            f"{path}: expected vectors of entities of {graph.name}, none of its {len(names):,} names is one"
        )
    _copy(model.entities.table, vectors, np.array(pairs))


def _common(ours: Vocabulary, theirs: Vocabulary) -> np.ndarray:
    """Returns the ids of the common names in both vocabularies, int64 [N, 2]."""
    pairs = [(i, theirs.id(name)) for i, name in enumerate(ours.names) if name in theirs]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _copy(table: keras.Variable, values: np.ndarray, pairs: np.ndarray) -> None:
    """Copies values into a table, given pairs of the row there and of the row of the values, int [N, 2]."""
    changed = table.numpy()
    changed[pairs[:, 0]] = values[pairs[:, 1]]
    table.assign(changed)
