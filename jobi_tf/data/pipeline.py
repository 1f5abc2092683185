"""The streams of training batches: of triples with negatives, and of queries with their answers."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from jobi_tf.data.negatives import NegativeSampler
from jobi_tf.data.occurrences import Csr, KnownAnswers, Occurrences
from jobi_tf.errors import UsageError

# A query with more answers comes in parts. With all at once a few queries would outweigh their batch: one of FB15K-237
# has 3,612 where most have one, and a step over 500 whole queries is as noisy as one over 13 that count alike.
MOST_ANSWERS = 8


def default_batch_size(triples: int, largest: int = 1000) -> int:
    """Returns `largest` for many training triples, less for few: an epoch then still has a hundred steps, or so."""
    return min(triples, max(50, min(largest, triples // 100)))


def steps_per_epoch(triples: int, batch_size: int, chunk: int | None = None, what: str = "training triples") -> int:
    """Returns the number of full batches in `triples` training triples, or `what` else they are; at least 1.

    Raises:
        UsageError: the batch is larger than the training split, or no whole number of chunks.
    """
    if not 1 <= batch_size <= triples:
        raise UsageError(f"expected a batch size from 1 to the {triples:,} {what}, got {batch_size:,}")
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
    by_side: bool = False,
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
        by_side: half of a triple's negatives replace its head, half its tail, and each half is by itself.

    Returns:
        A dataset of `(inputs, labels)`. With negatives of their own:
            inputs: `head`, `relation`, `tail` int32 [B]; `candidates` int32 [B, n]; `head_corruptions` int32 [B].
            labels: `triple`, and `pair` where joint: int8 [B, 1 + n], of the positive and then its candidates.
        By side, heads before tails:
            inputs: `head`, `relation`, `tail` int32 [B]; `candidates` int32 [B, 2, n / 2].
            labels: `triple`, and `pair` where joint: int8 [B, 2, 1 + n / 2].
        With shared ones, in B / c chunks:
            inputs: `head`, `relation`, `tail` int32 [B / c, c]; `candidates` int32 [B / c, n].
            labels: `triple`, and `pair` where joint: int8 [B / c, c, 1 + n].
        With shared ones by side:
            inputs: `head`, `relation`, `tail` int32 [B / c, c]; `candidates` int32 [B / c, 2, n / 2].
            labels: `triple`, and `pair` where joint: int8 [B / c, c, 2, 1 + n / 2].

    Raises:
        UsageError: the batch is larger than the training split, or no whole number of chunks.
    """
    steps_per_epoch(len(train), batch_size, chunk)  # refuses a size that makes no step or no whole chunks
    triples = tf.constant(train, tf.int32)
    shuffles, corruptions = tf.unstack(tf.random.split(tf.constant([seed, 0], tf.int64), 2))

    def batch(step: tf.Tensor) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        rows = tf.gather(triples, _shuffled(step, batch_size, len(train), shuffles))
        draws = tf.random.fold_in(corruptions, step)
        inputs = {}
        if chunk:
            by_relation = tf.gather(rows, tf.argsort(rows[:, 1], stable=True))
            rows = tf.reshape(by_relation, [batch_size // chunk, chunk, 3])
            inputs["candidates"], triple_labels, pair_labels = sampler.corrupt_shared(rows, draws, by_side)
        elif by_side:
            inputs["candidates"], triple_labels, pair_labels = sampler.corrupt_by_side(rows, draws)
        else:
            inputs["candidates"], inputs["head_corruptions"], triple_labels, pair_labels = sampler.corrupt(rows, draws)
        inputs |= {name: rows[..., i] for i, name in enumerate(("head", "relation", "tail"))}
        positive = tf.ones_like(triple_labels[..., :1])
        labels = {"triple": tf.concat([positive, triple_labels], -1)}
        if joint:
            labels["pair"] = tf.concat([positive, pair_labels], -1)
        return inputs, labels

    return _endless(batch, first_step)


def query_batches(
    train: KnownAnswers,
    occurrences: Occurrences | None,
    batch_size: int,
    seed: int,
    first_step: int = 0,
    pair_entities: int | None = None,
) -> tf.data.Dataset:
    """Returns the endless stream of batches of queries with their answers, from step `first_step` on.

    Each query of training, (h, r, ?) or (?, r, t), comes once an epoch, with all its answers; or, if these are more
    than `MOST_ANSWERS`, once with each part of them. It stands for as many triples as it comes with answers and counts
    as many, so that an epoch weighs every triple once a side; as the paper's, which takes each triple by itself. The
    stream has no state, as that of `training_batches`.

    Args:
        train: the answers of the training triples.
        occurrences: what the labels of the pair head are made from; None gives none.
        batch_size: queries a batch over all devices, B.
        seed: seed of shuffles.
        first_step: number of batches to leave out at the start.
        pair_entities: M, the entities that the pair head looks at in a step; all have their turn, in an order that
            changes. Their mean is that of all entities in expectation. None: all of them, E, in every step.

    Returns:
        A dataset of `(inputs, labels, weights)`:
            inputs: `anchor` (the known entity), `relation` and `side` (which is sought) int32 [B], heads before tails;
                `answers` int32 [B, m], filled up with -1; `weight` float32 [B], the number of these answers over that
                of the mean query; with `pair_entities` these, int32 [B, M], each row the same.
            labels: `triple`, the answers, int32 [B, m]; with occurrences `pair`, for each entity whether it was seen on
                that side of the relation, int8 [B, E] or [B, M].
            weights: that of the query, for each of the labels.

    Raises:
        UsageError: the batch is larger than the number of queries.
    """
    parts, place = train.answers.in_parts(MOST_ANSWERS)
    count = len(place)
    steps_per_epoch(count, batch_size, what="training queries")  # refuses a size that makes no step
    rest, relations = np.divmod(train.keys[place], train.num_relations)
    sides, anchors = np.divmod(rest, train.num_entities)
    queries = tf.constant(np.stack([anchors, relations, sides], 1), tf.int32)
    mean_answers = len(parts.entities) / count
    listed = _Lists(parts)
    seen = _Lists(occurrences.seen) if occurrences else None
    shuffles, turns = tf.unstack(tf.random.split(tf.constant([seed, 0], tf.int64), 2))
    size = min(pair_entities or train.num_entities, train.num_entities)

    def batch(step: tf.Tensor) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        # Queries are numbered by side first: what is sorted has heads before tails.
        index = tf.sort(_shuffled(step, batch_size, count, shuffles))
        rows = tf.gather(queries, index)
        inputs = {name: rows[:, i] for i, name in enumerate(("anchor", "relation", "side"))}
        answers = listed(index)
        inputs["answers"] = answers.to_tensor(-1)
        inputs["weight"] = tf.cast(answers.row_lengths(), tf.float32) / mean_answers
        labels = {"triple": inputs["answers"]}
        if seen:
            distinct, place = tf.unique(inputs["side"] * train.num_relations + inputs["relation"])
            pairs = _multi_hot(seen(distinct), train.num_entities)
            if size < train.num_entities:
                chosen = tf.cast(_shuffled(step, size, train.num_entities, turns), tf.int32)
                pairs = tf.gather(pairs, chosen, axis=1)
                # A row for each query, which is what a batch is split by when there are several devices.
                inputs["pair_entities"] = tf.broadcast_to(chosen, [batch_size, size])
            labels["pair"] = tf.gather(pairs, place)
        return inputs, labels, dict.fromkeys(labels, inputs["weight"])

    return _endless(batch, first_step)


class _Lists:
    """Lists of entities to take in graph: called with ids of lists, [N], it returns a ragged tensor int32 [N, …]."""

    def __init__(self, lists: Csr):
        self._offsets = tf.constant(lists.offsets, tf.int64)
        self._entities = tf.constant(lists.entities, tf.int32)

    def __call__(self, ids: tf.Tensor) -> tf.RaggedTensor:
        places = tf.ragged.range(tf.gather(self._offsets, ids), tf.gather(self._offsets, ids + 1))
        return places.with_values(tf.gather(self._entities, places.values))


def _multi_hot(lists: tf.RaggedTensor, num_entities: int) -> tf.Tensor:
    """Returns int8 [N, E] with 1 for the entities of each list."""
    where = tf.stack([tf.cast(lists.value_rowids(), tf.int32), lists.values], 1)
    shape = [tf.shape(lists.row_lengths())[0], num_entities]
    return tf.scatter_nd(where, tf.ones(tf.shape(where)[:1], tf.int8), shape)


def _shuffled(step: tf.Tensor, size: int, count: int, seed: tf.Tensor) -> tf.Tensor:
    """Returns which `size` of `count` are taken in a step, int64 [size].

    Over `count // size` steps, which are an epoch, none is taken twice; each epoch has another order.
    """
    epoch, place = step // (count // size), step % (count // size)
    positions = place * size + tf.range(size, dtype=tf.int64)
    return tf.random.experimental.index_shuffle(positions, tf.random.fold_in(seed, epoch), count - 1)


def _endless(batch: Callable, first_step: int) -> tf.data.Dataset:
    steps = tf.data.Dataset.range(first_step, np.iinfo(np.int64).max)
    batch = tf.autograph.experimental.do_not_convert(batch)  # there is nothing to convert, which takes its time
    batches = steps.map(batch, num_parallel_calls=2, deterministic=True).prefetch(2)
    # Nothing is left to tune, and a tuner that sleeps holds up the end of training, by seconds (TensorFlow 2.21).
    options = tf.data.Options()
    options.autotune.enabled = False
    return batches.with_options(options)
