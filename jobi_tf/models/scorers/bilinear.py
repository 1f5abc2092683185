"""Bilinear scorers whose relations are vectors."""

import keras
import tensorflow as tf

from jobi_tf.models.scorers.scorer import Scorer


@keras.saving.register_keras_serializable("jobi_tf")
class DistMult(Scorer):
    """Σ h·r·t (Yang et al. 2015)."""

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns h·r."""
        return head * relation

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns r·t."""
        return relation * tail

    def relation_query(self, head: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns h·t."""
        return head * tail


@keras.saving.register_keras_serializable("jobi_tf")
class ComplEx(Scorer):
    """Re(Σ h · r · conj(t)) over complex vectors, stored as [real, imaginary] (Trouillon et al. 2016)."""

    parts = 2
    complex_numbers = True

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns h·r: Re(x · conj(t)) is the real dot product of x and t."""
        (a, b), (c, d) = tf.split(head, 2, -1), tf.split(relation, 2, -1)
        return tf.concat([a * c - b * d, a * d + b * c], -1)

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns conj(r)·t: Re(h · r · conj(t)) = Re(h · conj(conj(r) · t))."""
        (a, b), (c, d) = tf.split(relation, 2, -1), tf.split(tail, 2, -1)
        return tf.concat([a * c + b * d, a * d - b * c], -1)

    def relation_query(self, head: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns conj(h)·t: Re(h · r · conj(t)) = Re(r · conj(conj(h) · t))."""
        return self.head_query(head, tail)


@keras.saving.register_keras_serializable("jobi_tf")
class SimplE(Scorer):
    """½ Σ h_head·r·t_tail + ½ Σ t_head·r_inverse·h_tail (Kazemi & Poole 2018).

    An entity is stored as [as head, as tail], a relation as [r, r_inverse].
    """

    parts = 2

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns ½ [h_tail·r_inverse, h_head·r], to be multiplied with [t_head, t_tail]."""
        (as_head, as_tail), (forward, inverse) = tf.split(head, 2, -1), tf.split(relation, 2, -1)
        return 0.5 * tf.concat([as_tail * inverse, as_head * forward], -1)

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns ½ [t_tail·r, t_head·r_inverse], to be multiplied with [h_head, h_tail]."""
        (forward, inverse), (as_head, as_tail) = tf.split(relation, 2, -1), tf.split(tail, 2, -1)
        return 0.5 * tf.concat([as_tail * forward, as_head * inverse], -1)

    def relation_query(self, head: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns ½ [h_head·t_tail, h_tail·t_head], to be multiplied with [r, r_inverse]."""
        (h_head, h_tail), (t_head, t_tail) = tf.split(head, 2, -1), tf.split(tail, 2, -1)
        return 0.5 * tf.concat([h_head * t_tail, h_tail * t_head], -1)
