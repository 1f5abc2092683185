"""Losses of the two heads. With sampled negatives, the pair head can also take `keras.losses.BinaryCrossentropy`."""

from typing import Any

import keras
import tensorflow as tf

from jobi_tf.compiled import compiled
from jobi_tf.errors import UsageError, check_numbers
from jobi_tf.serialization import constructor_arguments


class _Loss(keras.losses.Loss):
    """A loss that keeps each argument of its constructor in an attribute of the same name."""

    of_queries = False  # labels are those of `training_batches`, not of `query_batches`

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | constructor_arguments(self, _Loss)


@keras.saving.register_keras_serializable("jobi_tf")
class SampledSoftmax(_Loss):
    """Negative log-likelihood of the positive under a softmax over it and its negatives.

    Labels are 1 for the positive, 0 for a negative and -1 for an entry to leave out; exactly one entry of a row is 1.
    Loss of the triple head in Balkır et al. 2019, section 3.1, and Toutanova & Chen 2015.

    Args:
        label_smoothing: share of the target that is spread evenly over all entries of a row, in [0, 1).
        **kwargs: as for `keras.losses.Loss`.

    Example:
        >>> SampledSoftmax()([[1, 0, 0]], [[0.0, 0.0, 0.0]])   # ln 3
    """

    def __init__(self, label_smoothing: float = 0.0, name: str = "sampled_softmax", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        check_numbers("[0, 1)", label_smoothing=label_smoothing)
        self.label_smoothing = label_smoothing

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each row: labels and logits [B, 1 + n] → float [B]."""
        y_pred = tf.convert_to_tensor(y_pred)
        labels = tf.cast(y_true, y_pred.dtype)
        logits = tf.where(labels < 0, y_pred.dtype.min, y_pred)
        target = tf.reduce_sum(tf.where(labels > 0, logits, 0), -1)
        if self.label_smoothing:
            mean = _mean(y_pred, labels >= 0)
            target = (1 - self.label_smoothing) * target + self.label_smoothing * mean
        return tf.reduce_logsumexp(logits, -1) - target


@keras.saving.register_keras_serializable("jobi_tf")
class SampledLogistic(_Loss):
    """Binary cross-entropy of the positive plus the weighted mean of those of its negatives.

    The probability of a triple is sigmoid(margin + score). The weights of the negatives of a row sum to 1. They are
    equal, or larger for higher scores (self-adversarial, Sun et al. 2019). Labels are those of `SampledSoftmax`.

    Args:
        margin: constant that is added to all scores. Negative distances, which are never positive, need one.
        adversarial_temperature: the weights are the softmax of the scores times this value, without a gradient; 0 gives
            equal weights.
        label_smoothing: each target is moved towards 1/2 by this share, in [0, 1).
        **kwargs: as for `keras.losses.Loss`.
    """

    def __init__(
        self,
        margin: float = 0.0,
        adversarial_temperature: float = 0.0,
        label_smoothing: float = 0.0,
        name: str = "sampled_logistic",
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        check_numbers("(-inf, inf)", margin=margin)
        check_numbers("[0, inf)", adversarial_temperature=adversarial_temperature)
        check_numbers("[0, 1)", label_smoothing=label_smoothing)
        self.margin = margin
        self.adversarial_temperature = adversarial_temperature
        self.label_smoothing = label_smoothing

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each row: labels and scores [B, 1 + n] → float [B]."""
        scores = tf.convert_to_tensor(y_pred)
        labels = tf.cast(y_true, scores.dtype)
        logits = self.margin + scores
        target = labels * (1 - self.label_smoothing) + self.label_smoothing / 2
        losses = tf.nn.softplus(logits) - target * logits
        negative = tf.equal(labels, 0)
        leaning = self.adversarial_temperature * tf.stop_gradient(scores)
        weights = tf.nn.softmax(tf.where(negative, leaning, scores.dtype.min), -1)
        # Where a row has no negative the softmax is even over entries that do not count.
        weights = tf.where(negative, weights, 0)
        return tf.reduce_sum(tf.where(labels > 0, losses, 0) + weights * tf.where(negative, losses, 0), -1)


@keras.saving.register_keras_serializable("jobi_tf")
class SampledMargin(_Loss):
    """Mean of max(0, margin - positive score + negative score) over the negatives (Bordes et al. 2013).

    Labels are those of `SampledSoftmax`.

    Args:
        margin: required difference between the score of the positive and that of a negative.
        **kwargs: as for `keras.losses.Loss`.
    """

    def __init__(self, margin: float = 1.0, name: str = "sampled_margin", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        check_numbers("(-inf, inf)", margin=margin)
        self.margin = margin

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each row: labels and scores [B, 1 + n] → float [B]."""
        scores = tf.convert_to_tensor(y_pred)
        labels = tf.cast(y_true, scores.dtype)
        positive = tf.reduce_sum(tf.where(labels > 0, scores, 0), -1, keepdims=True)
        return _mean(tf.nn.relu(self.margin - positive + scores), tf.equal(labels, 0))


@keras.saving.register_keras_serializable("jobi_tf")
class FullSoftmax(_Loss):
    """Mean negative log-likelihood of the answers to a query under a softmax over all entities.

    Labels are the ids of the answers, [B, m], padded with -1; each row has at least one answer. With soft labels they
    are ids and shares of the target, [B, 2, m].
    Loss of the triple head in the appendix of Balkır et al. 2019.

    Args:
        label_smoothing: share of the target that is spread evenly over all entities, in [0, 1).
        **kwargs: as for `keras.losses.Loss`.

    Example:
        >>> FullSoftmax()([[2, -1]], [[0.0, 0.0, 0.0]])   # ln 3
    """

    of_queries = True  # labels are those of `query_batches`

    def __init__(self, label_smoothing: float = 0.0, name: str = "full_softmax", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        if self.dtype not in ("float32", "float64"):  # Keras casts labels to it
            raise UsageError(f"expected dtype float32 or float64, which can hold the ids of answers, got {self.dtype}")
        check_numbers("[0, 1)", label_smoothing=label_smoothing)
        self.label_smoothing = label_smoothing

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each row: ids [B, m], or ids and shares [B, 2, m], and logits [B, E] → float [B]."""
        logits, labels = tf.convert_to_tensor(y_pred), tf.convert_to_tensor(y_true)
        if labels.shape.rank == 3:
            labels, share = labels[:, 0], tf.cast(labels[:, 1], logits.dtype)
        else:
            given = tf.cast(labels >= 0, logits.dtype)
            share = given / tf.reduce_sum(given, 1, keepdims=True)  # [B, m]
        ids, even = tf.maximum(tf.cast(labels, tf.int32), 0), self.label_smoothing
        share *= 1 - even

        @tf.custom_gradient
        def loss(logits: tf.Tensor):  # type: ignore[no-untyped-def]
            logarithm = _logarithm_of_sum(logits)
            target = tf.reduce_sum(share * tf.gather(logits, ids, batch_dims=1), 1)
            if even:
                target += even * tf.reduce_mean(logits, -1)

            def gradient(upstream: tf.Tensor) -> tf.Tensor:
                dense = _softmax_gradient(logits, logarithm, upstream, even)
                query = tf.broadcast_to(tf.range(tf.shape(ids)[0])[:, None], tf.shape(ids))
                return tf.tensor_scatter_nd_sub(dense, tf.stack([query, ids], 2), share * upstream[:, None])

            return logarithm - target, gradient

        return loss(logits)


@compiled
def _logarithm_of_sum(logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_logsumexp(logits, -1)


@compiled
def _softmax_gradient(logits: tf.Tensor, logarithm: tf.Tensor, upstream: tf.Tensor, even: float) -> tf.Tensor:
    """Returns the gradient of the logits, [B, E], but for what the answers contribute."""
    share = even / tf.cast(tf.shape(logits)[1], logits.dtype)
    return (tf.exp(logits - logarithm[:, None]) - share) * upstream[:, None]


@keras.saving.register_keras_serializable("jobi_tf")
class PairCrossentropy(_Loss):
    """Mean binary cross-entropy of the scores of the pair head over the entries of a row.

    It equals `keras.losses.BinaryCrossentropy(from_logits=True)` with a margin, in one pass over memory.

    Args:
        margin: constant that is added to all scores. Negative distances, which are never positive, need one.
        **kwargs: as for `keras.losses.Loss`.
    """

    def __init__(self, margin: float = 0.0, name: str = "pair_crossentropy", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        check_numbers("(-inf, inf)", margin=margin)
        self.margin = margin

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each row: labels 0 or 1 and scores [..., n] → float [...]."""
        scores = tf.convert_to_tensor(y_pred)
        labels = tf.cast(y_true, scores.dtype)

        @tf.custom_gradient
        def loss(scores: tf.Tensor):  # type: ignore[no-untyped-def]
            arguments = labels, scores, self.margin
            return _crossentropy(*arguments), lambda upstream: _crossentropy_gradient(upstream, *arguments)

        return loss(scores)


@compiled
def _crossentropy(labels: tf.Tensor, scores: tf.Tensor, margin: float) -> tf.Tensor:
    logits = margin + scores
    # ln(1 + x) of an x so small that 1 + x is 1 does not count in a sum; log1p would take longer.
    return tf.reduce_mean(tf.nn.relu(logits) - labels * logits + tf.math.log(1 + tf.exp(-tf.abs(logits))), -1)


@compiled
def _crossentropy_gradient(upstream: tf.Tensor, labels: tf.Tensor, scores: tf.Tensor, margin: float) -> tf.Tensor:
    each = upstream / tf.cast(tf.shape(scores)[-1], scores.dtype)
    return (tf.sigmoid(margin + scores) - labels) * each[..., None]


def _mean(values: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    """Returns the mean of the chosen values of each row, 0 where there are none: [..., n] → [...]."""
    count = tf.reduce_sum(tf.cast(chosen, values.dtype), -1)
    return tf.math.divide_no_nan(tf.reduce_sum(tf.where(chosen, values, 0), -1), count)
