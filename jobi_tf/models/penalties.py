"""Penalties on the rows of a batch: N3 and L2."""

import tensorflow as tf

SMALLEST = 1e-30  # keeps the gradient of a square root finite where all is zero


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
