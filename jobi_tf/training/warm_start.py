"""Embeddings to begin with: those of another run, or pretrained vectors, by name."""

from pathlib import Path

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.errors import DataError, UsageError
from jobi_tf.models.jobi import JoBi
from jobi_tf.training.run import Run
from jobi_tf.training.vectors import read_vectors


def warm_start(model: JoBi, graph: Graph, run: Run) -> dict[str, int]:
    """Copies the embeddings and shared weights of a run into a model, by name; others stay as they are.

    Args:
        model: the model, of the graph.
        graph: the graph.
        run: the run, whose model has the same scorer and embedding size.

    Returns:
        How many `entities` and `relations` were copied.

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
    if not len(entities[0]):
        raise DataError(f"expected entities of {run.graph} in {graph} for a warm start, they have no name in common")
    _copy(model.entities.table, run.model.entities.table.numpy(), *entities)
    relations = _common(graph.relations, run.graph.relations)
    for ours, theirs in zip(model.heads, run.model.heads, strict=False):
        table = theirs.relations.table.numpy()
        for inverse in range(1 + model.reciprocal):  # inverse relations follow
            offsets = inverse * graph.num_relations, inverse * run.graph.num_relations
            _copy(ours.relations.table, table, *(x + offset for x, offset in zip(relations, offsets, strict=True)))
        for name, weight in ours.shared.items():
            weight.assign(theirs.shared[name])
        if ours.net and theirs.net:
            ours.net.set_weights(theirs.net.get_weights())
    return {"entities": len(entities[0]), "relations": len(relations[0])}


def use_entity_vectors(model: JoBi, graph: Graph, path: Path) -> int:
    """Copies pretrained vectors into the entity table, by name, and returns how many; others stay as they are.

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
    ids = [i for i, name in enumerate(graph.entities.names) if _row(rows, name) is not None]
    if not ids:
        raise DataError(
            f"{path}: expected vectors of entities of {graph.name}, none of its {len(names):,} names is one"
        )
    _copy(model.entities.table, vectors, np.array(ids), np.array([_row(rows, graph.entities[i]) for i in ids]))
    return len(ids)


def _row(rows: dict[str, int], name: str) -> int | None:
    return rows.get(name, rows.get(name.replace(" ", "_")))


def _common(ours: Vocabulary, theirs: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of the common names in both vocabularies."""
    pairs = [(i, theirs.id(name)) for i, name in enumerate(ours.names) if name in theirs]
    return tuple(np.array(pairs, np.int64).reshape(-1, 2).T)  # type: ignore[return-value]


def _copy(table, values: np.ndarray, rows: np.ndarray, places: np.ndarray) -> None:  # type: ignore[no-untyped-def]
    changed = table.numpy()
    changed[rows] = values[places]
    table.assign(changed)
