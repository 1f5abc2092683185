"""The stream of training batches."""

import numpy as np
import tensorflow as tf

from jobi_tf.data.negatives import NegativeSampler
from jobi_tf.errors import UsageError


def default_batch_size(triples: int) -> int:
    """Returns 1000 for `triples` training triples, less for few: an epoch then still has a hundred steps, or so."""
    return min(triples, max(50, min(1000, triples // 100)))


def steps_per_epoch(triples: int, batch_size: int, chunk: int | None = None) -> int:
    """Returns the number of full batches in `triples` training triples; at least 1.

    Raises:
        UsageError: the batch is larger than the training split, or no whole number of chunks.
    """
    if not 1 <= batch_size <= triples:
        raise UsageError(f"expected a batch size from 1 to the {triples:,} training triples, got {batch_size:,}")
    if chunk and batch_size % chunk:
        raise UsageError(f"expected a batch size that is a multiple of a chunk's {chunk} triples, got {batch_size:,}")
    return triples // batch_size


def training_batches(
    train: np.ndarray,
    sampler: NegativeSampler,
    batch_size: int,
    joint: bool,
    seed: int,
    first_step: int = 0,
    chunk: int | None = None,
) -> tf.data.Dataset:
    """Returns the endless stream of training batches, from step `first_step` on.

    The stream has no state: the batch of a step follows from `seed` and the step's number alone. So every epoch is
    another shuffle with other negatives, equal seeds give equal streams, and training resumes at any step exactly. The
    rest of an epoch that fills no batch is left out; it is another one each epoch.

    Args:
        train: training triples, int32 [N, 3].
        sampler: makes the negatives, n a triple.
        batch_size: triples a batch over all devices, B.
        joint: also give the labels of the pair head.
        seed: seed of shuffles and draws.
        first_step: number of batches to leave out at the start.
        chunk: c, so many triples share their negatives; without it each has its own. The triples of a batch are then
            sorted by relation, so that chunks are of one relation, or of few; the same triples make a batch.

    Returns:
        A dataset of `(inputs, labels)`. With negatives of their own:
            inputs: `head`, `relation`, `tail` int32 [B]; `candidates` int32 [B, n]; `head_corruptions` int32 [B].
            labels: `triple`, and `pair` where joint: int8 [B, 1 + n], of the positive and then its candidates.
        With shared ones, in B / c chunks:
            inputs: `head`, `relation`, `tail` int32 [B / c, c]; `candidates` int32 [B / c, n].
            labels: `triple`, and `pair` where joint: int8 [B / c, c, 1 + n].

    Raises:
        UsageError: the batch is larger than the training split, or no whole number of chunks.
    """
    per_epoch = steps_per_epoch(len(train), batch_size, chunk)
    if chunk and batch_size % chunk:
        raise UsageError(
            f"expected a batch size that is a multiple of the {chunk} triples of a chunk, got {batch_size}"
        )
    triples = tf.constant(train, tf.int32)
    shuffles, corruptions = tf.unstack(tf.random.split(tf.constant([seed, 0], tf.int64), 2))

    def batch(step: tf.Tensor) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        epoch, place = step // per_epoch, step % per_epoch
        positions = place * batch_size + tf.range(batch_size, dtype=tf.int64)
        index = tf.random.experimental.index_shuffle(positions, tf.random.fold_in(shuffles, epoch), len(train) - 1)
        rows = tf.gather(triples, index)
        draws = tf.random.fold_in(corruptions, step)
        inputs = {}
        if chunk:
            by_relation = tf.gather(rows, tf.argsort(rows[:, 1], stable=True))
            rows = tf.reshape(by_relation, [batch_size // chunk, chunk, 3])
            inputs["candidates"], triple_labels, pair_labels = sampler.corrupt_shared(rows, draws)
        else:
            inputs["candidates"], inputs["head_corruptions"], triple_labels, pair_labels = sampler.corrupt(rows, draws)
        inputs |= {name: rows[..., i] for i, name in enumerate(("head", "relation", "tail"))}
        positive = tf.ones([*rows.shape[:-1], 1], tf.int8)
        labels = {"triple": tf.concat([positive, triple_labels], -1)}
        if joint:
            labels["pair"] = tf.concat([positive, pair_labels], -1)
        return inputs, labels

    steps = tf.data.Dataset.range(first_step, np.iinfo(np.int64).max)
    batches = steps.map(batch, num_parallel_calls=2, deterministic=True).prefetch(2)
    # Nothing is left to tune, and a tuner that sleeps holds up the end of training, by seconds (TensorFlow 2.21).
    options = tf.data.Options()
    options.autotune.enabled = False
    return batches.with_options(options)
