"""Dropout whose draws follow from numbers alone, so that training resumes exactly."""

import tensorflow as tf


def dropped(rows: tf.Tensor, rate: float, seed: int, step: tf.Tensor, place: int) -> tf.Tensor:
    """Leaves out a share of the numbers, and scales up the others: float32 [..., width].

    Args:
        rows: the numbers.
        rate: the share.
        seed: seed of all draws.
        step: number of the step, int64 [].
        place: number of this draw among those of the step; each device has its own besides.
    """
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    seeds = tf.stack([tf.constant(seed, tf.int64), step])
    for number in (replica, place):
        seeds = tf.random.fold_in(seeds, number)
    return tf.nn.experimental.stateless_dropout(rows, rate, seeds)
