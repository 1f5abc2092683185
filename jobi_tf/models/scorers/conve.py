"""ConvE: queries that are made by a convolution (Dettmers et al. 2018)."""

import math

import keras
import tensorflow as tf

from jobi_tf.data.seeds import fold_in
from jobi_tf.errors import UsageError
from jobi_tf.models.dropout import Dropout
from jobi_tf.models.scorers.scorer import Scorer

FILTERS, KERNEL = 32, 3
FEATURE_DROPOUT, HIDDEN_DROPOUT = 0.2, 0.3  # of whole feature maps, and of the output of the dense layer
# Momentum and epsilon of the authors' code (PyTorch's): initial embeddings are so small that Keras' epsilon would
# exceed their variance. Synchronized, since the running means of several devices would otherwise differ.
BATCH_NORM = {"momentum": 0.9, "epsilon": 1e-5, "synchronized": True, "dtype": "float32"}


@keras.saving.register_keras_serializable("jobi_tf")
class ConvE(Scorer):
    """net([h, r])·t + b_t, where b_t is a bias of the tail (Dettmers et al. 2018).

    An entity is stored as [e, b]. There is no query for heads, so the model needs reciprocal relations.
    """

    def entity_width(self, dim: int) -> int:
        """Returns d, and 1 for the bias."""
        return dim + 1

    def query_net(self, dim: int, seed: int) -> "ConvolutionNet":
        """Returns the network that makes [q, 1], to be multiplied with [t, b_t], of [h, r]."""
        return ConvolutionNet(dim, seed)

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns [h, r], the input of the network, without the head's bias: [..., 2d]."""
        return tf.concat([head[..., :-1], relation], -1)

    def entity_squares(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns the squares of e: the bias is not regularised."""
        return rows[..., :-1] ** 2


class ConvolutionNet(keras.layers.Layer):
    """Makes the query for the tail of the embeddings of head and relation, each reshaped to a picture.

    Batch norm, convolution, batch norm, ReLU, dropout of feature maps, dense layer, dropout, batch norm, ReLU; as in
    the authors' code.
    """

    def __init__(self, dim: int, seed: int):
        super().__init__(dtype="float32")
        height, width = picture(dim)
        self.shape = (2 * height, width, 1)
        maps = (2 * height - KERNEL + 1, width - KERNEL + 1, FILTERS)
        self.features = math.prod(maps)  # of a query
        layers, glorot = keras.layers, keras.initializers.GlorotUniform
        # Without biases and scales that the next batch norm removes again: they would drift by noise.
        self.norm = layers.BatchNormalization(**BATCH_NORM, center=False, scale=False)
        kernel = glorot(fold_in(seed, "convolution"))
        self.convolution = layers.Conv2D(FILTERS, KERNEL, use_bias=False, kernel_initializer=kernel, dtype="float32")
        self.norm_of_maps = layers.BatchNormalization(**BATCH_NORM)
        self.drop_maps = Dropout(FEATURE_DROPOUT, fold_in(seed, "maps"), noise_shape=(-1, 1, 1, FILTERS))
        kernel = glorot(fold_in(seed, "dense"))
        self.dense = layers.Dense(dim, use_bias=False, kernel_initializer=kernel, dtype="float32")
        self.drop_hidden = Dropout(HIDDEN_DROPOUT, fold_in(seed, "hidden"))
        self.norm_of_query = layers.BatchNormalization(**BATCH_NORM)
        self.norm.build((None, *self.shape))
        self.convolution.build((None, *self.shape))
        self.norm_of_maps.build((None, *maps))
        self.dense.build((None, self.features))
        self.norm_of_query.build((None, dim))
        self.built = True

    def call(self, pairs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the queries [q, 1], float32 [N, d + 1], of pairs [h, r], float32 [N, 2d]."""
        x = self.norm(tf.reshape(pairs, [-1, *self.shape]), training=training)
        x = tf.nn.relu(self.norm_of_maps(self.convolution(x), training=training))
        x = self.drop_maps(x, training=training)
        x = self.dense(tf.reshape(x, [-1, self.features]))
        x = self.drop_hidden(x, training=training)
        x = tf.nn.relu(self.norm_of_query(x, training=training))
        return tf.concat([x, tf.ones_like(x[:, :1])], 1)


def picture(dim: int) -> tuple[int, int]:
    """Returns height and width of a picture of d numbers, as square as possible, the width being the smaller one.

    Raises:
        UsageError: the picture would be narrower than the convolution.
    """
    width = max(i for i in range(1, math.isqrt(dim) + 1) if dim % i == 0)
    if width < KERNEL:
        factors = f"two numbers of at least {KERNEL}, such as 9, 20 or 200"
        raise UsageError(f"expected dim to be a product of {factors}, for the convolution of conve, got {dim}")
    return dim // width, width
