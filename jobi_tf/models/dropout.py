"""Dropout whose state is saved."""

import keras
import tensorflow as tf

from jobi_tf.data.seeds import stream


class Dropout(keras.layers.Layer):
    """Dropout that a saved model resumes exactly: draws follow from the seed, their number, and the replica.

    XLA draws other numbers than TensorFlow. The state of Keras' dropout layers is not saved with a model (Keras 3.15).
    `noise_shape` is the shape of the mask, -1 for the size of the batch; None for that of the input.
    """

    def __init__(self, rate: float, seed: int, noise_shape: tuple[int, ...] | None = None):
        super().__init__(dtype="float32")
        self.rate, self.noise_shape = rate, noise_shape
        self._seed = stream(seed)
        options = {"trainable": False, "dtype": "int64", "aggregation": "only_first_replica"}
        self.draws = self.add_weight(name="draws", shape=(), initializer="zeros", **options)
        self.built = True

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the inputs with some numbers replaced by zeros and the others scaled up, in training only."""
        if not training:
            return inputs
        context = tf.distribute.get_replica_context()
        replica = context.replica_id_in_sync_group if context else 0
        seed = tf.random.fold_in(tf.random.fold_in(self._seed, tf.identity(self.draws.value)), replica)
        self.draws.assign_add(1)
        shape = self.noise_shape and [tf.shape(inputs)[0] if size == -1 else size for size in self.noise_shape]
        return tf.nn.experimental.stateless_dropout(inputs, self.rate, seed, noise_shape=shape)
