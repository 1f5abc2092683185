"""The base class of all scorers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import keras
import tensorflow as tf

from jobi_tf.data.occurrences import TAIL
from jobi_tf.errors import UsageError
from jobi_tf.serialization import constructor_arguments


@dataclass(frozen=True)
class Relations:
    """The relations of a batch of queries, each distinct relation once."""

    rows: tf.Tensor  # what the queries take for each distinct relation, float32 [U, …]
    place: tf.Tensor  # row of each query's relation in `rows`, int32 [...]

    def __getitem__(self, queries: tf.Tensor) -> "Relations":
        """Returns the relations of some of the queries, given their numbers."""
        return Relations(self.rows, tf.gather(self.place, queries))

    def each(self) -> tf.Tensor:
        """Returns what each query takes for its relation, [..., …]."""
        return tf.gather(self.rows, self.place)


class Named:
    """An object that is given by the name of its class, and saved as the arguments of its constructor."""

    @property
    def name(self) -> str:
        """The name of the class in lower case."""
        return type(self).__name__.lower()

    def __repr__(self) -> str:
        """Returns the call that makes it, if `get_config` has it."""
        try:
            arguments = self.get_config()
        except AttributeError:  # of a class that does not keep its arguments
            return super().__repr__()
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, each of which has to be an attribute of the same name."""
        return constructor_arguments(self, Named)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates an object from the result of `get_config`."""
        return cls(**config)


class Scorer(Named, ABC):
    """Base class of score functions, which compute scores from dot products of queries and candidates.

        score of a tail = score(tail_query(head, relation) · candidate(tail))
        score of a head = score(head_query(relation, tail) · candidate(head))

    A bilinear scorer only defines the two queries; all other methods have suitable defaults. By default, an embedding
    `[..., width]` consists of `parts` vectors of length d, one after the other. Scorers have no state; weights belong
    to the model. To save models with your own scorer, register it with `keras.saving.register_keras_serializable`, and
    keep each argument of its constructor in an attribute of that name.

    Example:
        >>> class DistMult(jobi_tf.Scorer):
        ...     def tail_query(self, head, relation):
        ...         return head * relation
        ...
        ...     def head_query(self, relation, tail):
        ...         return relation * tail
        >>> model = jobi_tf.JoBi(14541, 237, scorer=DistMult())
    """

    parts = 1  # vectors of length d of an entity, and of a relation
    complex_numbers = False  # True: these are two parts, real and imaginary, which regularisers take as moduli
    distance = False  # True: scores are negative distances, so never positive
    dot_products = 1  # number of dot products that a score is a function of

    def entity_width(self, dim: int) -> int:
        """Returns the number of real numbers of an entity."""
        return self.parts * dim

    def relation_width(self, dim: int) -> int:
        """Returns the number of real numbers of a relation in each head of the model."""
        return self.parts * dim

    def relation_initializer(self, relations: int, dim: int, seed: int) -> keras.initializers.Initializer:
        """Returns the default initializer of relations: Glorot normal over each [relations, d] part of the table."""
        return glorot_normal(relations, dim, seed)

    def shared_weights(self, dim: int) -> dict[str, tuple[int, ...]]:
        """Returns names and shapes of weights that all relations of a head share; none by default."""
        return {}

    def relation(self, rows: tf.Tensor, shared: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the input of the queries for relations, [U, …]; by default their embeddings, [U, relation width]."""
        return rows

    @abstractmethod
    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns the query for tails, [..., length], of embeddings of heads and relations, [..., width] each."""

    @property
    def tails_only(self) -> bool:
        """Whether there is no `head_query`, so that relations must be reciprocal."""
        return type(self).head_query is Scorer.head_query

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns the query for heads, [..., length], of embeddings of relations and tails, [..., width] each.

        Without it the model needs reciprocal relations.
        """
        raise NotImplementedError(f"{type(self).__name__} has no head query")

    def query(self, side: int, anchor: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns the query for the entity on `side` (`HEAD` or `TAIL`), given the entity on the other side."""
        return self.tail_query(anchor, relation) if side == TAIL else self.head_query(relation, anchor)

    def queries(self, side: int, anchor: tf.Tensor, relations: Relations) -> tf.Tensor:
        """Returns the queries of a batch on one side, [N, width] → [N, length]."""
        return self.query(side, anchor, relations.each())

    def query_net(self, dim: int, seed: int) -> keras.layers.Layer | None:
        """Returns a built layer that is applied to queries, [N, …] → [N, length], one for each head; none by default.

        Such a scorer can only be trained on queries against all entities.
        """
        return None

    def candidate(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns the candidates for given entity embeddings, [..., entity width]; by default the embeddings."""
        return rows

    @property
    def candidates_are_embeddings(self) -> bool:
        """Whether `candidate` is not overridden."""
        return type(self).candidate is Scorer.candidate

    def split_query(self, query: tf.Tensor) -> Sequence[tf.Tensor]:
        """Splits a query into `dot_products` queries, [..., length] each."""
        return (query,)

    def score(self, *products: tf.Tensor) -> tf.Tensor:
        """Returns the scores, element-wise, for the dot products of the queries of `split_query`.

        The score must increase with the first dot product.
        """
        return products[0]

    def scores(self, query: tf.Tensor, product: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Returns the scores of candidates, given the function that multiplies one query with them."""
        return self.score(*(product(part) for part in self.split_query(query)))

    @property
    def linear_in_relations(self) -> bool:
        """Whether there is a `relation_query`."""
        return type(self).relation_query is not Scorer.relation_query

    def relation_query(self, head: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns q such that the score of any relation r between two entities is q · r; [..., width] → [..., length].

        Only scorers that are linear in the relation have it. r is what `relation` returns.
        """
        raise NotImplementedError(f"{type(self).__name__} is not linear in the relation")

    def entity_squares(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns |x|² of the numbers of entities to regularize; |x| is the modulus of complex numbers."""
        return _squared_moduli(rows) if self.complex_numbers else rows * rows

    def relation_squares(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns |x|² of the numbers of relations to regularize; |x| is the modulus of complex numbers."""
        return _squared_moduli(rows) if self.complex_numbers else rows * rows


def named_object(value: Any, base: type, classes: Mapping[str, type]) -> Any:
    """Returns an object of a class, given its name in any case, serialised form or itself; else a `UsageError`."""
    if isinstance(value, dict):
        value = keras.saving.deserialize_keras_object(value)
    if isinstance(value, str) and value.lower() in classes:
        return classes[value.lower()]()
    if isinstance(value, base):
        return value
    raise UsageError(f"expected a jobi_tf.{base.__name__} or one of {', '.join(classes)}, got {value!r}")


def _squared_moduli(rows: tf.Tensor) -> tf.Tensor:
    """Returns |x|² of complex numbers that are stored as [real, imaginary]: [..., 2d] → [..., d]."""
    real, imaginary = tf.split(rows, 2, -1)
    return real * real + imaginary * imaginary


def glorot_normal(rows: int, dim: int, seed: int) -> keras.initializers.Initializer:
    """Returns the normal distribution of Glorot & Bengio 2010 for a table of [rows, dim], not truncated."""
    return _Normal(stddev=math.sqrt(2 / (rows + dim)), seed=seed)


class _Normal(keras.initializers.RandomNormal):
    """The normal distribution, drawn in a graph: TensorFlow reuses the memory there, where it else takes it thrice."""

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> tf.Tensor:
        # Tensors, so that all tables share a trace.
        stddev = tf.constant(self.stddev, tf.float32)
        return _normal(tf.constant(shape), stddev, tf.constant([self.seed, 0]), dtype or "float32")

    def part(self, first: int, shape: tuple[int, ...]) -> tf.Tensor:
        """Returns the rows from `first` on of a larger table, without drawing the others; `shape` is theirs."""
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=tf.constant([self.seed, 0]))
        before, size = first * math.prod(shape[1:]), math.prod(shape)
        # Philox draws four numbers for each value of its counter.
        skipped, rest = divmod(before, 4)
        counter += tf.constant([skipped, 0], tf.uint64)
        count = tf.constant([rest + size], tf.int64)
        drawn = tf.raw_ops.StatelessRandomNormalV2(shape=count, key=key, counter=counter, alg=1)
        return self.stddev * tf.reshape(drawn[rest:], shape)


@tf.function(autograph=False)
def _normal(shape: tf.Tensor, stddev: tf.Tensor, seed: tf.Tensor, dtype: str) -> tf.Tensor:
    return tf.random.stateless_normal(shape, seed, 0.0, tf.cast(stddev, dtype), dtype)
