"""The bilinear scorers, each as two query functions.

A bilinear score is linear in the entity that is sought, so `score = tail_query(h, r) · t = head_query(r, t) · h`. The
same dot product serves training, ranking, top-k answers and export.
"""

from collections.abc import Mapping

import tensorflow as tf

from jobi_tf.models.scorer import Relations, Scorer, squared_moduli


class DistMult(Scorer):
    """Σ h·r·t (Yang et al. 2015)."""

    name = "distmult"

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns h·r."""
        return head * relation

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns r·t."""
        return relation * tail

    def relation_query(self, head: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns h·t."""
        return head * tail


class ComplEx(Scorer):
    """Re(Σ h · r · conj(t)) over complex vectors, stored as [real, imaginary] (Trouillon et al. 2016)."""

    name = "complex"
    parts = 2

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns h·r: Re(x · conj(t)) is the real dot product of x and t."""
        (a, b), (c, d) = tf.split(head, 2, -1), tf.split(relation, 2, -1)
        return tf.concat([a * c - b * d, a * d + b * c], -1)

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns conj(r)·t: Re(h · r · conj(t)) = Re(h · conj(conj(r) · t))."""
        (a, b), (c, d) = tf.split(relation, 2, -1), tf.split(tail, 2, -1)
        return tf.concat([a * c + b * d, a * d - b * c], -1)

    def relation_query(self, head: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns conj(h)·t: Re(h · r · conj(t)) = Re(r · conj(conj(h) · t)), as of heads."""
        return self.head_query(head, tail)

    def entity_squares(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns the squared moduli."""
        return squared_moduli(rows)

    def relation_squares(self, rows: tf.Tensor, side: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the squared moduli."""
        return squared_moduli(rows)


class SimplE(Scorer):
    """½ Σ h_head·r·t_tail + ½ Σ t_head·r_inverse·h_tail (Kazemi & Poole 2018).

    An entity is stored as [as head, as tail], a relation as [r, r_inverse].
    """

    name = "simple"
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


class RESCAL(Scorer):
    """hᵀ·R·t, where a relation is a matrix (Nickel et al. 2011), stored row by row."""

    name = "rescal"

    @property
    def large_relations(self) -> bool:
        """Returns True."""
        return True

    def relation_width(self, dim: int) -> int:
        """Returns d²."""
        return dim * dim

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns hᵀ·R: [..., d] and [..., d²] → [..., d]."""
        return tf.einsum("...i,...ij->...j", head, _matrix(relation, head))

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns R·t: [..., d²] and [..., d] → [..., d]."""
        return tf.einsum("...ij,...j->...i", _matrix(relation, tail), tail)

    def tail_queries(self, head: tf.Tensor, relations: Relations) -> tf.Tensor:
        """Returns Hᵀ·R for all heads of each relation at once."""
        return _products(head, relations)

    def head_queries(self, relations: Relations, tail: tf.Tensor) -> tf.Tensor:
        """Returns R·T for all tails of each relation at once."""
        return _products(tail, relations, transpose_b=True)

    def relation_query(self, head: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns the outer product of h and t, row by row: [..., d] and [..., d] → [..., d²]."""
        products = head[..., :, None] * tail[..., None, :]
        return tf.reshape(products, tf.concat([tf.shape(products)[:-2], [head.shape[-1] ** 2]], 0))


def _matrix(relation: tf.Tensor, entity: tf.Tensor) -> tf.Tensor:
    size = entity.shape[-1]
    return tf.reshape(relation, tf.concat([tf.shape(relation)[:-1], [size, size]], 0))


def _products(rows: tf.Tensor, relations: Relations, **options: bool) -> tf.Tensor:
    """Returns the product of each row with its relation's matrix, [N, d] → [N, d].

    Rows with the same relation make a matrix, filled up with zeros, so that no relation's matrix is copied for each.
    """
    made = relations.made
    place = tf.range(tf.shape(rows)[0]) if relations.place is None else relations.place
    order = tf.argsort(place, stable=True)
    sorted_rows, ids = tf.gather(rows, order), tf.gather(place, order)
    groups = tf.RaggedTensor.from_value_rowids(sorted_rows, ids, tf.shape(made)[0], validate=False)
    products = tf.matmul(groups.to_tensor(), _matrix(made, rows), **options)  # [U, most rows of a relation, d]
    products = tf.RaggedTensor.from_tensor(products, groups.row_lengths()).values
    return tf.gather(products, tf.math.invert_permutation(order))


class TuckER(RESCAL):
    """W ×₁ h ×₂ r ×₃ t, where all relations of a model head share the core W (Balažević et al. 2019).

    A relation's d numbers mix the d matrices of its core, [d, d·d]; the mixture is a matrix of RESCAL.
    """

    name = "tucker"

    def relation_width(self, dim: int) -> int:
        """Returns d."""
        return dim

    def shared(self, dim: int) -> dict[str, tuple[int, ...]]:
        """Returns the core: for each number of a relation a matrix, row by row."""
        return {"core": (dim, dim * dim)}

    def relation(self, rows: tf.Tensor, shared: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns W ×₂ r: [N, d] → [N, d²]."""
        return tf.matmul(rows, shared["core"])
