"""Best answers to a query with one open side."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from jobi_tf.data.occurrences import KnownAnswers, Occurrences
from jobi_tf.errors import JobiError, UsageError
from jobi_tf.models.jobi import JoBi


@dataclass(frozen=True)
class Answers:
    """The best answers to each query, best first.

    Args:
        entities: int32 [N, k]; -1 fills up where fewer than k are left.
        scores: float32 [N, k]; -inf where filled up.
        known: whether the answer is a known fact, bool [N, k].
    """

    entities: np.ndarray
    scores: np.ndarray
    known: np.ndarray


def best_answers(
    model: JoBi,
    known: KnownAnswers,
    triples: np.ndarray,
    side: int,
    k: int = 10,
    new_only: bool = False,
    seen: Occurrences | None = None,
) -> Answers:
    """Finds the entities with the best scores on one side.

    Args:
        model: the model whose triple head scores.
        known: true answers, to be marked or dropped.
        triples: the queries, int [N, 3]; the column of `side` is not read.
        side: the side that is sought, `HEAD` or `TAIL`.
        k: answers a query.
        new_only: drop answers that are known facts.
        seen: drop entities that did not occur on that side of the relation in these.

    Raises:
        UsageError: `k` is below 1.
        JobiError: a score is not finite.
    """
    if k < 1:
        raise UsageError(f"expected k to be at least 1, got {k}")
    k = min(k, model.num_entities)
    block = max(1, 2**26 // model.num_entities)
    blocks = (triples[i : i + block] for i in range(0, len(triples) or 1, block))
    parts = [_best(model, known, x, side, k, new_only, seen) for x in blocks]
    return Answers(*(np.concatenate(x) for x in zip(*parts, strict=True)))


def _best(
    model: JoBi,
    known: KnownAnswers,
    triples: np.ndarray,
    side: int,
    k: int,
    new_only: bool,
    seen: Occurrences | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    scores = model.scores(tf.constant(triples), side)
    if not bool(tf.reduce_all(tf.math.is_finite(tf.reduce_sum(scores, 1)))):
        raise JobiError("expected finite scores, got NaN or infinity: the model's weights are broken")
    rows, answers = known.lookup(side, triples)
    if new_only:
        places = tf.constant(np.stack([rows, answers], 1), tf.int32)
        scores = tf.tensor_scatter_nd_update(scores, places, tf.fill([len(rows)], -np.inf))
    if seen:
        relations, place = np.unique(triples[:, 1], return_inverse=True)
        allowed = np.zeros((len(relations), model.num_entities), bool)
        for row, relation in zip(allowed, relations, strict=True):
            row[seen.of(side, relation)] = True
        scores = tf.where(allowed[place], scores, -np.inf)
    values, entities = (x.numpy() for x in tf.math.top_k(scores, k))
    entities = np.where(np.isneginf(values), -1, entities)
    marks = np.zeros((len(triples), model.num_entities), bool)
    marks[rows, answers] = True
    return entities, values, np.take_along_axis(marks, entities, 1) & (entities >= 0)
