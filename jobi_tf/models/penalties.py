"""Penalties on the rows of a batch: N3 and L2."""

from collections.abc import Sequence

import tensorflow as tf

from jobi_tf.models.scorer import Scorer

SMALLEST = 1e-30  # keeps the gradient of a square root finite where all is zero

Weighted = Sequence[tuple[tf.Tensor, tf.Tensor | float]]


def penalties(
    scorer: Scorer,
    entities: Weighted,
    tables: Sequence[tuple[tf.Tensor, float]],
    relation: tf.Tensor,
    n3: float,
    l2: float,
    weight: tf.Tensor | float = 1.0,
    side: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns the sum of the penalties on entities and on relations, float32 [].

    Args:
        scorer: says whose sizes are kept small.
        entities: rows, float32 [..., width], and what each row counts, [...].
        tables: of the relations of each model head, float32 [R, relation width], and the weight of their N3.
        relation: ids of relations, int32 [N].
        n3: weight of the N3 of entities.
        l2: weight of the L2 of all.
        weight: what each of these relations counts, [N] or [].
        side: the side that is sought, int32 [N], where there is one.
    """
    # Each relation of a side once, as often as it counts in all.
    distinct, place = tf.unique(relation if side is None else 2 * relation + side)
    weight = tf.math.unsorted_segment_sum(tf.broadcast_to(weight, tf.shape(place)), place, tf.size(distinct))
    ids, side = (distinct, None) if side is None else (distinct // 2, distinct % 2)
    total = tf.zeros([])
    for rows, counts in entities:
        total += tf.reduce_sum(counts * penalty(scorer.entity_squares(rows), n3, l2))
    for table, of_relations in tables:
        squares = scorer.relation_squares(tf.gather(table, ids), side)
        total += tf.reduce_sum(weight * penalty(squares, of_relations, l2))
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
