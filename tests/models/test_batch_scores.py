import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.models import batch_scores as module
from jobi_tf.models.scorers import SCORERS, get_scorer

WIDTH = 6


def plain_scores(scorer, rows, relations, head, tail, candidates, head_corruptions):
    """The same by automatic differentiation: every triple is written out and scored on its own."""
    place = tf.range(candidates.shape[1])[None]
    heads = tf.where(place < head_corruptions[:, None], candidates, head[:, None])
    tails = tf.where(place < head_corruptions[:, None], tail[:, None], candidates)
    heads, tails = tf.concat([head[:, None], heads], 1), tf.concat([tail[:, None], tails], 1)
    h, t = tf.gather(rows, heads), scorer.candidate(tf.gather(rows, tails))
    queries = [scorer.tail_query(h, r[:, None]) for r in relations]
    return tf.stack([scorer.scores(query, lambda x: tf.reduce_sum(x * t, -1)) for query in queries])


def relation_width(scorer):
    """Real numbers of what queries take for a relation, where an entity has `WIDTH`."""
    return {"rescal": WIDTH**2, "tucker": WIDTH**2, "rotate": WIDTH // 2, "typecomplex": WIDTH + 2}.get(scorer, WIDTH)


def random_batch(batch, negatives, heads, rows=11, seed=0, scorer="complex"):
    rng = np.random.default_rng(seed)
    sizes = [(rows, WIDTH), *[(batch, relation_width(scorer))] * heads]
    tables = [rng.normal(size=size).astype(np.float32) for size in sizes]
    head, tail = rng.integers(rows, size=(2, batch)).astype(np.int32)
    candidates = rng.integers(rows, size=(batch, negatives)).astype(np.int32)
    corruptions = rng.integers(negatives + 1, size=batch).astype(np.int32)
    corruptions[0], corruptions[-1] = 0, negatives
    return [tf.constant(x) for x in (*tables, head, tail, candidates, corruptions)]


def dense(gradients):
    return [tf.convert_to_tensor(x) for x in gradients]


def values_and_gradients(function, scorer, tensors):
    *tables, head, tail, candidates, corruptions = tensors
    with tf.GradientTape() as tape:
        tape.watch(tables)
        scores = function(scorer, tables[0], tables[1:], head, tail, candidates, corruptions)
        # Upstream gradients that differ from entry to entry.
        loss = tf.reduce_sum(tf.sin(scores + tf.reshape(tf.range(tf.size(scores), dtype=tf.float32), scores.shape)))
    return [scores, *dense(tape.gradient(loss, tables))]


def assert_same(tensors, scorer="complex"):
    found = values_and_gradients(module.batch_scores, get_scorer(scorer), tensors)
    expected = values_and_gradients(plain_scores, get_scorer(scorer), tensors)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("scorer", SCORERS)
def test_values_and_gradients_equal_automatic_differentiation(scorer, heads):
    assert_same(random_batch(9, 5, heads, scorer=scorer), scorer)


@pytest.mark.parametrize("scorer", ["complex", "transe"])
def test_queries_made_of_other_rows(scorer):
    rows, relation, head, tail, candidates, corruptions = random_batch(6, 4, 1, scorer=scorer)
    anchors = [tf.constant(np.random.default_rng(i).normal(size=(6, WIDTH)).astype(np.float32)) for i in (1, 2)]
    function = get_scorer(scorer)

    def plain(rows, relation, *anchors):
        queries = function.head_query(relation, anchors[1]), function.tail_query(anchors[0], relation)  # [6, length]
        made = function.candidate(rows)
        found = []
        for b in range(6):
            places = [int(head[b]), *candidates[b].numpy()]
            of = [queries[int(c > corruptions[b])][b] for c in range(5)]
            found.append([tf.reduce_sum(q * made[place]) for q, place in zip(of, places, strict=True)])
        return function.score(tf.stack(found)[None])

    def ours(rows, relation, *anchors):
        return module.batch_scores(function, rows, [relation], head, tail, candidates, corruptions, anchors)

    inputs, results = [rows, relation, *anchors], []
    for scores in (ours, plain):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = scores(*inputs)
            loss = tf.reduce_sum(tf.sin(found) * tf.reshape(tf.range(30.0), [1, 6, 5]))
        results.append([found, *dense(tape.gradient(loss, inputs))])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("batch", "negatives"), [(1, 1), (1, 8), (2, 1), (65, 3), (129, 2)])
def test_batches_that_fill_no_block(batch, negatives, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_BYTES", 16)
    assert_same(random_batch(batch, negatives, 2))


def test_every_id_the_same():
    *tables, head, tail, candidates, corruptions = random_batch(4, 6, 2)
    assert_same([*tables, head * 0, tail * 0, candidates * 0, corruptions])


def test_batch_size_unknown_while_tracing():
    tensors = random_batch(7, 3, 2)

    @tf.function(input_signature=[tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in tensors])
    def traced(rows, triple, pair, *ids):
        with tf.GradientTape() as tape:
            tape.watch([rows, triple, pair])
            scores = module.batch_scores(get_scorer("simple"), rows, [triple, pair], *ids)
        return [scores, *dense(tape.gradient(scores, [rows, triple, pair], tf.ones_like(scores)))]

    rows, triple, pair, *ids = tensors
    with tf.GradientTape() as tape:
        tape.watch([rows, triple, pair])
        scores = plain_scores(get_scorer("simple"), rows, [triple, pair], *ids)
    expected = [scores, *dense(tape.gradient(scores, [rows, triple, pair], tf.ones_like(scores)))]
    for ours, theirs in zip(traced(*tensors), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("joint", [True, False])
def test_gradients_of_the_tables(joint):
    model = jobi_tf.JoBi(8, 3, WIDTH // 2, joint=joint)
    *_, head, tail, candidates, corruptions = random_batch(6, 4, 1, rows=8)
    relation = tf.constant([0, 2, 2, 1, 0, 2])
    inputs = {"head": head, "relation": relation, "tail": tail, "candidates": candidates}
    with tf.GradientTape() as tape:
        scores = model(inputs | {"head_corruptions": corruptions})
        loss = tf.add_n([tf.reduce_sum(tf.sin(x)) for x in scores.values()])
    found = tape.gradient(loss, [x.value for x in model.trainable_variables])

    tables = [tf.constant(x.numpy()) for x in model.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(tables)
        relations = [tf.gather(x, relation) for x in tables[1:]]
        expected = plain_scores(get_scorer("complex"), tables[0], relations, head, tail, candidates, corruptions)
        loss = tf.reduce_sum(tf.sin(expected))
    assert list(scores) == ["triple", "pair"][: 1 + joint]
    np.testing.assert_allclose(tf.stack(list(scores.values())), expected, rtol=1e-4, atol=1e-5)
    assert all(isinstance(x, tf.IndexedSlices) for x in found)  # a step must not cost the whole table
    for ours, theirs in zip(dense(found), dense(tape.gradient(loss, tables)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("scorer", ["complex", "tucker", "typecomplex", "transe"])
def test_candidates_by_side(scorer, reciprocal):
    model = jobi_tf.JoBi(8, 3, 4, scorer, reciprocal=reciprocal)
    rng = np.random.default_rng(0)
    triples = np.stack([rng.integers(size, size=6) for size in (8, 3, 8)], 1).astype(np.int32)
    candidates = rng.integers(8, size=(6, 2, 5)).astype(np.int32)
    inputs = dict(zip(("head", "relation", "tail"), triples.T, strict=True)) | {"candidates": candidates}
    places = [np.concatenate([triples[:, [2 * side]], candidates[:, side]], 1) for side in (0, 1)]

    def by_side():
        return model({name: tf.constant(x) for name, x in inputs.items()})["triple"]

    def by_ranking():  # the scores of all entities on each side
        return tf.stack([tf.gather(model.scores(triples, x), places[x], batch_dims=1) for x in (0, 1)], 1)

    results = []
    for scores in (by_side, by_ranking):
        with tf.GradientTape() as tape:
            found = scores()
            loss = tf.reduce_sum(tf.sin(found) * np.arange(found.shape.num_elements()).reshape(found.shape))
        tables = [model.entity, model.triple_relation, *model.common[0].values()]
        results.append([found, *dense(tape.gradient(loss, [x.value for x in tables]))])
    assert results[0][0].shape == (6, 2, 6)
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
