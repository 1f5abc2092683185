"""What every scorer is: two query functions, and the parts that some of them need besides."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import keras
import tensorflow as tf


class Scorer(ABC):
    """A score function in which the entity that is sought stands in one dot product.

        score of a tail = score(tail_query(head, relation) · candidate(tail))
        score of a head = score(head_query(relation, tail) · candidate(head))

    A subclass names itself, says how many vectors of length d an entity and a relation have, and gives the two queries.
    The other parts have defaults, with which a score is linear in the entity that is sought. Scorers keep no state.
    `[..., width]` below is `parts * d` real numbers, one part behind the other, unless a subclass has other widths.
    """

    name: ClassVar[str]
    parts: ClassVar[int] = 1

    @property
    def distance(self) -> bool:
        """Whether scores are distances with a minus sign, and so never positive."""
        return False

    def entity_width(self, dim: int) -> int:
        """Returns the real numbers of an entity."""
        return self.parts * dim

    def relation_width(self, dim: int) -> int:
        """Returns the real numbers of a relation in each model head."""
        return self.parts * dim

    def relation_initializer(self, relations: int, dim: int, seed: int) -> keras.initializers.Initializer:
        """Returns what relations start from: Glorot normal over each [relations, d] part of the table."""
        return glorot_normal(relations, dim, seed)

    def shared(self, dim: int) -> dict[str, tuple[int, ...]]:
        """Returns names and shapes of weights that all relations of a model head have in common; none by default."""
        return {}

    def relation(self, rows: tf.Tensor, shared: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns what the queries take for relations: by default their rows, [..., relation width], as they are."""
        return rows

    @abstractmethod
    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns q such that the score of any tail is that of `q · candidate(tail)`. Both arguments: [..., width]."""

    @abstractmethod
    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns q such that the score of any head is that of `q · candidate(head)`. Both arguments: [..., width]."""

    def candidate(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns what queries are multiplied with: by default the entities' rows, [..., entity width], themselves."""
        return rows

    def score(self, products: tf.Tensor) -> tf.Tensor:
        """Returns the scores of products of queries with candidates, element by element; greater for a greater one."""
        return products

    def entity_squares(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns the squares |x|² of the numbers of entities, for penalties; complex numbers by their moduli."""
        return rows * rows

    def relation_squares(self, rows: tf.Tensor, side: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the squares |x|² of the numbers of relations, [N, …]; those that queries of `side` take, [N]."""
        return rows * rows


def squared_moduli(rows: tf.Tensor) -> tf.Tensor:
    """Returns |x|² of complex numbers that are stored as [real, imaginary]: [..., 2d] → [..., d]."""
    real, imaginary = tf.split(rows, 2, -1)
    return real * real + imaginary * imaginary


def glorot_normal(rows: int, dim: int, seed: int) -> keras.initializers.Initializer:
    """Returns the normal distribution of Glorot & Bengio 2010 for a table of [rows, dim]."""
    return keras.initializers.RandomNormal(stddev=math.sqrt(2 / (rows + dim)), seed=seed)
