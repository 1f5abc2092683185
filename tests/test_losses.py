import numpy as np
import pytest
import tensorflow as tf

from jobi_tf import FullSoftmax, PairCrossentropy, SampledLogistic, SampledMargin, SampledSoftmax
from jobi_tf.errors import UsageError

LABELS = np.array([[1, 0, 0, 0], [1, -1, 0, -1], [0, -1, 0, 1], [1, -1, -1, -1]], np.int8)
LOGITS = np.random.default_rng(0).normal(scale=3, size=LABELS.shape).astype(np.float32)


def gradient_of(loss, labels, scores):
    scores = tf.Variable(scores)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(loss.call(tf.constant(labels), scores) * WEIGHTS[: len(labels)])
    return tape.gradient(value, scores).numpy()


def slopes(oracle, labels, scores):
    """The same by differences."""
    found, scores = np.zeros(scores.shape), scores.astype(np.float64)
    for place in np.ndindex(scores.shape):
        ends = []
        for step in (1e-5, -1e-5):
            moved = scores.copy()
            moved[place] += step
            ends.append((oracle(labels, moved) * WEIGHTS[: len(labels)]).sum())
        found[place] = (ends[0] - ends[1]) / 2e-5
    return found


WEIGHTS = np.array([1.0, 0.5, 2.0, 3.0], np.float32)
ANSWERS = np.array([[3, -1, -1], [0, 5, 2], [1, 4, -1]])
SOFT = np.array(
    [
        [[3, -1, 2], [0.9, 0, 0.1]],
        [[0, 5, 1], [0.25, 0.25, 0.5]],
        [[1, 4, 0], [0.5, 0.5, 0]],
    ]
)  # fmt: skip
ALL = np.random.default_rng(1).normal(scale=3, size=(3, 6)).astype(np.float32)


def smoothed(share):
    def oracle(labels, logits):
        """Cross-entropy of the softmax with (1 - share) on the positive and share spread over all entries kept."""
        losses = []
        for row, scores in zip(labels, logits.astype(np.float64), strict=True):
            logs = scores[row >= 0] - np.log(np.exp(scores[row >= 0]).sum())
            target = (1 - share) * (row[row >= 0] == 1) + share / (row >= 0).sum()
            losses.append(-(target * logs).sum())
        return np.array(losses)

    return oracle


def logistic(margin, temperature, share):
    def oracle(labels, scores, leaning=None):
        losses = []
        for i, (row, s) in enumerate(zip(labels, scores.astype(np.float64), strict=True)):
            p = 1 / (1 + np.exp(-margin - s))
            entropy = [-(y * np.log(p) + (1 - y) * np.log(1 - p)) for y in (share / 2, 1 - share / 2)]
            lean = np.exp(temperature * (s if leaning is None else leaning[i])[row == 0])
            negatives = (lean / lean.sum() * entropy[0][row == 0]).sum() if (row == 0).any() else 0.0
            losses.append(entropy[1][row == 1][0] + negatives)
        return np.array(losses)

    return oracle


def margin(size):
    def oracle(labels, scores):
        losses = []
        for row, s in zip(labels, scores.astype(np.float64), strict=True):
            negatives = s[row == 0]
            losses.append(np.maximum(0, size - s[row == 1][0] + negatives).mean() if len(negatives) else 0.0)
        return np.array(losses)

    return oracle


def full(share):
    def oracle(answers, logits):
        """The mean over the answers of the cross-entropy of each one by itself."""
        losses = []
        for ids, scores in zip(answers, logits.astype(np.float64), strict=True):
            logs = scores - np.log(np.exp(scores).sum())
            each = [-((1 - share) * logs[x] + share * logs.mean()) for x in ids[ids >= 0]]
            losses.append(np.mean(each))
        return np.array(losses)

    return oracle


def soft(share):
    def oracle(labels, logits):
        """The cross-entropy of a target that is given as ids and shares."""
        target = np.zeros(logits.shape)
        for row, (ids, shares) in zip(target, labels, strict=True):
            row[ids[shares > 0].astype(int)] = shares[shares > 0]
        target = (1 - share) * target + share / logits.shape[1]
        logs = logits - np.log(np.exp(logits.astype(np.float64)).sum(1, keepdims=True))
        return -(target * logs).sum(1)

    return oracle


def pair(size):
    def oracle(labels, scores):
        p = 1 / (1 + np.exp(-size - scores.astype(np.float64)))
        return -(labels * np.log(p) + (1 - labels) * np.log(1 - p)).mean(-1)

    return oracle


SEEN = (np.random.default_rng(2).random((3, 6)) < 0.4).astype(np.int8)
CASES = [
    (SampledSoftmax(), smoothed(0), LABELS, LOGITS),
    (SampledSoftmax(0.2), smoothed(0.2), LABELS, LOGITS),
    (SampledLogistic(), logistic(0, 0, 0), LABELS, LOGITS),
    (SampledLogistic(1.5, label_smoothing=0.1), logistic(1.5, 0, 0.1), LABELS, LOGITS),
    (SampledMargin(), margin(1.0), LABELS, LOGITS),
    (SampledMargin(2.5), margin(2.5), LABELS, LOGITS),
    (FullSoftmax(), full(0), ANSWERS, ALL),
    (FullSoftmax(0.3), full(0.3), ANSWERS, ALL),
    (FullSoftmax(), soft(0), SOFT, ALL),
    (FullSoftmax(0.3), soft(0.3), SOFT, ALL),
    (PairCrossentropy(), pair(0), SEEN, ALL),
    (PairCrossentropy(2.0), pair(2.0), SEEN, ALL),
]


@pytest.mark.parametrize(("loss", "expected", "labels", "scores"), CASES)
def test_values_and_gradients_of_each_loss(loss, expected, labels, scores):
    np.testing.assert_allclose(loss.call(labels, tf.constant(scores)), expected(labels, scores), rtol=1e-5, atol=1e-5)
    assert float(loss(labels, scores)) == pytest.approx(expected(labels, scores).mean(), rel=1e-5)
    np.testing.assert_allclose(gradient_of(loss, labels, scores), slopes(expected, labels, scores), atol=1e-4)


@pytest.mark.parametrize(("loss", "expected", "labels", "scores"), CASES)
def test_losses_of_other_dtypes(loss, expected, labels, scores):
    wide = type(loss)(**{**loss.get_config(), "dtype": "float64"})(labels, scores)
    assert wide.dtype == tf.float64
    assert float(wide) == pytest.approx(expected(labels, scores).mean(), rel=1e-6)


def test_a_dtype_that_cannot_hold_ids():
    with pytest.raises(UsageError, match="dtype"):
        FullSoftmax(dtype="bfloat16")


def test_self_adversarial_weights_have_no_gradient_of_their_own():
    loss, expected = SampledLogistic(0.5, 0.7), logistic(0.5, 0.7, 0)
    np.testing.assert_allclose(loss.call(LABELS, LOGITS), expected(LABELS, LOGITS), rtol=1e-5, atol=1e-5)
    by_differences = slopes(lambda labels, scores: expected(labels, scores, LOGITS), LABELS, LOGITS)
    np.testing.assert_allclose(gradient_of(loss, LABELS, LOGITS), by_differences, atol=1e-4)


def test_scores_in_chunks_have_a_loss_each():
    chunks, scores = np.stack([LABELS[:2], LABELS[2:]]), np.stack([LOGITS[:2], LOGITS[2:]])
    for loss in (SampledSoftmax(0.1), SampledLogistic(1.0, 1.0), SampledMargin(), PairCrossentropy(1.0)):
        flat = loss.call(LABELS, tf.constant(LOGITS)).numpy()
        np.testing.assert_allclose(loss.call(chunks, tf.constant(scores)), flat.reshape(2, 2), rtol=1e-5)


@pytest.mark.parametrize("loss", [SampledSoftmax(), SampledLogistic(1.0, 5.0), SampledMargin()])
def test_large_scores_and_rows_without_negatives_stay_finite(loss):
    labels, scores = np.array([[1, 0, -1], [1, -1, -1]]), np.array([[-1e4, 1e4, 1e30], [-1e4, 1e30, 1e30]], np.float32)
    assert np.isfinite(loss.call(labels, scores)).all()
    assert np.isfinite(gradient_of(loss, labels, scores)).all()


def test_large_scores_of_all_entities_stay_finite():
    scores = np.array([[1e4, -1e4, 0.0]], np.float32)
    assert float(FullSoftmax()([[1, -1]], scores)) == pytest.approx(2e4)
    assert float(PairCrossentropy()([[0, 1, 0]], scores)) == pytest.approx((2e4 + np.log(2)) / 3)
    assert np.isfinite(gradient_of(FullSoftmax(), np.array([[1, -1]]), scores)).all()


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (SampledSoftmax, {"label_smoothing": 1.0}),
        (FullSoftmax, {"label_smoothing": -0.1}),
        (SampledLogistic, {"label_smoothing": 2.0}),
        (SampledLogistic, {"adversarial_temperature": -1.0}),
    ],
)
def test_options_out_of_range(loss, options):
    ((name, value),) = options.items()
    with pytest.raises(UsageError, match=rf"{name} .*{value}"):
        loss(**options)
