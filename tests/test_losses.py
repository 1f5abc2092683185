import numpy as np
import pytest
import tensorflow as tf

from jobi_tf import SampledSoftmax

LABELS = np.array([[1, 0, 0, 0], [1, -1, 0, -1], [0, -1, 0, 1], [1, -1, -1, -1]], np.int8)
LOGITS = np.random.default_rng(0).normal(scale=3, size=LABELS.shape).astype(np.float32)


def oracle(labels, logits):
    """Minus the log of the positive's share, row by row, entries labelled -1 left out."""
    losses = []
    for row, scores in zip(labels, logits.astype(np.float64), strict=True):
        kept = np.exp(scores[row >= 0])
        losses.append(-np.log(np.exp(scores[row == 1][0]) / kept.sum()))
    return np.array(losses)


def test_values():
    np.testing.assert_allclose(SampledSoftmax().call(LABELS, tf.constant(LOGITS)), oracle(LABELS, LOGITS), atol=1e-6)
    assert float(SampledSoftmax()(LABELS, LOGITS)) == pytest.approx(oracle(LABELS, LOGITS).mean(), abs=1e-6)


def test_equal_scores_give_the_logarithm_of_their_number():
    assert float(SampledSoftmax()([[1, 0, 0]], [[2.0, 2.0, 2.0]])) == pytest.approx(np.log(3))


def test_ignored_entries_have_neither_weight_nor_gradient():
    logits = tf.Variable(LOGITS)
    with tf.GradientTape() as tape:
        loss = SampledSoftmax()(LABELS, logits)
    gradient = tape.gradient(loss, logits).numpy()
    assert (gradient[LABELS < 0] == 0).all()
    shares = np.where(LABELS < 0, 0, np.exp(LOGITS))
    shares /= shares.sum(1, keepdims=True)
    np.testing.assert_allclose(gradient, (shares - (LABELS == 1)) / len(LABELS), atol=1e-6)


def test_large_scores_stay_finite():
    assert float(SampledSoftmax()([[1, 0, -1]], [[-1e4, 1e4, 1e30]])) == pytest.approx(2e4)
