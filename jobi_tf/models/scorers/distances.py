"""Scorers by Euclidean distance, through the same dot product as the bilinear ones.

With the candidate e' = [e, |e|², 1] and the query q' = [2q, -1, -|q|²] of a point q, q'·e' = -|q - e|². A score is
-|q - e|. The squares cancel where q and e are close: a distance is exact to about 0.001 times their length.
"""

import math

import keras
import tensorflow as tf

from jobi_tf.models.scorers.scorer import Scorer

TINY = 1e-6  # added to a squared distance, so that the square root has a gradient everywhere


class Distance(Scorer):
    """The negative Euclidean distance of a relation's image of one entity from the other entity.

    A subclass makes its queries by `nearest_to` of the point where the other entity would have the best score.
    """

    distance = True

    def candidate(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns [e, |e|², 1], [..., entity width + 2]."""
        squares = tf.reduce_sum(rows * rows, -1, keepdims=True)
        return tf.concat([rows, squares, tf.ones_like(squares)], -1)

    def score(self, *products: tf.Tensor) -> tf.Tensor:
        """Returns -|q - e|, given -|q - e|²."""
        return -tf.sqrt(tf.maximum(-products[0], 0.0) + TINY)


def nearest_to(point: tf.Tensor) -> tf.Tensor:
    """Returns the query [2q, -1, -|q|²] of a point q: [..., entity width] → [..., entity width + 2]."""
    squares = tf.reduce_sum(point * point, -1, keepdims=True)
    return tf.concat([2 * point, -tf.ones_like(squares), -squares], -1)


@keras.saving.register_keras_serializable("jobi_tf")
class TransE(Distance):
    """-|h + r - t| (Bordes et al. 2013)."""

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns the query of the point h + r."""
        return nearest_to(head + relation)

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns the query of the point t - r."""
        return nearest_to(tail - relation)


@keras.saving.register_keras_serializable("jobi_tf")
class RotatE(Distance):
    """-|h∘r - t| over complex vectors, where r = exp(iθ) rotates each number by an angle (Sun et al. 2019).

    An entity is stored as [real, imaginary], a relation as its d angles θ. The distance is Euclidean over all 2d real
    numbers, whereas the paper uses the sum of the d moduli.
    """

    parts = 2
    complex_numbers = True

    def relation_width(self, dim: int) -> int:
        """Returns d, an angle for each complex number of an entity."""
        return dim

    def relation_initializer(self, relations: int, dim: int, seed: int) -> keras.initializers.Initializer:
        """Returns the uniform distribution of angles on the circle."""
        return keras.initializers.RandomUniform(-math.pi, math.pi, seed=seed)

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns the query of the point h∘exp(iθ)."""
        return nearest_to(_rotated(head, relation))

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns the query of the point t∘exp(-iθ)."""
        return nearest_to(_rotated(tail, -relation))

    def relation_squares(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns zeros: angles need not be small."""
        return tf.zeros_like(rows)


def _rotated(entity: tf.Tensor, angle: tf.Tensor) -> tf.Tensor:
    (real, imaginary), cos, sin = tf.split(entity, 2, -1), tf.cos(angle), tf.sin(angle)
    return tf.concat([real * cos - imaginary * sin, real * sin + imaginary * cos], -1)
