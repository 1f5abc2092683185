"""ComplEx with latent types of entities (Jain et al. 2018)."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from jobi_tf.models.scorers.bilinear import ComplEx
from jobi_tf.models.scorers.scorer import Scorer

SCALE = 20.0  # of the product of probabilities, in the softmax
SMALLEST = 1e-12  # added to a squared length, so that the unit vector has a gradient everywhere
_COMPLEX = ComplEx()


@keras.saving.register_keras_serializable("jobi_tf")
class TypeComplEx(Scorer):
    """20 · (p(ComplEx(h, r, t)) · p(u_h·v_r) · p(u_t·w_r) - ½), where p is the sigmoid (Jain et al. 2018).

    u is the type of an entity; v and w are the types that a relation expects of its heads and tails. Each is a unit
    vector of d / 10 numbers (the authors' code normalizes them after each step). An entity is stored as [ComplEx, u], a
    relation as [ComplEx, v, w]. The ½ is not in the paper. It has no effect on a softmax; without it, all scores would
    be positive, and their sigmoid above ½.
    """

    dot_products = 3

    def entity_width(self, dim: int) -> int:
        """Returns 2d and the numbers of a type, d / 10 rounded up."""
        return 2 * dim - (-dim // 10)

    def relation_width(self, dim: int) -> int:
        """Returns 2d and the numbers of two types."""
        return 2 * dim - 2 * (-dim // 10)

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns [h·r, w_r, u_h·v_r], to be multiplied part by part with [t, u_t, 1]."""
        base, head_type, tail_type = _relation(relation, head)
        known, own_type = _entity(head)
        return _joined(_COMPLEX.tail_query(known, base), tail_type, _dot(own_type, head_type))

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns [conj(r)·t, v_r, u_t·w_r], to be multiplied part by part with [h, u_h, 1]."""
        base, head_type, tail_type = _relation(relation, tail)
        known, own_type = _entity(tail)
        return _joined(_COMPLEX.head_query(base, known), head_type, _dot(own_type, tail_type))

    def candidate(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns [e, u, 1]."""
        return tf.concat([*_entity(rows), tf.ones_like(rows[..., :1])], -1)

    def split_query(self, query: tf.Tensor) -> Sequence[tf.Tensor]:
        """Returns the three parts of a query, each with zeros in place of the others."""
        length = query.shape[-1]
        size = _complex_width(length - 1)
        masks = np.repeat(np.eye(3, dtype=np.float32), [size, length - 1 - size, 1], 1)
        return [query * mask for mask in masks]

    def score(self, *products: tf.Tensor) -> tf.Tensor:
        """Returns the scaled product of the three probabilities, minus a half."""
        bilinear, sought, known = products
        return SCALE * (tf.sigmoid(bilinear) * tf.sigmoid(sought) * tf.sigmoid(known) - 0.5)

    def entity_squares(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns the squared moduli of the ComplEx part; types are not regularised."""
        return _COMPLEX.entity_squares(_entity(rows)[0])

    def relation_squares(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns the squared moduli of the ComplEx part; types are not regularised."""
        # A relation has 2d numbers of ComplEx and 2 · ⌈d / 10⌉ of types.
        return _COMPLEX.relation_squares(rows[..., : 2 * (10 * rows.shape[-1] // 22)])


def _complex_width(entity_width: int) -> int:
    """Returns 2d, given 2d + ⌈d / 10⌉."""
    return 2 * (10 * entity_width // 21)


def _entity(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the part of ComplEx and the type: [..., width] → [..., 2d], [..., numbers of a type]."""
    size = _complex_width(rows.shape[-1])
    return rows[..., :size], _unit(rows[..., size:])


def _relation(rows: tf.Tensor, entity: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the part of ComplEx and the types of heads and of tails; `entity` has the width of entities."""
    size = _complex_width(entity.shape[-1])
    head_type, tail_type = tf.split(rows[..., size:], 2, -1)
    return rows[..., :size], _unit(head_type), _unit(tail_type)


def _unit(types: tf.Tensor) -> tf.Tensor:
    return types * tf.math.rsqrt(_dot(types, types) + SMALLEST)


def _dot(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(first * second, -1, keepdims=True)


def _joined(*parts: tf.Tensor) -> tf.Tensor:
    """Returns the parts side by side, broadcast to the same leading dimensions."""
    shape = tf.shape(parts[0])[:-1]
    for part in parts[1:]:
        shape = tf.broadcast_dynamic_shape(shape, tf.shape(part)[:-1])
    return tf.concat([tf.broadcast_to(x, tf.concat([shape, [x.shape[-1]]], 0)) for x in parts], -1)
