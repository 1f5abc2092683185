"""One seed for a whole training, and an independent stream of random numbers for each of its uses."""

import zlib

import numpy as np
import tensorflow as tf

from jobi_tf.errors import check_at_least


def fold_in(seed: int, *uses: str) -> int:
    """Returns the seed of one use, such as `fold_in(seed, "entities")`, below 2³¹.

    Different seeds and different uses give independent streams: the words are mixed by `numpy.random.SeedSequence`.
    """
    return int(_mixed(seed, *uses)[0] >> 1)


def stream(seed: int, *uses: str) -> tf.Tensor:
    """Returns the seed of one use as TensorFlow's stateless functions take it, int64 [2]."""
    return tf.constant(_mixed(seed, *uses).astype(np.int64))


def _mixed(seed: int, *uses: str) -> np.ndarray:
    check_at_least(0, seed=seed)
    words = [seed & 0xFFFFFFFF, seed >> 32, *(zlib.crc32(use.encode()) for use in uses)]
    return np.random.SeedSequence(words).generate_state(2, np.uint32)
