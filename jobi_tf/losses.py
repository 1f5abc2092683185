"""Losses of the two heads. The pair head uses `keras.losses.BinaryCrossentropy(from_logits=True)`."""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("jobi_tf")
class SampledSoftmax(keras.losses.Loss):
    """Negative log-likelihood of the positive under a softmax over it and its negatives.

    Labels are 1 for the positive, 0 for a negative and -1 for an entry to leave out; exactly one entry of a row is 1.
    Loss of the triple head in Balkır et al. 2019, section 3.1, and Toutanova & Chen 2015.

    Example:
        >>> SampledSoftmax()([[1, 0, 0]], [[0.0, 0.0, 0.0]])   # ln 3
    """

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each row: labels and logits [B, 1 + n] → float [B]."""
        y_pred = tf.convert_to_tensor(y_pred)
        labels = tf.cast(y_true, y_pred.dtype)
        logits = tf.where(labels < 0, y_pred.dtype.min, y_pred)
        return tf.reduce_logsumexp(logits, -1) - tf.reduce_sum(tf.where(labels > 0, logits, 0), -1)
