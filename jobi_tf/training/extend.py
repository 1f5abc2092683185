"""New entities for a trained run, without training it again."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jobi_tf.data.batches import number_of_queries
from jobi_tf.data.graph import Graph, columns_of
from jobi_tf.data.negatives import NegativeSampler
from jobi_tf.data.occurrences import HEAD, TAIL, Csr, Occurrences, column, distinct_triples
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.errors import DataError, UsageError, check_at_least, check_numbers
from jobi_tf.models.jobi import JoBi
from jobi_tf.optimizers import LazyAdam
from jobi_tf.training.assembly import LARGEST_BATCH_OF_QUERIES, build_batches, compile_model
from jobi_tf.training.callbacks import StopOnNaN
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.run import Run
from jobi_tf.training.vectors import warm_start

SPLIT = "extension"


def extend(
    run: Run, triples: Sequence[tuple[str, str, str]], steps: int | None = None, learning_rate: float = 0.01
) -> Run:
    """Returns a new run in which entities that training never saw have embeddings fitted to the given triples.

    All other embeddings stay as they are. The triples become training triples of the new graph and are removed from its
    other splits. The embedding of a new entity starts from the mean of the entities that occur with its relations. It
    is fitted by the loss of the run's settings, with negatives from the whole graph, and also as a negative of other
    training triples.

    Args:
        run: the run.
        triples: names (head, relation, tail), as for `Graph.from_triples`. Heads and tails can be new; relations must
            occur in training.
        steps: number of steps with the given triples; None: 100 or 10 epochs, whichever is more.
        learning_rate: learning rate of Adam.

    Returns:
        The new run; `save(folder)` writes it. It keeps the history of the training.

    Raises:
        DataError: there are no triples, a name is invalid, or a relation does not occur in training.
        UsageError: no entity is new, `steps` is below 1, or the learning rate is not positive.

    Example:
        >>> extended = run.extend([("Atlantis", "continent", "Europe"), ("Atlantis", "neighbour", "Portugal")])
        >>> extended.tails("Atlantis", "currency", k=3)
    """
    check_at_least(1, steps=1 if steps is None else steps)
    check_numbers("(0, inf)", learning_rate=learning_rate)
    graph, ids = _extended_graph(run.graph, triples)
    # The initial embeddings are replaced, and an initializer may have the shape of the other table.
    changes = {"num_entities": graph.num_entities, "freeze_entities": False, "entity_initializer": None}
    model = type(run.model).from_config(run.model.get_config() | changes)
    seen = np.append(run.graph.seen_in_training, np.zeros(graph.num_entities - run.graph.num_entities, bool))
    new = np.setdiff1d(ids[:, [0, 2]], np.flatnonzero(seen))
    if not len(new):
        raise UsageError("expected triples with an entity that training never saw, got none")
    warm_start(model, graph, run)
    config = run.config
    table = model.entities.table.numpy()
    table[new] = _first_vectors(table, Occurrences.of_graph(run.graph), ids, new)
    model.entities.table.assign(table)
    _fit(model, config, graph, ids, new, steps, float(learning_rate))
    entities = "1 entity" if len(new) == 1 else f"{len(new):,} entities"
    added = f"{entities}, fitted to {len(ids):,} triple{'s' * (len(ids) > 1)}"
    config = config.replace(extended_by=[*(config.extended_by or ()), added])
    splits, weights = ({k: v for k, v in x.items() if k != SPLIT} for x in (graph.splits, graph.weights))
    graph = Graph(graph.name, graph.entities, graph.relations, splits, weights=weights)
    extended = Run(None, config, graph, model)
    extended.records = run.records
    return extended


def _extended_graph(graph: Graph, triples: Sequence[tuple[str, str, str]]) -> tuple[Graph, np.ndarray]:
    """Returns the graph with the new triples in `train` and in a split of their own, and their ids, int32 [N, 3]."""
    heads, relations, tails = columns_of(triples, "the new triples")
    if not heads:
        raise DataError("expected triples to extend the run with, got none")
    names = {name: None for pair in zip(heads, tails, strict=True) for name in pair if name not in graph.entities}
    entities = Vocabulary([*graph.entities.names, *names], "entity")
    ids = np.stack([entities.ids(heads), graph.relations.ids(relations), entities.ids(tails)], 1)
    missing = np.setdiff1d(ids[:, 1], graph.train[:, 1])
    if len(missing):
        raise DataError(f"expected relations that occur in training, got {graph.relations[missing[0]]!r}")
    ids = ids[np.sort(distinct_triples(ids)[0])]
    splits = {name: np.asarray(rows) for name, rows in graph.splits.items()}
    train, weights = splits["train"], dict(graph.weights)
    more = ids[~_among(ids, train[_among(train, ids)])]
    for name in splits.keys() - {"train"}:
        others = ~_among(splits[name], ids)
        splits[name] = splits[name][others]
        if name in weights:
            weights[name] = weights[name][others]
    splits |= {"train": np.concatenate([train, more]), SPLIT: ids}
    if (values := weights.get("train")) is not None:
        weights[SPLIT] = np.full(len(ids), values.mean(), np.float32)
        weights["train"] = np.append(values, weights[SPLIT][: len(more)])
    return Graph(graph.name, entities, graph.relations, splits, weights=weights), ids


def _among(triples: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Returns which triples are among given ones: [N, 3] and [M, 3] → bool [N]."""
    found = np.isin(triples[:, 0], given[:, 0]) & np.isin(triples[:, 2], given[:, 2])
    numbers = distinct_triples(np.concatenate([given, triples[found]]))[1]
    found[found] = np.isin(numbers[len(given) :], numbers[: len(given)])
    return found


def _first_vectors(table: np.ndarray, occurrences: Occurrences, ids: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Returns for each new entity the mean embedding of the entities that occur as it does, float32 [new, width]."""
    sums, counts = np.zeros((len(new), table.shape[1])), np.zeros(len(new))
    for side in (HEAD, TAIL):
        rows, relations = _new_on_side(ids, new, side)
        for relation in np.unique(relations):
            chosen = rows[relations == relation]
            np.add.at(sums, chosen, table[occurrences.of(side, relation)].mean(0))
            np.add.at(counts, chosen, 1)
    return (sums / counts[:, None]).astype(np.float32)


def _new_on_side(ids: np.ndarray, new: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the place in `new` of the entity of each triple that has a new one on a side, and its relation, [N]."""
    here = ids[np.isin(ids[:, column(side)], new)]
    return np.searchsorted(new, here[:, column(side)]), here[:, 1]


def _fit(
    model: JoBi, config: TrainConfig, graph: Graph, ids: np.ndarray, new: np.ndarray, steps: int | None, rate: float
) -> None:
    """Trains the embeddings of the new entities on the triples of the split, in turns with other training triples.

    Otherwise new entities would rarely be negatives, and would rank high for every query. With sampled negatives, all
    of those of the other triples are new entities, so that as many triples give each about as many as in training.
    Against all entities, the loss of other queries is multiplied by the number of training triples for each given one.
    """
    for head in model.heads:
        head.trainable = False
    queries = config.full_softmax or model.heads[0].net is not None
    count = number_of_queries(graph, SPLIT, config.answers_per_query) if queries else len(ids)
    largest = config.batch_size or (LARGEST_BATCH_OF_QUERIES if queries else 1000)
    size = min(largest, count)
    changes: dict[str, Any] = {
        "batch_size": size,
        "schedule": "constant",
        "jit_compile": False,  # too few steps to compile for
        "soft_labels": None,  # those are of the queries of the smaller graph
    }
    if queries:  # settings may say less than a model of the user's own has
        changes["loss"] = "full-softmax"
    else:
        changes["negatives_mode"] = "by-side" if config.by_side or model.reciprocal else "own"
    config = config.replace(**changes).effective()
    compile_model(model, config, steps=1, optimizer=_RowsAdam(new, model.num_entities, rate))
    if queries:
        most = number_of_queries(graph, "train", config.answers_per_query)
        others = build_batches(config.replace(batch_size=min(largest, most)), graph)
        times = len(graph.train) / len(ids)
        others = others.map(lambda x, y, weights: (x, y, {name: w * times for name, w in weights.items()}))
    else:
        others = build_batches(config, graph, sampler=_NewEntities(graph, ids, new, config))
    streams = [build_batches(config, graph, split=SPLIT), others]
    batches = tf.data.Dataset.choose_from_datasets(streams, tf.data.Dataset.range(2).repeat())
    steps = steps if steps is not None else max(100, 10 * (count // size))
    model.fit(batches, steps_per_epoch=2 * steps, callbacks=[StopOnNaN()], verbose=0)
    model.optimizer, model.compiled = None, False  # saved files would have the optimizer above


class _NewEntities(NegativeSampler):
    """Draws new entities only: a share p from those that the given triples have on that side of the relation."""

    def __init__(self, graph: Graph, ids: np.ndarray, new: np.ndarray, config: TrainConfig):
        known = graph.train if config.filter_negatives else None
        super().__init__(Occurrences.of_graph(graph), config.negatives, config.p, known)
        entities, relations = zip(*(_new_on_side(ids, new, side) for side in (HEAD, TAIL)), strict=True)
        rows = np.concatenate([side * self.num_relations + relations[side] for side in (HEAD, TAIL)])
        seen = Csr.from_pairs(rows, np.concatenate(entities), 2 * self.num_relations, len(new))
        self._places = NegativeSampler(Occurrences(seen, len(new), self.num_relations), config.negatives, config.p)
        self._new = tf.constant(new, tf.int32)

    def _draw(self, row: tf.Tensor, bits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        places, seen = self._places._draw(row, bits)
        return tf.gather(self._new, places), seen


class _RowsAdam(LazyAdam):
    """An Adam that changes only some rows of a table; the gradients of all other rows are set to 0."""

    def __init__(self, rows: np.ndarray, count: int, learning_rate: float):
        super().__init__(learning_rate)
        self._mask = tf.scatter_nd(rows[:, None], tf.ones([len(rows), 1]), [count, 1])

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        if isinstance(gradient, tf.IndexedSlices):
            values = gradient.values * tf.gather(self._mask, gradient.indices)
            gradient = tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        else:
            gradient *= self._mask
        super().update_step(gradient, variable, learning_rate)
