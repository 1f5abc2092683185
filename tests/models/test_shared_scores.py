import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.models.scorers import SCORERS, get_scorer
from jobi_tf.models.shared_scores import shared_scores

from .test_batch_scores import relation_width

CHUNKS, SIZE, WIDTH = 3, 4, 6


def plain_scores(scorer, relations, head, tail, heads, tails):
    """The same by automatic differentiation: every triple is written out and scored on its own."""
    head, tail, heads, tails = head[:, :, None], tail[:, :, None], heads[:, None], tails[:, None]

    def score(h, r, t):
        return scorer.scores(scorer.tail_query(h, r), lambda x: tf.reduce_sum(x * scorer.candidate(t), -1))

    return tf.stack(
        [
            tf.concat([score(h, r, t) for h, t in ((head, tail), (heads, tail), (head, tails))], -1)
            for r in (relation[:, :, None] for relation in relations)
        ]
    )


@pytest.mark.parametrize("model_heads", [1, 2])
@pytest.mark.parametrize(("heads", "tails"), [(1, 1), (2, 3)])
@pytest.mark.parametrize("scorer", SCORERS)
def test_values_and_gradients_equal_automatic_differentiation(scorer, heads, tails, model_heads):
    rng = np.random.default_rng(0)
    sizes = [(SIZE, relation_width(scorer))] * model_heads + [(size, WIDTH) for size in (SIZE, SIZE, heads, tails)]
    inputs = [tf.constant(rng.normal(size=(CHUNKS, *size)).astype(np.float32)) for size in sizes]

    def run(function):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            scores = function(get_scorer(scorer), inputs[:model_heads], *inputs[model_heads:])
            # Upstream gradients that differ from entry to entry.
            loss = tf.reduce_sum(tf.sin(scores + tf.reshape(tf.range(tf.size(scores), dtype=tf.float32), scores.shape)))
        return [scores, *tape.gradient(loss, inputs)]

    found = run(shared_scores)
    assert found[0].shape == (model_heads, CHUNKS, SIZE, 1 + heads + tails)
    for ours, theirs in zip(found, run(plain_scores), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("by_side", [False, True])
@pytest.mark.parametrize("scorer", ["complex", "rotate"])
def test_queries_made_of_other_rows(scorer, by_side):
    rng, function = np.random.default_rng(2), get_scorer(scorer)
    numbers = (3, 3) if by_side else (2, 3)
    sizes = [(SIZE, relation_width(scorer)), *((size, WIDTH) for size in (SIZE, SIZE, *numbers, SIZE, SIZE))]
    inputs = [tf.constant(rng.normal(size=(CHUNKS, *size)).astype(np.float32)) for size in sizes]

    def plain(relation, head, tail, heads, tails, head_anchor, tail_anchor):
        head_query, tail_query = function.head_query(relation, tail_anchor), function.tail_query(head_anchor, relation)
        of_triple = tf.reduce_sum(tail_query * function.candidate(tail), -1, keepdims=True)
        of_heads = tf.einsum("ctw,ciw->cti", head_query, function.candidate(heads))
        of_tails = tf.einsum("ctw,ciw->cti", tail_query, function.candidate(tails))
        if by_side:
            at_head = tf.reduce_sum(head_query * function.candidate(head), -1, keepdims=True)
            sides = (at_head, of_heads), (of_triple, of_tails)
            return function.score(tf.stack([tf.concat(x, -1) for x in sides], 2))[None]
        return function.score(tf.concat([of_triple, of_heads, of_tails], -1))[None]

    def ours(relation, *rows):
        return shared_scores(function, [relation], *rows[:4], rows[4:], by_side)

    results = []
    for scores in (ours, plain):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = scores(*inputs)
            loss = tf.reduce_sum(tf.sin(found) * tf.reshape(tf.range(float(tf.size(found))), found.shape))
        gradients = tape.gradient(loss, inputs)
        assert (gradients[1] is None) != by_side  # heads take part only as anchors, but for what is by side
        results.append([found, *(x for x in gradients if x is not None)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_model_scores_each_triple_of_a_chunk_with_each_candidate_in_its_place():
    model = jobi_tf.JoBi(9, 3, WIDTH)
    rng = np.random.default_rng(1)
    head, tail = rng.integers(9, size=(2, CHUNKS, SIZE))
    relation, candidates = rng.integers(3, size=(CHUNKS, SIZE)), rng.integers(9, size=(CHUNKS, 5))
    inputs = {"head": head, "relation": relation, "tail": tail, "candidates": candidates}
    found = model({name: tf.constant(x, tf.int32) for name, x in inputs.items()})
    expected = np.empty((CHUNKS, SIZE, 6))
    for chunk, place in np.ndindex(CHUNKS, SIZE):
        h, r, t = head[chunk, place], relation[chunk, place], tail[chunk, place]
        written_out = [(h, r, t)]
        written_out += [(c, r, t) if i < 2 else (h, r, c) for i, c in enumerate(candidates[chunk])]
        expected[chunk, place] = model.score(tf.constant(written_out, tf.int32))
    np.testing.assert_allclose(found["triple"], expected, atol=1e-6)
    assert found["pair"].shape == expected.shape


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("scorer", ["complex", "tucker", "typecomplex", "transe"])
def test_candidates_by_side(scorer, reciprocal):
    model = jobi_tf.JoBi(9, 3, 4, scorer, reciprocal=reciprocal)
    rng = np.random.default_rng(1)
    triples = np.stack([rng.integers(size, size=(CHUNKS, SIZE)) for size in (9, 3, 9)], -1).astype(np.int32)
    candidates = rng.integers(9, size=(CHUNKS, 2, 5)).astype(np.int32)
    names = ("head", "relation", "tail")
    inputs = {name: tf.constant(triples[..., i]) for i, name in enumerate(names)} | {"candidates": candidates}
    flat, everywhere = triples.reshape(-1, 3), candidates.repeat(SIZE, 0)
    places = [np.concatenate([flat[:, [2 * side]], everywhere[:, side]], 1) for side in (0, 1)]

    def by_ranking():  # the scores of all entities on each side
        scores = [tf.gather(model.scores(flat, x), places[x], batch_dims=1) for x in (0, 1)]
        return tf.reshape(tf.stack(scores, 1), [CHUNKS, SIZE, 2, 6])

    results = []
    for scores in (lambda: model(inputs)["triple"], by_ranking):
        with tf.GradientTape() as tape:
            found = scores()
            loss = tf.reduce_sum(tf.sin(found) * np.arange(found.shape.num_elements()).reshape(found.shape))
        tables = [model.entity, model.triple_relation, *model.common[0].values()]
        gradients = tape.gradient(loss, [x.value for x in tables])
        results.append([found, *(tf.convert_to_tensor(x) for x in gradients)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
