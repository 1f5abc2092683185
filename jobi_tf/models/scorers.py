"""Bilinear scorers, each as two query functions.

A bilinear score is linear in the entity that is sought, so `score = tail_query(h, r) · t = head_query(r, t) · h`. The
same dot product serves training, ranking, top-k answers and export.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import tensorflow as tf

from jobi_tf.errors import UsageError


class Scorer(ABC):
    """A bilinear score function.

    A subclass names itself, says how many vectors of length d an entity and a relation have, and gives the two
    queries. `[..., width]` below is `parts * d` real numbers, one part behind the other.
    """

    name: ClassVar[str]
    parts: ClassVar[int] = 1

    @abstractmethod
    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns q, [..., width], such that the score of any tail is `q · tail`. Both arguments: [..., width]."""

    @abstractmethod
    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns q, [..., width], such that the score of any head is `q · head`. Both arguments: [..., width]."""


class DistMult(Scorer):
    """Σ h·r·t (Yang et al. 2015)."""

    name = "distmult"

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns h·r."""
        return head * relation

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns r·t."""
        return relation * tail


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


SCORERS: dict[str, Scorer] = {scorer.name: scorer for scorer in (ComplEx(), DistMult(), SimplE())}


def get_scorer(name: str) -> Scorer:
    """Returns the scorer of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in SCORERS:
        raise UsageError(f"expected a scorer out of {', '.join(SCORERS)}, got {name!r}")
    return SCORERS[name]
