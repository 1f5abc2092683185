import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.models.scorers import SCORERS, get_scorer
from jobi_tf.models.shared_scores import shared_scores

CHUNKS, SIZE, WIDTH = 3, 4, 6


def plain_scores(scorer, relations, head, tail, heads, tails):
    """The same by automatic differentiation: every triple is written out and scored on its own."""
    head, tail, heads, tails = head[:, :, None], tail[:, :, None], heads[:, None], tails[:, None]

    def score(h, r, t):
        return tf.reduce_sum(scorer.tail_query(h, r) * t, -1)

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
    sizes = [SIZE] * model_heads + [SIZE, SIZE, heads, tails]
    inputs = [tf.constant(rng.normal(size=(CHUNKS, size, WIDTH)).astype(np.float32)) for size in sizes]

    def run(function):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            scores = function(get_scorer(scorer), inputs[:model_heads], *inputs[model_heads:])
            # Upstream gradients that differ from entry to entry.
            loss = tf.reduce_sum(tf.sin(scores + tf.reshape(tf.range(tf.size(scores), dtype=tf.float32), scores.shape)))
        return [scores, *tape.gradient(loss, inputs)]

    assert run(shared_scores)[0].shape == (model_heads, CHUNKS, SIZE, 1 + heads + tails)
    for ours, theirs in zip(run(shared_scores), run(plain_scores), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


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
