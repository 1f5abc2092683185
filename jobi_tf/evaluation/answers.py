"""Best answers to a query with one open side."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from jobi_tf.data.occurrences import KnownAnswers, Occurrences
from jobi_tf.errors import JobiError, UsageError
from jobi_tf.evaluation.ranker import full_float32
from jobi_tf.models.jobi import JoBi


@dataclass(frozen=True)
class BestAnswers:
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
    candidates: np.ndarray | None = None,
) -> BestAnswers:
    """Finds the entities with the best scores on one side.

    Args:
        model: the model whose triple head scores.
        known: true answers, which are marked or left out.
        triples: the queries, int [N, 3]; the column of `side` is not read.
        side: the side that is sought, `HEAD` or `TAIL`.
        k: largest number of answers to a query.
        new_only: whether known facts are left out.
        seen: leave out entities that did not occur on that side of the relation in these occurrences.
        candidates: ids of the only entities that can be answers, int [C]; None: all.

    Raises:
        UsageError: `k` is below 1.
        JobiError: a score is not finite.
    """
    if k < 1:
        raise UsageError(f"expected k to be at least 1, got {k}")
    k = min(k, model.num_entities)
    block = max(1, 2**26 // model.num_entities)
    rows = model.candidates()
    allowed = None
    if candidates is not None:
        allowed = np.zeros(model.num_entities, bool)
        allowed[candidates] = True
    parts = []
    for start in range(0, len(triples) or 1, block):
        queries = triples[start : start + block]
        with full_float32():
            scores = model.scores(tf.constant(queries), side, rows)
        parts.append(_best(scores, known, queries, side, k, new_only, seen, allowed))
    return BestAnswers(*(np.concatenate(x) for x in zip(*parts, strict=True)))


def _best(
    scores: tf.Tensor,
    known: KnownAnswers,
    triples: np.ndarray,
    side: int,
    k: int,
    new_only: bool,
    seen: Occurrences | None,
    allowed: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    count = scores.shape[1]
    if not bool(tf.reduce_all(tf.math.is_finite(tf.reduce_sum(scores, 1)))):
        raise JobiError("expected finite scores, got NaN or infinity: the weights of the model are not usable")
    rows, answers = known.lookup(side, triples)
    if new_only:
        places = tf.constant(np.stack([rows, answers], 1), tf.int32)
        scores = tf.tensor_scatter_nd_update(scores, places, tf.fill([len(rows)], -np.inf))
    if seen:
        relations, place = np.unique(triples[:, 1], return_inverse=True)
        of_relation = np.zeros((len(relations), count), bool)
        for row, relation in zip(of_relation, relations, strict=True):
            row[seen.of(side, relation)] = True
        scores = tf.where(of_relation[place], scores, -np.inf)
    if allowed is not None:
        scores = tf.where(allowed, scores, -np.inf)
    values, entities = (x.numpy() for x in tf.math.top_k(scores, k))
    entities = np.where(np.isneginf(values), -1, entities)
    marks = np.zeros((len(triples), count), bool)
    marks[rows, answers] = True
    return entities, values, np.take_along_axis(marks, entities, 1) & (entities >= 0)
