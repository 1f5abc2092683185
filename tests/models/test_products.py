"""The products of queries and listed candidates, against automatic differentiation."""

import numpy as np
import pytest
import tensorflow as tf

from jobi_tf import compiled
from jobi_tf.models import products, scorers

LENGTH = 6


def plain_scores(scorer, queries, candidates, places, heads):
    """Every candidate is gathered and multiplied with the query of its side."""
    at_tail = tf.range(places.shape[1])[None] >= heads[:, None]
    scores = []
    for m in range(queries.shape[1]):
        chosen = tf.where(at_tail[..., None], queries[:, m, 1, None], queries[:, m, 0, None])  # [B, N, length]
        rows = tf.gather(candidates, places)
        scores.append(scorer.scores(chosen, lambda q, rows=rows: tf.reduce_sum(q * rows, -1)))
    return tf.stack(scores)


def random_lists(batch, count, heads, rows=11, seed=0):
    rng = np.random.default_rng(seed)
    queries = rng.normal(size=(batch, heads, 2, LENGTH)).astype(np.float32)
    candidates = rng.normal(size=(rows, LENGTH)).astype(np.float32)
    places = rng.integers(rows, size=(batch, count)).astype(np.int32)
    split = rng.integers(1, count + 1, size=batch).astype(np.int32)
    split[0], split[-1] = 1, count
    return [tf.constant(x) for x in (queries, candidates, places, split)]


def values_and_gradients(function, queries, candidates, places, heads):
    with tf.GradientTape() as tape:
        tape.watch([queries, candidates])
        scores = function(queries, candidates, places, heads)
        # Upstream gradients that differ from entry to entry.
        loss = tf.reduce_sum(tf.sin(scores + tf.reshape(tf.range(tf.size(scores), dtype=tf.float32), tf.shape(scores))))
    return [scores, *map(tf.convert_to_tensor, tape.gradient(loss, [queries, candidates]))]


def assert_same(tensors, name="complex", **options):
    scorer = scorers.get(name)
    ours = values_and_gradients(lambda *x: products.listed_scores(scorer, *x, **options), *tensors)
    theirs = values_and_gradients(lambda *x: plain_scores(scorer, *x), *tensors)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("way", ["cpu", "xla", "gpu"])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("name", ["complex", "transe", "typecomplex"])
def test_values_and_gradients_equal_automatic_differentiation(name, heads, way, monkeypatch):
    if way == "gpu":
        monkeypatch.setattr(products, "on_gpu", lambda: True)
    assert_same(random_lists(9, 6, heads), name, xla=way == "xla")


@pytest.mark.parametrize(("batch", "count"), [(1, 1), (1, 8), (2, 1), (65, 3), (129, 2)])
def test_batches_that_do_not_fill_a_block(batch, count, monkeypatch):
    monkeypatch.setattr(products, "BLOCK_BYTES", 16)
    assert_same(random_lists(batch, count, 2))


def test_batch_size_unknown_while_tracing():
    tensors, scorer = random_lists(7, 3, 2), scorers.get("simple")

    @tf.function(input_signature=[tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in tensors])
    def traced(*arguments):
        return values_and_gradients(lambda *x: products.listed_scores(scorer, *x), *arguments)

    theirs = values_and_gradients(lambda *x: plain_scores(scorer, *x), *tensors)
    for a, b in zip(traced(*tensors), theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("gpu", [False, True])
def test_spread_rows_add_up_their_gradients(gpu, monkeypatch):
    monkeypatch.setattr(products, "on_gpu", lambda: gpu)
    rows = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2))
    with tf.GradientTape() as tape:
        first, second = products.spread(rows, tf.constant([3, 3, 0]), tf.constant([[1], [3]]))
        loss = tf.reduce_sum(first * [[1.0], [10.0], [2.0]]) + tf.reduce_sum(second * 100)
    np.testing.assert_array_equal(first, rows.numpy()[[3, 3, 0]])
    np.testing.assert_array_equal(second, rows.numpy()[[[1], [3]]])
    gradient = tf.convert_to_tensor(tape.gradient(loss, rows))
    np.testing.assert_array_equal(gradient, [[2, 2], [100, 100], [0, 0], [111, 111]])


@pytest.mark.parametrize("alone", [False, True])
def test_a_table_and_rows_of_it_have_one_gradient(alone):
    table = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2))
    with tf.GradientTape() as tape:
        whole, twice, once = products.table_and_rows(table, tf.constant([3, 3]), tf.constant([0]), alone=alone)
        loss = tf.reduce_sum(whole * 2) + tf.reduce_sum(twice * [[1.0], [10.0]]) + tf.reduce_sum(once * 100)
    np.testing.assert_array_equal(twice, [[6, 7], [6, 7]])
    np.testing.assert_array_equal(once, [[0, 1]])
    np.testing.assert_array_equal(tape.gradient(loss, table), [[102, 102], [2, 2], [2, 2], [13, 13]])


@pytest.mark.parametrize("gpu", [False, True])
def test_a_compiled_function_has_the_gradient_of_the_function(gpu, monkeypatch):
    monkeypatch.setattr(compiled, "on_gpu", lambda: gpu)
    function = compiled.compiled_with_gradient(lambda power, x, y: x**power * y)
    x, y = tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        result = function(3, x, y)
    np.testing.assert_allclose(result, [3, 32])
    of_x, of_y = tape.gradient(result, [x, y])
    np.testing.assert_allclose(of_x, [9, 48])
    np.testing.assert_allclose(of_y, [1, 8])
