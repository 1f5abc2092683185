"""What every scorer is: two query functions, and the parts that some of them need besides."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import keras
import tensorflow as tf


@dataclass(frozen=True)
class Relations:
    """The relations of queries: what a scorer takes for them, float32.

    Args:
        made: for each query, [..., …]; or for each distinct relation once, [U, …].
        place: where in `made` the relation of each query is, int32 [...]; None if each query has its own.
    """

    made: tf.Tensor
    place: tf.Tensor | None = None

    def __getitem__(self, queries: slice) -> "Relations":
        """Returns those of some of the queries."""
        return Relations(self.made[queries]) if self.place is None else Relations(self.made, self.place[queries])

    def each(self) -> tf.Tensor:
        """Returns what the scorer takes for the relation of each query, [..., …]."""
        return self.made if self.place is None else tf.gather(self.made, self.place)


class Scorer(ABC):
    """A score function in which the entity that is sought stands in a dot product.

        score of a tail = score(tail_query(head, relation) · candidate(tail))
        score of a head = score(head_query(relation, tail) · candidate(head))

    A score may be a function of several such products: `split_query` makes several queries of one then.

    A subclass names itself, says how many vectors of length d an entity and a relation have, and gives the two queries.
    The other parts have defaults, with which a score is linear in the entity that is sought. Scorers keep no state.
    `[..., width]` below is `parts * d` real numbers, one part behind the other, unless a subclass has other widths.
    """

    name: ClassVar[str]
    parts: ClassVar[int] = 1
    # Without a `head_query` heads can be asked for by reciprocal relations only.
    asks_for_heads: ClassVar[bool] = True

    @property
    def distance(self) -> bool:
        """Whether scores are distances with a minus sign, and so never positive."""
        return False

    @property
    def large_relations(self) -> bool:
        """Whether a relation is much larger than a query, so that it should not be copied for each."""
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

    def tail_queries(self, head: tf.Tensor, relations: Relations) -> tf.Tensor:
        """Returns the tail queries of many heads, [N, width] → [N, length]."""
        return self.tail_query(head, relations.each())

    def head_queries(self, relations: Relations, tail: tf.Tensor) -> tf.Tensor:
        """Returns the head queries of many tails, [N, width] → [N, length]."""
        return self.head_query(relations.each(), tail)

    def query_net(self, dim: int, seed: int) -> keras.layers.Layer | None:
        """Returns a layer that makes queries of those of `tail_query`, for one model head; none by default.

        It takes queries [N, …] and, in training, `step`, the number of the step: int64 []. Only the scores of all
        entities come with it, so that such a scorer does not train on sampled candidates.
        """
        return None

    @property
    def linear_in_relations(self) -> bool:
        """Whether there is a `relation_query`."""
        return type(self).relation_query is not Scorer.relation_query

    def relation_query(self, head: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns q such that the score of any relation is q · r; both arguments [..., width]. Not all scorers have it.

        r is what `relation` returns. Where candidates are other than the entities' rows, a score need not be linear.
        """
        raise NotImplementedError(f"{self.name} is not linear in its relations")

    def relation_scores(
        self, head: tf.Tensor, tail: tf.Tensor, relations: tf.Tensor, side: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns the scores of all relations between heads and tails, [N, R], of scorers with a `relation_query`.

        Args:
            head: embeddings, [N, width].
            tail: embeddings, [N, width].
            relations: what `relation` returns for each relation, [R, …].
            side: the side that is sought, `HEAD` or `TAIL`, [N]; only reciprocal relations need it.
        """
        return tf.matmul(self.relation_query(head, tail), relations, transpose_b=True)

    def candidate(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns what queries are multiplied with: by default the entities' rows, [..., entity width], themselves."""
        return rows

    @property
    def dot_products(self) -> int:
        """The number of products with a candidate that a score is a function of: by default 1."""
        return 1

    def split_query(self, query: tf.Tensor) -> Sequence[tf.Tensor]:
        """Returns as many queries, [..., length] each, for these products."""
        return (query,)

    def score(self, products: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
        """Returns the scores, element by element, of the products of the queries of `split_query` with candidates.

        A score is greater for a greater product.
        """
        return products

    def scores(self, query: tf.Tensor, product: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Returns the scores of candidates, given a function that multiplies a query with them."""
        return self.score(*(product(x) for x in self.split_query(query)))

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
