"""Products of queries and candidates: the core of training, ranking and scoring."""

import math

import keras
import tensorflow as tf

from jobi_tf.compiled import compiled, on_gpu
from jobi_tf.data.occurrences import TAIL
from jobi_tf.errors import UsageError
from jobi_tf.models.scorers import Scorer

DTYPES = ("float32", "bfloat16")
# Bytes of the rows that are gathered at once on a CPU. Small enough that they stay in the cache and the allocator
# reuses their memory, which is several times faster than one block of 80 MB; large enough to use all threads.
BLOCK_BYTES = 4 * 2**20
USUAL_TRIPLES, USUAL_CANDIDATES = 1024, 64  # of a batch whose size is not known
PART_BYTES = 64 * 2**20  # of bfloat16 candidates that are cast to float32 at a time


def all_scores(scorer: Scorer, queries: tf.Tensor, candidates: tf.Tensor, precision: str = "float32") -> tf.Tensor:
    """Returns the scores of all candidates as answers to each query, float32 [..., N, length] → [..., N, C].

    The candidates are what `scorer.candidate` returns for the entities, float32 [..., C, length]; or, without a
    gradient, a bfloat16 table [C, length]. `precision` is the dtype of the factors and the results of matrix products,
    also of those of the gradient.
    """
    if candidates.dtype == tf.bfloat16:
        return scorer.scores(queries, lambda query: _product_by_parts(query, candidates))
    candidates = tf.cast(candidates, precision)

    def product(query: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.matmul(tf.cast(query, precision), candidates, transpose_b=True), tf.float32)

    return scorer.scores(queries, product)


def _product_by_parts(queries: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """Multiplies queries [..., N, length] with bfloat16 candidates, cast to float32 a part at a time: [..., N, C]."""
    size = max(1, PART_BYTES // (4 * candidates.shape[1]))
    products: list[tf.Tensor] = []
    for start in range(0, candidates.shape[0], size):
        with tf.control_dependencies(products[-1:]):
            part = tf.cast(candidates[start : start + size], tf.float32)
            products.append(tf.matmul(queries, part, transpose_b=True))
    return tf.concat(products, -1)


def check_dtypes(scorer: Scorer, **dtypes: str) -> None:
    """Raises a `UsageError` for a setting that is no dtype, or bfloat16 for a scorer that is a distance."""
    for name, dtype in dtypes.items():
        if dtype not in (DTYPES[:1] if scorer.distance else DTYPES):
            allowed = "float32" if scorer.distance else "float32 or bfloat16"
            raise UsageError(f"expected {name} to be {allowed} for {scorer.name}, got {dtype}")


def own_scores(scorer: Scorer, queries: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """Returns the score of one candidate for each query: [..., length] and [..., length] → [...]."""
    return scorer.scores(queries, lambda query: tf.reduce_sum(query * candidates, -1))


def listed_scores(
    scorer: Scorer, queries: tf.Tensor, candidates: tf.Tensor, places: tf.Tensor, heads: tf.Tensor, xla: bool = False
) -> tf.Tensor:
    """Returns the scores of the candidates that are listed for each triple, on either side.

    On a CPU the gradient is written out by hand: automatic differentiation would make a gradient for each candidate (80
    MB a step for 1,000 triples, 50 negatives and 400 real numbers) and then add them up. The gradient of the scores is
    a sparse matrix A [queries, entities], so that two sparse products suffice:

        gradient of the queries    = A  · candidates
        gradient of the candidates = Aᵀ · queries

    Args:
        queries: for each triple and each of M heads of the model its head query and its tail query, float32
            [B, M, 2, length].
        candidates: what `scorer.candidate` returns for the entities of the batch, float32 [U, length].
        places: rows in `candidates`, int32 [B, N].
        heads: number of the candidates of each triple, from the left, that replace its head, int32 [B]; the others
            replace its tail.
        xla: the caller is compiled by XLA as a whole.

    Returns:
        float32 [M, B, N].
    """
    heads_of_model, count = queries.shape[1], scorer.dot_products
    # [B, M, count, 2, length]
    parts = tf.stack(scorer.split_query(queries), 2) if count > 1 else tf.expand_dims(queries, 2)
    flat = tf.reshape(parts, [-1, heads_of_model * count * 2, parts.shape[-1]])
    product = _products if xla or on_gpu() else _products_on_cpu
    shape = [heads_of_model, count, -1, keras.ops.shape(places)[1]]
    products = tf.reshape(product(flat, candidates, places, heads), shape)
    return scorer.score(*tf.unstack(products, count, 1))


def _products(queries: tf.Tensor, rows: tf.Tensor, places: tf.Tensor, heads: tf.Tensor) -> tf.Tensor:
    """Returns the product of each listed row with the query of its side, given queries [B, 2Q, length]: [Q, B, N]."""
    return _dot(tf.gather(rows, places), queries, heads)


def _products_on_cpu(queries: tf.Tensor, rows: tf.Tensor, places: tf.Tensor, heads: tf.Tensor) -> tf.Tensor:
    @tf.custom_gradient
    def products(queries: tf.Tensor, rows: tf.Tensor):  # type: ignore[no-untyped-def]
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            indices, values = _entries(upstream, places, heads)
            flat = tf.reshape(queries, [-1, queries.shape[2]])
            shape = tf.stack([tf.shape(flat, tf.int64)[0], tf.shape(rows, tf.int64)[0]])
            sparse = tf.raw_ops.SparseTensorToCSRSparseMatrix(indices=indices, values=values, dense_shape=shape)
            of_queries = tf.raw_ops.SparseMatrixMatMul(a=sparse, b=rows)
            transposed = tf.raw_ops.SparseMatrixTranspose(input=sparse, type=tf.float32)
            of_rows = tf.raw_ops.SparseMatrixMatMul(a=transposed, b=flat)
            return tf.reshape(of_queries, tf.shape(queries)), of_rows

        return _products_in_blocks(queries, rows, places, heads), gradient

    return products(queries, rows)


def _products_in_blocks(queries: tf.Tensor, rows: tf.Tensor, places: tf.Tensor, heads: tf.Tensor) -> tf.Tensor:
    batch, (triples, count) = tf.shape(places)[0], places.shape
    bytes_per_triple = 4 * rows.shape[1] * (USUAL_CANDIDATES if count is None else count)
    blocks = min(64, math.ceil((triples or USUAL_TRIPLES) * bytes_per_triple / BLOCK_BYTES) or 1)
    size = -(-batch // blocks)
    parts = [slice(i * size, (i + 1) * size) for i in range(blocks)]
    return tf.concat([_compiled_dot(tf.gather(rows, places[x]), queries[x], heads[x]) for x in parts], 1)


def _dot(rows: tf.Tensor, queries: tf.Tensor, heads: tf.Tensor) -> tf.Tensor:
    """Returns products of rows [B, N, length] with the queries of their side, out of [B, 2Q, length]: [Q, B, N]."""
    both_sides = tf.matmul(rows, queries, transpose_b=True)  # [B, N, 2Q]
    at_tail = _sides(tf.shape(rows)[1], heads)[:, :, None] == TAIL
    return tf.transpose(tf.where(at_tail, both_sides[:, :, 1::2], both_sides[:, :, ::2]), [2, 0, 1])


_compiled_dot = compiled(_dot)


def _sides(count: tf.Tensor, heads: tf.Tensor) -> tf.Tensor:
    """Returns the side of each of `count` candidates of each triple, int32 [B, count], ascending."""
    return tf.cast(tf.range(count) >= heads[:, None], tf.int32)


@compiled
def _entries(upstream: tf.Tensor, places: tf.Tensor, heads: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the gradient of the products, [Q, B, N], as entries of a matrix of queries and candidates.

    Its rows are the queries in the order of [B, 2Q]: candidate c of triple b has its entry for q in row (bQ + q)·2 +
    side. Since sides ascend along a row of candidates, the entries are in the order of rows and need not be sorted.

    Returns:
        Row and column of each entry int64 [entries, 2], and its value float32 [entries].
    """
    upstream = tf.transpose(upstream, [1, 0, 2])  # [B, Q, N]
    batch, queries = tf.shape(upstream)[0], tf.shape(upstream)[1]
    side = _sides(tf.shape(places)[1], heads)
    row = (tf.range(batch)[:, None] * queries + tf.range(queries))[:, :, None] * 2 + side[:, None, :]  # [B, Q, N]
    column = tf.broadcast_to(places[:, None, :], tf.shape(upstream))
    indices = tf.stack([tf.reshape(row, [-1]), tf.reshape(column, [-1])], 1)
    return tf.cast(indices, tf.int64), tf.reshape(upstream, [-1])


def table_and_rows(table: tf.Tensor, *places: tf.Tensor, alone: bool = False) -> list[tf.Tensor]:
    """Returns a table [E, width] and some of its rows, for each of `places` [...] a tensor [..., width].

    The gradient of the rows is added to that of the table. Automatic differentiation would make a table of each. With
    `alone`, the table is used by `listed_scores` only. In a graph, the gradient of the table that it returns is then
    changed in place instead of copied.
    """

    @tf.custom_gradient
    def taken(table: tf.Tensor):  # type: ignore[no-untyped-def]
        def gradient(of_table: tf.Tensor, *of_rows: tf.Tensor) -> tf.Tensor:
            ids = tf.concat([tf.reshape(x, [-1, 1]) for x in places], 0)
            values = tf.concat([tf.reshape(x, [-1, table.shape[1]]) for x in of_rows], 0)
            if alone and tf.is_symbolic_tensor(of_table) and of_table.op.type == "SparseMatrixMatMul":
                return tf.raw_ops.InplaceAdd(x=of_table, i=ids[:, 0], v=values)
            return tf.tensor_scatter_nd_add(of_table, ids, values)

        return [tf.identity(table), *(tf.gather(table, ids) for ids in places)], gradient

    return taken(table)


def spread(rows: tf.Tensor, *places: tf.Tensor, xla: bool = False) -> list[tf.Tensor]:
    """Returns the rows [U, width] at each of `places` [...], as tensors [..., width]; `xla` as for `listed_scores`.

    On a CPU the gradients that reach a row are added up by a product with a sparse matrix of ones, which is several
    times faster than TensorFlow's sum over segments.
    """
    flat = tf.concat([tf.reshape(x, [-1]) for x in places], 0)
    taken = tf.gather(rows, flat) if xla or on_gpu() else _gathered_on_cpu(rows, flat)
    parts = tf.split(taken, [tf.size(x) for x in places], num=len(places))
    return [tf.reshape(x, tf.concat([tf.shape(y), tf.shape(rows)[1:]], 0)) for x, y in zip(parts, places, strict=True)]


@tf.custom_gradient
def _gathered_on_cpu(rows: tf.Tensor, places: tf.Tensor):  # type: ignore[no-untyped-def]
    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        count = tf.size(places)
        where = tf.cast(tf.stack([tf.range(count), places], 1), tf.int64)
        shape = tf.cast(tf.stack([count, tf.shape(rows)[0]]), tf.int64)
        ones = tf.raw_ops.SparseTensorToCSRSparseMatrix(indices=where, values=tf.ones([count]), dense_shape=shape)
        transposed = tf.raw_ops.SparseMatrixTranspose(input=ones, type=tf.float32)
        return tf.raw_ops.SparseMatrixMatMul(a=transposed, b=upstream), None

    return tf.gather(rows, places), gradient
