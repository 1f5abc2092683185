"""Reciprocal relations, known to nobody but the scorer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import keras
import tensorflow as tf

from jobi_tf.data.occurrences import TAIL
from jobi_tf.models.scorer import Relations, Scorer


@dataclass(frozen=True)
class Reciprocal(Scorer):
    """A scorer whose relations have a second half, by which heads are asked for, as the tails of (t, r inverse, ?).

    A row of the relation table is [forward, inverse]. The two sides of a triple have scores of their own then
    (Lacroix et al. 2018; Kazemi & Poole 2018).

    Args:
        scorer: the score function, of which only the tail query is used.
    """

    scorer: Scorer
    name = "reciprocal"

    @property
    def distance(self) -> bool:
        """That of the scorer."""
        return self.scorer.distance

    @property
    def large_relations(self) -> bool:
        """That of the scorer."""
        return self.scorer.large_relations

    def entity_width(self, dim: int) -> int:
        """Returns that of the scorer."""
        return self.scorer.entity_width(dim)

    def relation_width(self, dim: int) -> int:
        """Returns twice that of the scorer."""
        return 2 * self.scorer.relation_width(dim)

    def relation_initializer(self, relations: int, dim: int, seed: int) -> keras.initializers.Initializer:
        """Returns that of the scorer, for both halves."""
        return self.scorer.relation_initializer(relations, dim, seed)

    def shared(self, dim: int) -> dict[str, tuple[int, ...]]:
        """Returns those of the scorer, which both halves have in common."""
        return self.scorer.shared(dim)

    def relation(self, rows: tf.Tensor, shared: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the two halves, each as the scorer takes it."""
        return tf.concat([self.scorer.relation(half, shared) for half in tf.split(rows, 2, -1)], -1)

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns the scorer's tail query of h and the forward half."""
        return self.scorer.tail_query(head, tf.split(relation, 2, -1)[0])

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns the scorer's tail query of t and the inverse half."""
        return self.scorer.tail_query(tail, tf.split(relation, 2, -1)[1])

    def tail_queries(self, head: tf.Tensor, relations: Relations) -> tf.Tensor:
        """Returns the scorer's tail queries of h and the forward halves."""
        return self.scorer.tail_queries(head, _half(relations, 0))

    def head_queries(self, relations: Relations, tail: tf.Tensor) -> tf.Tensor:
        """Returns the scorer's tail queries of t and the inverse halves."""
        return self.scorer.tail_queries(tail, _half(relations, 1))

    def query_net(self, dim: int, seed: int) -> keras.layers.Layer | None:
        """Returns that of the scorer, which both halves have in common."""
        return self.scorer.query_net(dim, seed)

    @property
    def linear_in_relations(self) -> bool:
        """That of the scorer."""
        return self.scorer.linear_in_relations

    def relation_scores(
        self, head: tf.Tensor, tail: tf.Tensor, relations: tf.Tensor, side: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns the scores of all relations and of all their inverses, [N, 2R], of the known entity and the answer.

        The relations that queries of the triple's side take come first, so that a relation is found by its id.
        """
        if side is None:
            raise ValueError("expected the side that is sought: reciprocal relations have scores for each")
        at_tail = side[:, None] == TAIL  # [N, 1]
        anchor, answer = tf.where(at_tail, head, tail), tf.where(at_tail, tail, head)
        halves = tf.split(relations, 2, -1)
        forward, inverse = (self.scorer.relation_scores(anchor, answer, half) for half in halves)
        return tf.where(at_tail, tf.concat([forward, inverse], 1), tf.concat([inverse, forward], 1))

    def candidate(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns those of the scorer."""
        return self.scorer.candidate(rows)

    @property
    def dot_products(self) -> int:
        """That of the scorer."""
        return self.scorer.dot_products

    def split_query(self, query: tf.Tensor) -> Sequence[tf.Tensor]:
        """Returns those of the scorer."""
        return self.scorer.split_query(query)

    def score(self, products: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
        """Returns those of the scorer."""
        return self.scorer.score(products, *others)

    def entity_squares(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns those of the scorer."""
        return self.scorer.entity_squares(rows)

    def relation_squares(self, rows: tf.Tensor, side: tf.Tensor | None = None) -> tf.Tensor:
        """Returns those of the half that queries of `side` take; without a side, of both."""
        forward, inverse = (self.scorer.relation_squares(half) for half in tf.split(rows, 2, -1))
        if side is None:
            return tf.concat([forward, inverse], -1)
        return tf.where(side[:, None] == TAIL, forward, inverse)


def _half(relations: Relations, place: int) -> Relations:
    return replace(relations, made=tf.split(relations.made, 2, -1)[place])
