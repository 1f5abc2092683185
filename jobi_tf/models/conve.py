"""ConvE: queries that a convolution makes (Dettmers et al. 2018)."""

import math

import keras
import tensorflow as tf

from jobi_tf.errors import UsageError
from jobi_tf.models.dropout import dropped
from jobi_tf.models.scorer import Scorer

FILTERS, KERNEL = 32, 3
FEATURE_DROPOUT, HIDDEN_DROPOUT = 0.2, 0.3  # of whole feature maps, and of the dense layer's numbers
# Momentum and epsilon of the authors' code (PyTorch's): embeddings start so small that Keras' epsilon would outweigh
# their variance. Synchronized, since the running means of several devices would otherwise drift apart.
OF_BATCH_NORM = {"momentum": 0.9, "epsilon": 1e-5, "synchronized": True}


class ConvE(Scorer):
    """net([h, r])·t + b_t, where b_t is a bias of the tail (Dettmers et al. 2018).

    An entity is stored as [e, b]. There is no query for heads: these are asked for by reciprocal relations.
    """

    name = "conve"
    asks_for_heads = False

    def entity_width(self, dim: int) -> int:
        """Returns d and 1 for the bias."""
        return dim + 1

    def query_net(self, dim: int, seed: int) -> "ConvolutionNet":
        """Returns the convolution that makes [q, 1], to be multiplied with [t, b_t], of [h, r]."""
        return ConvolutionNet(dim, seed)

    def tail_query(self, head: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns [h, r] for the net, without the head's bias: [..., 2d]."""
        return tf.concat([head[..., :-1], relation], -1)

    def head_query(self, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Not there."""
        raise NotImplementedError(f"{self.name} asks for heads by reciprocal relations")

    def entity_squares(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns the squares of e: the bias is not kept small."""
        return rows[..., :-1] ** 2


class ConvolutionNet(keras.layers.Layer):
    """Makes of an entity and a relation, each as a picture, one above the other, the query for the tail.

    Batch norm, convolution, batch norm, ReLU, dropout of feature maps, dense layer, dropout, batch norm, ReLU; as in
    the authors' code, where embeddings are dropped out besides. Dropout is not by Keras' layers; see `models.dropout`.

    Args:
        dim: the embedding size d, the product of the height and the width of a picture.
        seed: seed of the weights and of dropout.

    Raises:
        UsageError: d has no factors that make a picture.
    """

    def __init__(self, dim: int, seed: int):
        super().__init__(dtype="float32")
        height, width = picture(dim)
        self.seed = seed
        self.shape = (2 * height, width, 1)
        maps = (2 * height - KERNEL + 1, width - KERNEL + 1, FILTERS)
        layers, glorot = keras.layers, keras.initializers.GlorotUniform
        # Without biases and scales that the next batch norm takes off again: noise alone would move them.
        self.norm = layers.BatchNormalization(**OF_BATCH_NORM, center=False, scale=False)
        self.convolution = layers.Conv2D(FILTERS, KERNEL, use_bias=False, kernel_initializer=glorot(seed))
        self.norm_of_maps = layers.BatchNormalization(**OF_BATCH_NORM)
        self.dense = layers.Dense(dim, use_bias=False, kernel_initializer=glorot(seed + 2))
        self.norm_of_query = layers.BatchNormalization(**OF_BATCH_NORM)
        self.norm.build((None, *self.shape))
        self.convolution.build((None, *self.shape))
        self.norm_of_maps.build((None, *maps))
        self.dense.build((None, math.prod(maps)))
        self.norm_of_query.build((None, dim))
        self.built = True

    def call(self, pairs: tf.Tensor, step: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the queries [q, 1] of pairs [h, r].

        Args:
            pairs: float32 [N, 2d].
            step: number of the step of training, int64 []; without it nothing is dropped out, and batch norm takes its
                running means.

        Returns:
            float32 [N, d + 1].
        """
        training = step is not None
        x = self.norm(tf.reshape(pairs, [-1, *self.shape]), training=training)
        x = tf.nn.relu(self.norm_of_maps(self.convolution(x), training=training))
        if step is not None:
            x *= dropped(tf.ones([tf.shape(x)[0], 1, 1, FILTERS]), FEATURE_DROPOUT, self.seed, step, 0)
        x = self.dense(tf.reshape(x, [-1, math.prod(x.shape[1:])]))
        if step is not None:
            x = dropped(x, HIDDEN_DROPOUT, self.seed, step, 1)
        x = tf.nn.relu(self.norm_of_query(x, training=training))
        return tf.concat([x, tf.ones_like(x[:, :1])], 1)


def picture(dim: int) -> tuple[int, int]:
    """Returns height and width of a picture of d numbers, as near to a square as there is, the width the smaller.

    Raises:
        UsageError: it would be narrower than the convolution.
    """
    width = max(i for i in range(1, math.isqrt(dim) + 1) if dim % i == 0)
    if width < KERNEL:
        raise UsageError(
            f"expected a dim for the scorer conve that is a product of two numbers of at least {KERNEL}, such as 9, 20 "
            f"or 200, got {dim}: an embedding is a picture that a {KERNEL} × {KERNEL} convolution goes over"
        )
    return dim // width, width
