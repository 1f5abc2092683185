"""Bilinear scorers whose relations are matrices."""

from collections.abc import Mapping

import keras
import tensorflow as tf

from jobi_tf.data.occurrences import HEAD
from jobi_tf.models.scorers.scorer import Relations, Scorer


@keras.saving.register_keras_serializable("jobi_tf")
class RESCAL(Scorer):
    """hᵀ·R·t, where a relation is a matrix (Nickel et al. 2011), stored row by row."""

    def relation_width(self, dim: int) -> int:
        """Returns d²."""
        return dim * dim

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns hᵀ·R: [..., d] and [..., d²] → [..., d]."""
        return tf.einsum("...i,...ij->...j", head, _matrix(relation, head))

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns R·t: [..., d²] and [..., d] → [..., d]."""
        return tf.einsum("...ij,...j->...i", _matrix(relation, tail), tail)

    def queries(self, side: int, anchor: tf.Tensor, relations: Relations) -> tf.Tensor:
        """Returns Hᵀ·R or R·T for all queries of each relation at once, so that no matrix is copied for each query.

        The anchors of each relation are put into a matrix that is padded with zeros.
        """
        place, distinct = relations.place, tf.shape(relations.rows)[0]
        order = tf.argsort(place, stable=True)
        counts = tf.math.unsorted_segment_sum(tf.ones_like(place), place, distinct)
        # The number of each query among those of its relation, which are neighbours in the sorted order.
        number = tf.math.invert_permutation(order) - tf.gather(tf.cumsum(counts, exclusive=True), place)
        index = tf.stack([place, number], 1)
        most = tf.reduce_max(tf.concat([counts, [0]], 0))  # there may be no queries
        anchors = tf.scatter_nd(index, anchor, [distinct, most, anchor.shape[-1]])
        products = tf.matmul(anchors, _matrix(relations.rows, anchor), transpose_b=side == HEAD)
        return tf.gather_nd(products, index)

    def relation_query(self, head: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns the outer product of h and t, row by row: [..., d] and [..., d] → [..., d²]."""
        products = head[..., :, None] * tail[..., None, :]
        return tf.reshape(products, tf.concat([tf.shape(products)[:-2], [head.shape[-1] ** 2]], 0))


@keras.saving.register_keras_serializable("jobi_tf")
class TuckER(RESCAL):
    """W ×₁ h ×₂ r ×₃ t, where all relations of a head share the core W (Balažević et al. 2019).

    A relation is a vector r; the core turns it into the matrix W ×₂ r, which RESCAL stores.
    """

    def relation_width(self, dim: int) -> int:
        """Returns d."""
        return dim

    def shared_weights(self, dim: int) -> dict[str, tuple[int, ...]]:
        """Returns the core: for each number of a relation a matrix, row by row."""
        return {"core": (dim, dim * dim)}

    def relation(self, rows: tf.Tensor, shared: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns W ×₂ r: [U, d] → [U, d²]."""
        return tf.matmul(rows, shared["core"])


def _matrix(relation: tf.Tensor, entity: tf.Tensor) -> tf.Tensor:
    size = entity.shape[-1]
    return tf.reshape(relation, tf.concat([tf.shape(relation)[:-1], [size, size]], 0))
