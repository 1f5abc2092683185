"""Penalties on the rows of a batch: N3 and L2."""

from collections.abc import Sequence

import tensorflow as tf

from jobi_tf.models.scorer import Scorer

SMALLEST = 1e-30  # keeps the gradient of a square root finite where all is zero

Weighted = Sequence[tuple[tf.Tensor, tf.Tensor | float]]


def penalties(
    scorer: Scorer,
    entities: Weighted,
    relations: Sequence[tuple[tf.Tensor, float]],
    n3: float,
    l2: float,
    weight: tf.Tensor | float = 1.0,
    side: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns the sum of the penalties on entities and on relations, float32 [].

    Args:
        scorer: says whose sizes are kept small.
        entities: rows, float32 [..., width], and what each row counts, [...].
        relations: for each model head rows, float32 [..., relation width], and the weight of their N3.
        n3: weight of the N3 of entities.
        l2: weight of the L2 of all.
        weight: what each row of relations counts, [...].
        side: the side that is sought, int32 [...], where there is one.
    """
    total = tf.zeros([])
    for rows, counts in entities:
        total += tf.reduce_sum(counts * penalty(scorer.entity_squares(rows), n3, l2))
    for rows, of_relations in relations:
        total += tf.reduce_sum(weight * penalty(scorer.relation_squares(rows, side), of_relations, l2))
    return total


def penalty(squares: tf.Tensor, n3: float, l2: float) -> tf.Tensor:
    """Returns n3 / 3 · Σ |x|³ + l2 / 2 · Σ |x|² of each row, given the squares |x|²: float32 [N, …] → [N].

    Reference: Lacroix et al., Canonical Tensor Decomposition for Knowledge Base Completion, ICML 2018.
    """
    total = tf.zeros([])
    if n3:
        total += n3 / 3 * tf.reduce_sum(squares * tf.sqrt(squares + SMALLEST), -1)
    if l2:
        total += l2 / 2 * tf.reduce_sum(squares, -1)
    return total
