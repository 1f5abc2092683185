"""Scores of a training batch and their gradient, without a [batch, candidates, width] gradient.

Written out by hand because automatic differentiation would write one gradient row for every candidate (80 MB a step at
1,000 triples, 50 negatives, 400 real numbers) and add them up afterwards. Here the gradient of the scores is a sparse
matrix A [queries, entities of the batch], and what it flows back to are two products:

    gradient of the queries  = A  · entity rows
    gradient of the entities = Aᵀ · queries
"""

import math
from collections.abc import Sequence

import tensorflow as tf

from jobi_tf.compiled import compiled
from jobi_tf.data.occurrences import TAIL
from jobi_tf.models.scorer import Scorer

# Rows gathered at once. Small enough that a block stays in the processor's cache and the allocator reuses its memory,
# which is several times faster than one 80 MB block; large enough to keep the threads busy.
BLOCK_BYTES = 4 * 2**20


def batch_scores(
    scorer: Scorer,
    rows: tf.Tensor,
    relations: Sequence[tf.Tensor],
    head: tf.Tensor,
    tail: tf.Tensor,
    candidates: tf.Tensor,
    head_corruptions: tf.Tensor,
    anchors: Sequence[tf.Tensor] = (),
) -> tf.Tensor:
    """Scores each triple of a batch and its candidates, by every model head.

    Args:
        scorer: the score function.
        rows: embeddings of the entities in the batch, float32 [U, width].
        relations: for each model head what the queries take for the triples' relations, float32 [B, …]; M of them.
        head: place of each triple's head in `rows`, int32 [B].
        tail: place of each triple's tail in `rows`, int32 [B].
        candidates: place of each candidate in `rows`, int32 [B, n].
        head_corruptions: the first that many candidates of a triple replace its head, the others its tail, int32 [B].
        anchors: what queries are made of in place of the triples' heads and tails, two of [B, width]; without them
            queries are made of `rows`.

    Returns:
        float32 [M, B, 1 + n]: scores of the triple and of its candidates. Gradients flow to `rows` and `relations`.
    """
    # The triple itself is scored as a candidate for its own head.
    candidates = tf.concat([head[:, None], candidates], 1)  # [B, 1 + n]
    made = scorer.candidate(rows)  # [U, length of a query]
    # Where candidates are rows as they are, what reaches heads and tails through the queries is added in the same
    # product as what reaches candidates.
    own = (head, tail) if made is rows and not anchors else ()

    @tf.custom_gradient
    def products(made: tf.Tensor, *others: tf.Tensor):  # type: ignore[no-untyped-def]
        inputs = [*(tf.gather(made, ids) for ids in own), *others]  # heads, tails and relations, [B, width] each
        queries = _compiled_queries(scorer, *inputs)  # [B, 2M, length]

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            entries = _entries(upstream, candidates, head_corruptions, *own)
            shape = tf.stack([(tf.shape(queries)[1] + len(own)) * tf.shape(queries)[0], tf.shape(made)[0]])
            sparse = tf.raw_ops.SparseTensorToCSRSparseMatrix(
                indices=entries[0], values=entries[1], dense_shape=tf.cast(shape, tf.int64)
            )
            of_queries = tf.raw_ops.SparseMatrixMatMul(a=sparse, b=made)
            right, of_others = _through_queries(scorer, len(own), of_queries, queries, *inputs)
            transposed = tf.raw_ops.SparseMatrixTranspose(input=sparse, type=tf.float32)
            return [tf.raw_ops.SparseMatrixMatMul(a=transposed, b=right), *of_others]

        return _gathered_dot(made, queries, candidates, head_corruptions), gradient

    others = [] if own else anchors or [tf.gather(rows, head), tf.gather(rows, tail)]
    found = products(made, *others, *relations)  # [M · dot products, B, 1 + n]
    found = tf.reshape(found, tf.concat([[-1, scorer.dot_products], tf.shape(found)[1:]], 0))
    return scorer.score(*tf.unstack(found, scorer.dot_products, 1))


def _queries(scorer: Scorer, head: tf.Tensor, tail: tf.Tensor, *relations: tf.Tensor) -> tf.Tensor:
    """Returns [B, 2M, length]: for each model head its head query and its tail query. Arguments: [B, width].

    A model head whose scores are made of several dot products counts as several, one after the other.
    """
    made: list[tf.Tensor] = []
    for relation in relations:
        of_head, of_tail = scorer.head_query(relation, tail), scorer.tail_query(head, relation)
        for pair in zip(scorer.split_query(of_head), scorer.split_query(of_tail), strict=True):
            made.extend(pair)
    return tf.stack(made, 1)


_compiled_queries = compiled(_queries)


def _gathered_dot(rows: tf.Tensor, queries: tf.Tensor, candidates: tf.Tensor, head_corruptions: tf.Tensor) -> tf.Tensor:
    """Returns the scores, [M, B, 1 + n], block by block."""
    batch, width = tf.shape(candidates)[0], rows.shape[1]
    bytes_a_triple = 4 * width * (candidates.shape[1] or 1)
    blocks = min(64, math.ceil((candidates.shape[0] or 1024) * bytes_a_triple / BLOCK_BYTES))
    size = -(-batch // blocks)
    parts = [slice(i * size, (i + 1) * size) for i in range(blocks)]
    return tf.concat([_dot(tf.gather(rows, candidates[x]), queries[x], head_corruptions[x]) for x in parts], 1)


@compiled
def _dot(rows: tf.Tensor, queries: tf.Tensor, head_corruptions: tf.Tensor) -> tf.Tensor:
    """Returns the dot products of candidates [B, 1 + n, length] with the queries of their side, out of [B, 2M, length].

    Returns:
        float32 [M, B, 1 + n].
    """
    both_sides = tf.matmul(rows, queries, transpose_b=True)  # [B, 1 + n, 2M]
    at_tail = _sides(tf.shape(rows)[1], head_corruptions)[:, :, None] == TAIL
    return tf.transpose(tf.where(at_tail, both_sides[:, :, 1::2], both_sides[:, :, ::2]), [2, 0, 1])


def _sides(candidates: tf.Tensor, head_corruptions: tf.Tensor) -> tf.Tensor:
    """Returns the side on which each of so many candidates of a triple stands, [B, candidates]; ascending."""
    return tf.cast(tf.range(candidates) > head_corruptions[:, None], tf.int32)


@compiled
def _entries(
    upstream: tf.Tensor, candidates: tf.Tensor, head_corruptions: tf.Tensor, *own: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the gradient of the scores, upstream [M, B, 1 + n], as entries of a matrix of queries times entities.

    Its first 2MB rows are the queries in the order of `_queries`: candidate c of triple b has, for model head m, its
    entry in row (bM + m)·2 + side. Since sides ascend along a row of candidates, entries come in the order of rows and
    nothing has to be sorted. Where `own` holds the heads and the tails of the triples, [B] each, rows with a single 1
    for each of them follow: by them the gradients that reach them through the queries are added in the same product.

    Returns:
        Row and column of each entry int64 [N, 2], and its value float32 [N].
    """
    upstream = tf.transpose(upstream, [1, 0, 2])  # [B, M, 1 + n]
    batch, heads = tf.shape(upstream)[0], tf.shape(upstream)[1]
    side = _sides(tf.shape(candidates)[1], head_corruptions)
    query = (tf.range(batch)[:, None] * heads + tf.range(heads))[:, :, None] * 2 + side[:, None, :]  # [B, M, 1 + n]
    entity = tf.broadcast_to(candidates[:, None, :], tf.shape(upstream))
    further = 2 * heads * batch + tf.range(len(own) * batch)
    row = tf.concat([tf.reshape(query, [-1]), further], 0)
    place = tf.concat([tf.reshape(entity, [-1]), *own], 0)
    values = tf.concat([tf.reshape(upstream, [-1]), tf.ones([len(own) * batch])], 0)
    return tf.cast(tf.stack([row, place], 1), tf.int64), values


@compiled
def _through_queries(
    scorer: Scorer, own: int, upstream: tf.Tensor, queries: tf.Tensor, *inputs: tf.Tensor
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Takes the gradient of the queries on to what they were made of.

    Args:
        scorer: the score function.
        own: so many of the inputs, from the first, have their gradients in the first result.
        upstream: gradient of the queries, [2MB + own·B, length], of which the last own·B rows do not count.
        queries: [B, 2M, length].
        inputs: heads, tails and the relations of each model head, [B, width] each.

    Returns:
        The queries, then the gradients of the first `own` inputs, [2MB + own·B, length]; those of the other inputs.
    """
    length = queries.shape[2]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        made = tf.reshape(_queries(scorer, *inputs), [-1, length])
    of_inputs = tape.gradient(made, inputs, upstream[: tf.size(made) // length])
    return tf.concat([tf.reshape(queries, [-1, length]), *of_inputs[:own]], 0), of_inputs[own:]
