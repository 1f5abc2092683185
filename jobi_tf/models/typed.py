"""ComplEx with types of entities that nobody has to tell (Jain et al. 2018)."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from jobi_tf.models.bilinear import ComplEx
from jobi_tf.models.scorer import Scorer

SCALE = 20.0  # of the product of probabilities, in the softmax
SMALLEST = 1e-12  # added to a squared length, so that there is a direction everywhere
_COMPLEX = ComplEx()


class TypeComplEx(Scorer):
    """20 · (p(ComplEx(h, r, t)) · p(u_h·v_r) · p(u_t·w_r) - ½), p being the sigmoid (Jain et al. 2018).

    u is the type of an entity, v and w are those that a relation expects of its head and of its tail; a tenth of d
    numbers each, of which the direction alone counts (the authors' code scales them to unit length after each step). An
    entity is stored as [ComplEx, u], a relation as [ComplEx, v, w]. The ½ is not the paper's: no softmax notices it,
    and to a sigmoid scores that are never negative could not say no.
    """

    name = "typecomplex"

    def entity_width(self, dim: int) -> int:
        """Returns 2d and the numbers of a type, a tenth of d rounded up."""
        return 2 * dim - (-dim // 10)

    def relation_width(self, dim: int) -> int:
        """Returns 2d and the numbers of two types."""
        return 2 * dim - 2 * (-dim // 10)

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns [h·r, w_r, u_h·v_r], to be multiplied part by part with [t, u_t, 1]."""
        base, of_head, of_tail = _relation(relation, head)
        known, kind = _entity(head)
        return _joined(_COMPLEX.tail_query(known, base), of_tail, _dot(kind, of_head))

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns [conj(r)·t, v_r, u_t·w_r], to be multiplied part by part with [h, u_h, 1]."""
        base, of_head, of_tail = _relation(relation, tail)
        known, kind = _entity(tail)
        return _joined(_COMPLEX.head_query(base, known), of_head, _dot(kind, of_tail))

    def candidate(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns [e, u, 1]."""
        return tf.concat([*_entity(rows), tf.ones_like(rows[..., :1])], -1)

    @property
    def dot_products(self) -> int:
        """Returns 3."""
        return 3

    def split_query(self, query: tf.Tensor) -> Sequence[tf.Tensor]:
        """Returns the three parts of a query, each with zeros in place of the others."""
        length = query.shape[-1]
        size = _complex_width(length - 1)
        masks = np.repeat(np.eye(3, dtype=np.float32), [size, length - 1 - size, 1], 1)
        return [query * mask for mask in masks]

    def score(self, products: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
        """Returns the scaled product of the three probabilities, less a half."""
        of_sought, of_known = others
        return SCALE * (tf.sigmoid(products) * tf.sigmoid(of_sought) * tf.sigmoid(of_known) - 0.5)

    def entity_squares(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns the squared moduli of the part of ComplEx, which alone is kept small."""
        return _COMPLEX.entity_squares(_entity(rows)[0])

    def relation_squares(self, rows: tf.Tensor, side: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the squared moduli of the part of ComplEx, which alone is kept small."""
        # With d numbers of ComplEx twice and a tenth of d, rounded up, twice.
        return _COMPLEX.relation_squares(rows[..., : 2 * (10 * rows.shape[-1] // 22)])


def _complex_width(entity_width: int) -> int:
    """Returns 2d, given 2d + ⌈d / 10⌉."""
    return 2 * (10 * entity_width // 21)


def _entity(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the part of ComplEx and the type: [..., width] → [..., 2d], [..., numbers of a type]."""
    size = _complex_width(rows.shape[-1])
    return rows[..., :size], _unit(rows[..., size:])


def _relation(rows: tf.Tensor, entity: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the part of ComplEx and the types of heads and of tails, given rows of entities too."""
    size = _complex_width(entity.shape[-1])
    of_head, of_tail = tf.split(rows[..., size:], 2, -1)
    return rows[..., :size], _unit(of_head), _unit(of_tail)


def _unit(types: tf.Tensor) -> tf.Tensor:
    return types * tf.math.rsqrt(_dot(types, types) + SMALLEST)


def _dot(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(first * second, -1, keepdims=True)


def _joined(*parts: tf.Tensor) -> tf.Tensor:
    """Returns the parts side by side; where one stands for several of another it is repeated."""
    shape = tf.shape(parts[0])[:-1]
    for part in parts[1:]:
        shape = tf.broadcast_dynamic_shape(shape, tf.shape(part)[:-1])
    return tf.concat([tf.broadcast_to(x, tf.concat([shape, [x.shape[-1]]], 0)) for x in parts], -1)
