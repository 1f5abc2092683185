"""The parts of a model: embedding tables and heads."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import keras
import tensorflow as tf

from jobi_tf.compiled import unique
from jobi_tf.data.occurrences import HEAD, TAIL
from jobi_tf.data.seeds import fold_in
from jobi_tf.errors import UsageError
from jobi_tf.models.dropout import Dropout
from jobi_tf.models.scorers import Scorer
from jobi_tf.models.scorers.scorer import Relations
from jobi_tf.workers import copy_of_replica, has_servers, load_table, save_table


class EmbeddingTable(keras.layers.Layer):
    """The embeddings of all entities, or of all relations of a head: a weight `table`, [count, width].

    Attributes:
        sparse_gradient: whether the gradient of the table is a `tf.IndexedSlices` of distinct rows, which only
            optimizers for sparse gradients handle correctly on several devices; otherwise it is a dense tensor.
    """

    def __init__(
        self, count: int, width: int, initializer: keras.initializers.Initializer, name: str, dtype: str = "float32"
    ):
        super().__init__(name=name, dtype="float32")
        self._mismatch: str | None = None  # of the table in a file
        # autocast=False: under a mixed-precision policy reading a table would otherwise copy all of it.
        options = {"shape": (count, width), "dtype": dtype, "autocast": False}
        with _drawn_by_servers(initializer, (count, width)):
            self.table = self.add_weight(name="table", initializer=initializer, **options)
        self.sparse_gradient = True
        self.built = True

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the embeddings of distinct ids, int [U] → float32 [U, width].

        Raises:
            UsageError: the table is bfloat16, and its gradient would be dense.
        """
        if self.sparse_gradient:
            return _in_float32(tf.nn.embedding_lookup(copy_of_replica(self.table.value), ids))
        if self.table.dtype != "float32":
            raise UsageError("expected LazyAdam, LazyAdagrad or RowAdagrad with table_dtype bfloat16, got another one")
        return _rows_with_dense_gradient(tf.convert_to_tensor(self.table.value), ids)

    def shared_table(self) -> tf.Tensor:
        """Returns the whole table, [count, width], without a copy.

        TensorFlow 2.21 copies a variable that is read as a whole after updates of rows, unless it is told not to. As
        long as the tensor is in use, the next gather or update of rows of the variable makes the copy instead. In a
        `tf.function` it copies nothing only if this was called outside since the last update.
        """
        variable = copy_of_replica(self.table.value)
        variable = getattr(variable, "values", [variable])[0]  # one of several devices, outside a replica
        if tf.executing_eagerly() and hasattr(variable, "handle"):  # XLA does not have the operation
            tf.raw_ops.DisableCopyOnRead(resource=variable.handle)
        return tf.convert_to_tensor(variable)

    def save_own_variables(self, store: Any) -> None:
        """Writes the table where Keras saves it."""
        save_table(store, "0", self.table)

    def load_own_variables(self, store: Any) -> None:
        """Reads the table where Keras saved it.

        Raises:
            ValueError: the table there has another shape.
        """
        mismatch, self._mismatch = self._mismatch, None
        if mismatch and "0" not in store:  # Keras 3.15 tries again without the file, and shows the second error only
            raise ValueError(mismatch)
        try:
            load_table(store, "0", self.table)
        except ValueError as error:
            self._mismatch = str(error)
            raise

    def lookup(self, *ids: tf.Tensor, xla: bool = False) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Looks up every distinct id once, so that no row of the table occurs twice in the gradient.

        Returns:
            The embeddings of the distinct ids, float32 [U, width], and for each argument a tensor of the same shape
            with the rows in these embeddings, int32. In a caller that XLA compiles as a whole, repeated ids stay.
        """
        distinct, place = unique(tf.concat([tf.reshape(x, [-1]) for x in ids], 0), xla)
        places = tf.split(place, [tf.size(x) for x in ids], num=len(ids))
        return self.rows(distinct), [tf.reshape(x, tf.shape(y)) for x, y in zip(places, ids, strict=True)]


@contextmanager
def _drawn_by_servers(initializer: keras.initializers.Initializer, shape: tuple[int, int]) -> Iterator[None]:
    """Lets each parameter server draw its part of a table, which otherwise the chief would draw as a whole."""
    if not (has_servers(tf.distribute.get_strategy()) and hasattr(initializer, "part")):
        yield
        return

    def values(partition_shape: tuple[int, int] = shape, partition_offset: tuple[int, int] = (0, 0)) -> tf.Tensor:
        return initializer.part(partition_offset[0], tuple(partition_shape))

    def create(next_creator: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
        return next_creator(**options | {"initial_value": values, "shape": shape, "dtype": tf.float32})

    with tf.variable_creator_scope(create):
        yield


@tf.custom_gradient
def _in_float32(rows: tf.Tensor):  # type: ignore[no-untyped-def]
    """Casts rows to float32 and leaves their gradient float32: in bfloat16 it would lose precision."""
    return tf.cast(rows, tf.float32), lambda upstream: upstream


@tf.custom_gradient
def _rows_with_dense_gradient(table: tf.Tensor, ids: tf.Tensor):  # type: ignore[no-untyped-def]
    count = tf.shape(table)[0]
    return tf.gather(table, ids), lambda upstream: (tf.math.unsorted_segment_sum(upstream, ids, count), None)


class Head(keras.layers.Layer):
    """A score function with its own relation embeddings: the triple head or the pair head of a model.

    Its arguments are those of the model. With `reciprocal` relations R + r is the inverse of r; the head of (?, r, t)
    is sought as the tail of (t, R + r, ?).
    """

    def __init__(
        self,
        scorer: Scorer,
        num_relations: int,
        dim: int,
        reciprocal: bool,
        dropout: float,
        initializer: keras.initializers.Initializer | None,
        seed: int,
        name: str,
    ):
        super().__init__(name=name, dtype="float32")
        self.scorer = scorer
        self.num_relations = num_relations
        self.reciprocal = reciprocal
        if initializer is None:
            initializer = scorer.relation_initializer(num_relations, dim, fold_in(seed, name, "relations"))
        else:  # a copy, which draws other numbers for each head, unless it has a seed or cannot be copied
            with suppress(TypeError, NotImplementedError):
                initializer = initializer.clone()
        count = num_relations * (2 if reciprocal else 1)
        self.relations = EmbeddingTable(count, scorer.relation_width(dim), initializer, f"{name}_relations")
        self.shared = {
            # Sums over the first axis keep the scale of what is summed.
            key: self.add_weight(
                name=key,
                shape=shape,
                initializer=keras.initializers.RandomNormal(stddev=shape[0] ** -0.5, seed=fold_in(seed, name, key)),
                autocast=False,
            )
            for key, shape in scorer.shared_weights(dim).items()
        }
        self.net = scorer.query_net(dim, fold_in(seed, name, "net"))
        self.drop = Dropout(dropout, fold_in(seed, name, "dropout")) if dropout else None
        self.built = True

    def relation_ids(self, relation: tf.Tensor, side: tf.Tensor | int) -> tf.Tensor:
        """Returns the rows of `relations` that queries for the entity on `side` take, int32."""
        if not self.reciprocal:
            return relation
        return relation + tf.cast(tf.equal(side, HEAD), relation.dtype) * self.num_relations

    def prepared(self, rows: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns what queries take for relations with these embeddings: [U, relation width] → [U, …]."""
        if self.drop:
            rows = self.drop(rows, training=training)
        return self.scorer.relation(rows, {key: weight.value for key, weight in self.shared.items()})

    def all_relations(self) -> tf.Tensor:
        """Returns what queries take for each relation, float32 [R, …]; reciprocal relations follow, [2R, …]."""
        return self.prepared(tf.convert_to_tensor(self.relations.table.value))

    def queries(self, side: int, anchor: tf.Tensor, relations: Relations, xla: bool = False) -> tf.Tensor:
        """Returns the queries of a batch for the entities on `side`, before the network: [N, width] → [N, length].

        XLA has to know all sizes, so that a caller that it compiles as a whole cannot have queries in groups.
        """
        side = TAIL if self.reciprocal else side
        scorer = self.scorer
        return scorer.query(side, anchor, relations.each()) if xla else scorer.queries(side, anchor, relations)

    def queries_of_sides(self, sides: tf.Tensor, anchor: tf.Tensor, relations: Relations, xla: bool) -> tf.Tensor:
        """Returns the queries of a batch as `queries` does; `sides` are int32 [N], in any order."""
        if self.reciprocal:
            return self.queries(TAIL, anchor, relations, xla)
        if xla:  # which has to know how many queries each side has
            both = [self.queries(side, anchor, relations, xla) for side in (HEAD, TAIL)]
            return tf.where((sides == HEAD)[:, None], *both)
        places = [tf.cast(tf.where(sides == side)[:, 0], tf.int32) for side in (HEAD, TAIL)]
        queries = [
            self.queries(side, tf.gather(anchor, x), relations[x]) for side, x in zip((HEAD, TAIL), places, strict=True)
        ]
        return tf.dynamic_stitch(places, queries)

    def queries_of(self, relation: tf.Tensor, side: int, anchor: tf.Tensor) -> tf.Tensor:
        """Returns queries for the entities on `side`, of relations, int [N], and the other entities, [N, width]."""
        distinct, place = tf.unique(self.relation_ids(relation, side))
        relations = Relations(self.prepared(self.relations.rows(distinct)), place)
        return self.through_net(self.queries(side, anchor, relations))

    def through_net(self, queries: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the output of the scorer's network for queries, [N, …] → [N, length]; without one the queries."""
        return self.net(queries, training=training) if self.net else queries
