"""The triple head of a model as an export stores it, and the search for the best answers in bounded memory."""

from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf

from jobi_tf.data.negatives import contains
from jobi_tf.data.occurrences import TAIL
from jobi_tf.export.lists import AnswerLists
from jobi_tf.models.jobi import JoBi
from jobi_tf.models.products import own_scores

# Stands for "no score": of an unknown name, and where fewer answers are left than requested. JSON has no infinity.
UNKNOWN_SCORE = float(np.finfo(np.float32).min)

# What bounds the memory of a request, whatever its number of rows and the number of entities.
ROWS = 128  # queries that are answered at once
SLICE_SCORES = 2**21  # scores that are computed at once: 8 MB
SLICE_BYTES = 2**25  # embeddings that they are computed from
QUERY_BYTES = 2**25  # relations that queries are computed from at once; RESCAL's are matrices
ALIGNED = 16  # slices of a table that start at a multiple of this number of rows are not copied


class StoredModel(tf.Module):
    """The tables of a model's triple head with the scores and best answers that follow from them.

    The tables are stored as float32 or float16 (`dtype`); scores are computed in float32. A float32 table of entities
    is the model's own variable, not a copy.
    """

    def __init__(self, model: JoBi, dtype: str, lists: AnswerLists):
        super().__init__()
        head = model.heads[0]  # of which nothing else is stored
        self._scorer, self._reciprocal, self._relation_ids = model.scorer, head.reciprocal, head.relation_ids
        self.num_relations = head.num_relations
        self.num_entities, self.width = model.entities.table.shape
        entity = model.entities.table.value
        self.entity = entity if entity.dtype == dtype else tf.Variable(tf.cast(entity, dtype), trainable=False)
        self.relation = tf.Variable(tf.cast(head.all_relations(), dtype), trainable=False)
        self.net = head.net
        # Keras tracks copies of these weights. Without this list, servers would restore the copies alone, but not the
        # variables that the functions read.
        self.net_weights = [x.value for x in head.net.weights] if head.net else []
        self.lists = lists

    def embeddings(self, entity: tf.Tensor) -> tf.Tensor:
        """Returns the embeddings of entities, float32 [B, width], given their ids, int [B]."""
        return _rows(self.entity, entity)

    def scores(self, head: tf.Tensor, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns the scores of triples, float32 [B], given their ids, int [B] each; with reciprocal relations those of
        the tails.
        """

        def scores(head: tf.Tensor, relation: tf.Tensor, tail: tf.Tensor) -> tuple[tf.Tensor]:
            tails = self._scorer.candidate(_rows(self.entity, tail))
            return (own_scores(self._scorer, self._queries(TAIL, head, relation), tails),)

        return _in_blocks(scores, self._rows_at_once(1024), (tf.zeros([0]),), head, relation, tail)[0]

    def scores_of(self, triples: np.ndarray) -> np.ndarray:
        """Returns the scores of triples of ids, int [N, 3] → float32 [N]."""
        return self.scores(*tf.unstack(tf.constant(triples, tf.int64), axis=1)).numpy()

    def best(
        self, side: int, anchor: tf.Tensor, relation: tf.Tensor, k: tf.Tensor | int, new: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Finds the best answers to queries.

        Args:
            side: the side that is sought, `HEAD` or `TAIL`.
            anchor: ids of the entities on the other side, int64 [B].
            relation: ids of the relations, int64 [B].
            k: number of answers to a query, int32 [].
            new: leave out known facts.

        Returns:
            Scores, float32 [B, k], best first, and answers as in `AnswerLists`, int32 [B, k]; `UNKNOWN_SCORE` and -1
            where fewer answers are left.
        """
        nothing = tf.zeros([0, k]), tf.zeros([0, k], tf.int32)
        best = partial(self._best, side, k, new)
        return _in_blocks(best, self._rows_at_once(ROWS), nothing, anchor, relation)

    def _best(
        self, side: int, k: tf.Tensor | int, new: bool, anchor: tf.Tensor, relation: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Finds the best answers, as `best` does, one slice of the candidates after the other."""
        queries = self._queries(side, anchor, relation)
        rows, count = tf.shape(anchor)[0], self.lists.count
        most = max(ALIGNED, SLICE_BYTES // (4 * self.width) // ALIGNED * ALIGNED)
        size = tf.clip_by_value(SLICE_SCORES // rows // ALIGNED * ALIGNED, ALIGNED, most)

        def add_slice(start: tf.Tensor, scores: tf.Tensor, answers: tf.Tensor) -> tuple[tf.Tensor, ...]:
            stop = tf.minimum(start + size, count)
            candidates = self._scorer.candidate(self._slice(start, stop))
            found = self._scorer.scores(queries, partial(_products, candidates=candidates))  # [B, stop - start]
            if self.lists.seen is not None:
                first = (side * self.num_relations + relation) * self.lists.count
                places = _listed(self.lists.seen.value(), first, start, stop)
                nothing = tf.fill(tf.shape(found), UNKNOWN_SCORE)
                found = tf.tensor_scatter_nd_update(nothing, places, tf.gather_nd(found, places))
            if new:
                places = _listed(self.lists.known.value(), self._key(side, anchor, relation), start, stop)
                found = tf.tensor_scatter_nd_update(found, places, tf.fill(tf.shape(places)[:1], UNKNOWN_SCORE))
            values, places = tf.math.top_k(found, tf.minimum(k, stop - start))
            # Earlier answers stand first, as `top_k` keeps the first of equal scores.
            scores, order = tf.math.top_k(tf.concat([scores, values], 1), k)
            return stop, scores, tf.gather(tf.concat([answers, start + places], 1), order, batch_dims=1)

        _, scores, answers = tf.while_loop(
            lambda start, *_: (start < count) & (k > 0),
            add_slice,
            (tf.constant(0), tf.fill([rows, k], UNKNOWN_SCORE), tf.fill([rows, k], -1)),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, None]), tf.TensorShape([None, None])),
            parallel_iterations=1,
        )
        return scores, tf.where(scores > UNKNOWN_SCORE, answers, -1)

    def is_known(self, side: int, anchor: tf.Tensor, relation: tf.Tensor, answers: tf.Tensor) -> tf.Tensor:
        """Returns whether answers, int [B, k], to queries as in `best` are known facts: bool [B, k]."""
        keys = self._key(side, anchor, relation)[:, None] + tf.cast(answers, tf.int64)
        return contains(self.lists.known.value(), keys)

    def _key(self, side: int, anchor: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns the key of answer 0 in `AnswerLists.known`, int64 [B]."""
        return ((side * self.num_entities + anchor) * self.num_relations + relation) * self.lists.count

    def _slice(self, start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
        """Returns the embeddings of the answers from `start` to `stop`, float32 [stop - start, width]."""
        if self.lists.candidates is not None:
            return _rows(self.entity, self.lists.candidates[start:stop])
        # Of a table with two axes TensorFlow copies a slice, unless the bytes of a row are a multiple of 64.
        numbers = tf.reshape(tf.convert_to_tensor(self.entity), [-1])
        first, last = (tf.cast(x, tf.int64) * self.width for x in (start, stop))
        return tf.cast(tf.reshape(numbers[first:last], [-1, self.width]), tf.float32)

    def _rows_at_once(self, most: int) -> int:
        """Returns how many queries are computed at once, up to `most`."""
        return min(most, ROWS if self.net else max(1, QUERY_BYTES // (4 * self.relation.shape[1])))

    def _queries(self, side: int, anchor: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns the queries for the entities on `side`, float32 [B, length], of ids of the other side, int [B]."""
        relations = _rows(self.relation, self._relation_ids(relation, side))
        query = self._scorer.query(TAIL if self._reciprocal else side, _rows(self.entity, anchor), relations)
        return self.net(query) if self.net else query


def _rows(table: tf.Variable, ids: tf.Tensor) -> tf.Tensor:
    # A gather from the variable itself would make TensorFlow copy all of it whenever it is read as a whole.
    return tf.cast(tf.gather(tf.convert_to_tensor(table), ids), tf.float32)


def _products(queries: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """Returns the dot products of queries [B, length] with candidates [C, length]: [B, C].

    With the many rows on the left: on the right they take five times as long for two to four queries (TensorFlow 2.21).
    """
    return tf.transpose(tf.matmul(candidates, queries, transpose_b=True))


def _listed(keys: tf.Tensor, first: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
    """Finds the answers from `start` to `stop`, int32 [] both, that are listed for each query.

    Given keys, int64 [K] ascending, and that of answer 0 of each query, `first`, int64 [B], it returns query and place
    in the slice of each listed answer, int64 [M, 2].
    """
    first += tf.cast(start, tf.int64)
    length = tf.cast(stop - start, tf.int64)
    listed = tf.ragged.range(tf.searchsorted(keys, first), tf.searchsorted(keys, first + length))
    queries = listed.value_rowids()
    return tf.stack([queries, tf.gather(keys, listed.values) - tf.gather(first, queries)], 1)


def _in_blocks(
    function: Callable[..., tuple[tf.Tensor, ...]], rows: int, nothing: tuple[tf.Tensor, ...], *inputs: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    """Applies a function of rows to up to `rows` of them at a time; inputs [B], outputs [B, …], [0, …] in `nothing`."""

    def add_block(start: tf.Tensor, *outputs: tf.Tensor) -> tuple[tf.Tensor, ...]:
        block = function(*(x[start : start + rows] for x in inputs))
        return start + rows, *(tf.concat(parts, 0) for parts in zip(outputs, block, strict=True))

    _, *outputs = tf.while_loop(
        lambda start, *_: start < tf.size(inputs[0]),
        add_block,
        (tf.constant(0), *nothing),
        shape_invariants=(tf.TensorShape([]), *(tf.TensorShape([None] * x.shape.rank) for x in nothing)),
        parallel_iterations=1,
    )
    return tuple(outputs)
