"""Streams of training batches: triples with negatives, and queries with their answers."""

import os
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import tensorflow as tf

from jobi_tf.data.graph import Graph, check_is_graph
from jobi_tf.data.negatives import WHOLE, NegativeSampler, Part
from jobi_tf.data.occurrences import Csr, KnownAnswers, Occurrences, entity_degrees
from jobi_tf.data.seeds import stream
from jobi_tf.data.shards import RECORD, Shards
from jobi_tf.data.soft_labels import SoftLabels
from jobi_tf.errors import UsageError, check_at_least, check_numbers

MODES = ("own", "by-side", "shared", "shared-by-side")
# By default a query with more answers is split. With all answers at once a few queries would dominate their batch: one
# of FB15K-237 has 3,612 where most have one, and a step over 500 whole queries is as noisy as one over 13 equal ones.
ANSWERS_PER_QUERY = 8
SOFT_WEIGHT = 10.0
MOST_ENTITIES = 2**24  # whose ids float32 can hold: Keras casts labels to it
TRIPLES_OF_A_CHUNK = 10
BLOCKS_AT_ONCE = 4  # that are read from shards


def default_batch_size(count: int, largest: int = 1000, multiple: int = 1) -> int:
    """Returns `largest` for many training triples or queries, less for few: an epoch has about a hundred steps.

    The size is a multiple of `multiple`: the number of devices, times the triples of a chunk.
    """
    size = min(count, max(50, min(largest, count // 100)))
    return max(multiple, size - size % multiple)


def steps_per_epoch(
    graph: Graph, batch_size: int, queries: bool = False, split: str = "train", *, answers_per_query: int | None = None
) -> int:
    """Returns the number of full batches of an epoch, at least 1.

    Args:
        graph: the graph.
        batch_size: triples a batch, or queries.
        queries: whether batches are those of `query_batches`.
        split: the split whose triples are in the batches.
        answers_per_query: that of `query_batches`.

    Raises:
        UsageError: `graph` is not a graph, the batch is larger than the split, or `answers_per_query` has no effect.
        DataError: there is no such split.
    """
    check_is_graph(graph)
    if queries:
        most = ANSWERS_PER_QUERY if answers_per_query is None else answers_per_query
        check_at_least(1, answers_per_query=most)
        return _full_batches(number_of_queries(graph, split, most), batch_size, f"{split} queries")
    if answers_per_query is not None:
        raise UsageError(f"expected no answers_per_query without queries, got {answers_per_query}")
    return _full_batches(len(graph.split(split)), batch_size, f"{split} triples")


def _full_batches(count: int, batch_size: int, what: str) -> int:
    check_at_least(1, batch_size=batch_size)
    if not count:
        raise UsageError(f"expected {what}, got none")
    if batch_size > count:
        raise UsageError(f"expected batch_size to be from 1 to the {count:,} {what}, got {batch_size:,}")
    return count // batch_size


def check_negatives(negatives: int, mode: str) -> None:
    """Raises a `UsageError` for too few negatives, or a number that a mode cannot divide between the sides."""
    check_at_least(2 if mode.startswith("shared") else 1, negatives=negatives)
    if mode.endswith("by-side") and negatives % 2:
        raise UsageError(f"expected an even number of negatives, half for each side, got {negatives}")


def training_batches(
    graph: Graph,
    batch_size: int = 1000,
    negatives: int = 50,
    p: float = 0.3,
    joint: bool = True,
    mode: str = "own",
    seed: int = 0,
    *,
    chunk: int | None = None,
    filter_negatives: bool = False,
    split: str = "train",
    first_step: int = 0,
    sampler: NegativeSampler | None = None,
    part: Part = WHOLE,
) -> tf.data.Dataset:
    """Returns the endless stream of batches of triples with negatives, for `fit` and, of another split, for validation.

    The stream has no state: each batch only depends on `seed` and the number of the step. Equal seeds therefore give
    equal streams, and training can be resumed at any step. Each epoch has another order and other negatives, and
    leaves out other triples if the last batch would be incomplete.

    Args:
        graph: the graph. If its triples have weights, they become sample weights with mean 1.
        batch_size: triples of a batch, B, over all devices.
        negatives: negatives of a triple, n.
        p: probability that a negative is drawn from the entities seen on that side of the relation in training.
        joint: whether there are labels for the pair head.
        mode: `"own"`: each triple has its own negatives, all in one loss. `"by-side"`: n / 2 for each side, with a
            loss for each side. `"shared"`: `chunk` triples share their negatives, which is faster; the triples of a
            batch are sorted by relation, so that most chunks have one relation. `"shared-by-side"`: both.
        seed: seed of the order and of the negatives.
        chunk: triples of a chunk, c; None: 10.
        filter_negatives: whether the loss of the triple head ignores negatives that are training triples.
        split: the split whose triples are in the batches.
        first_step: number of batches to skip; a number, or a tensor in a graph.
        sampler: the sampler of negatives, which decides instead of `negatives`, `p` and `filter_negatives`.
        part: the part of each batch to return, for one of several workers; `Part(0, 2)` of `jobi_tf.data.negatives` is
            the first half.

    Returns:
        A dataset of `(inputs, labels)`, or `(inputs, labels, weights)` if triples have weights. `inputs` are the fields
        of a class of `jobi_tf.models.batches`. `labels` has the key `triple`, and `pair` if `joint`: int8, the label of
        the positive before those of its negatives. A label of `triple` is 1 for the positive, 0 for a negative and -1
        for a negative to ignore. A label of `pair` is 1 for the positive, and for a negative whose new entity was seen
        on that side of the relation in training, else 0. In training triples the other pair was seen, too; in another
        split this is not looked up.

        | mode | inputs | labels |
        |---|---|---|
        | own | `OwnNegatives` | [B, 1 + n] |
        | by-side | `OwnNegativesBySide` | [B, 2, 1 + n / 2], heads before tails |
        | shared | `SharedNegatives` | [B / c, c, 1 + n] |
        | shared-by-side | `SharedNegativesBySide` | [B / c, c, 2, 1 + n / 2] |

    Raises:
        UsageError: an argument is out of range or has no effect, or the batch is larger than the split or not a
            multiple of `chunk`.
        DataError: there is no such split.

    Example:
        >>> graph = jobi_tf.load_graph("world")
        >>> (inputs, labels), *_ = jobi_tf.training_batches(graph, batch_size=100).take(1)
        >>> inputs["negatives"].shape, labels["pair"].shape
        (TensorShape([100, 50]), TensorShape([100, 51]))
    """
    check_is_graph(graph)
    if mode not in MODES:
        raise UsageError(f"expected mode to be one of {', '.join(MODES)}, got {mode!r}")
    shared, by_side = mode.startswith("shared"), mode.endswith("by-side")
    if chunk is not None and not shared:
        raise UsageError(f"expected no chunk in the mode {mode}, in which negatives are not shared, got {chunk}")
    chunk = TRIPLES_OF_A_CHUNK if chunk is None else chunk
    check_at_least(1, chunk=chunk, batch_size=batch_size)
    if shared and batch_size % chunk:
        raise UsageError(f"expected batch_size to be a multiple of the {chunk} triples of a chunk, got {batch_size:,}")
    rows = graph.split(split)
    _full_batches(len(rows), batch_size, f"{split} triples")  # raises for a size that makes no step
    known = graph.train if filter_negatives else None
    if sampler is None:
        sampler = NegativeSampler(Occurrences.of_graph(graph), negatives, p, known)
    check_negatives(sampler.negatives, mode)
    weights, draws = graph.weights.get(split), stream(seed, "negatives")
    if weights is not None:
        weights = tf.constant(weights / np.mean(weights, dtype=np.float64), tf.float32)

    def batch(step: tf.Tensor, chosen: tf.Tensor, ids: tf.Tensor | None = None) -> tuple[dict[str, tf.Tensor], ...]:
        if shared:
            by_relation = tf.reshape(tf.argsort(chosen[:, 1], stable=True), [batch_size // chunk, chunk])
            chosen, ids = tf.gather(chosen, by_relation), None if ids is None else tf.gather(ids, by_relation)
        chosen, ids = part.of(chosen), None if ids is None else part.of(ids)
        inputs = {"chunks" if shared else "triples": chosen}
        drawn = sampler.draw(chosen, tf.random.fold_in(draws, step), shared, by_side, part)
        if by_side:
            inputs |= {"head_negatives": drawn.entities[..., 0, :], "tail_negatives": drawn.entities[..., 1, :]}
        else:
            inputs |= {"negatives": drawn.entities}
            if not shared:
                inputs["head_counts"] = drawn.head_counts
        labels = {"triple": drawn.triple_labels} | ({"pair": drawn.pair_labels} if joint else {})
        labels = {name: tf.concat([tf.ones_like(x[..., :1]), x], -1) for name, x in labels.items()}
        if weights is None:
            return inputs, labels
        inputs["weights"] = shares = tf.gather(weights, ids)
        return inputs, labels, dict.fromkeys(labels, shares[..., None] if by_side else shares)

    if isinstance(rows, Shards):
        return _endless(batch, first_step, _streamed(rows, batch_size, seed, first_step))
    triples, order = tf.constant(np.asarray(rows, np.int32)), stream(seed, "order")

    def batch_in_memory(step: tf.Tensor) -> tuple[dict[str, tf.Tensor], ...]:
        ids = _shuffled(step, batch_size, len(rows), order)
        return batch(step, tf.gather(triples, ids), ids)

    return _endless(batch_in_memory, first_step)


def query_batches(
    graph: Graph,
    batch_size: int = 500,
    joint: bool = True,
    seed: int = 0,
    *,
    answers_per_query: int = ANSWERS_PER_QUERY,
    rare_weight: float = 1.0,
    pair_entities: int | None = None,
    soft_labels: SoftLabels | None = None,
    soft_weight: float | None = None,
    split: str = "train",
    first_step: int = 0,
    part: Part = WHOLE,
) -> tf.data.Dataset:
    """Returns the endless stream of batches of queries, which are scored against all entities.

    Each query of the split, (h, r, ?) or (?, r, t), occurs once in an epoch with all its answers. A query with more
    than `answers_per_query` answers is split into several. Queries are weighted by their number of answers, so that
    each triple counts once for each side, as in the paper. The stream has no state, as that of `training_batches`.

    Args:
        graph: the graph.
        batch_size: queries of a batch, B, over all devices.
        joint: whether there are labels for the pair head.
        seed: seed of the order.
        answers_per_query: largest number of answers of a query, m. With 1 each training triple makes two queries, one
            for its head and one for its tail, as in the paper.
        rare_weight: weight of the rarest answers in the loss, in (0, 1]. The weight of a query grows linearly with the
            number of training triples of its answer, from this value for none to 1 for the entity with most; then all
            weights are divided by their mean. Needs `answers_per_query=1`. From the code of Zhang et al., NeurIPS 2020
            (DURA).
        pair_entities: number of entities that the pair head scores in a step, M. The steps take all entities in turn,
            in an order that changes, so that over many epochs all of them count about equally. None, or more than E:
            all entities, E.
        soft_labels: other answers to the queries of training, which get a share of the target of the triple head.
        soft_weight: what the teacher's odds of these answers are multiplied by, above 0; None: 10. With 1 the answers
            in training, with which the teacher was trained, would get nearly all of the target.
        split: the split whose queries are in the batches.
        first_step: number of batches to skip; a number, or a tensor in a graph.
        part: the part of each batch to return, for one of several workers; `Part(0, 2)` of `jobi_tf.data.negatives` is
            the first half.

    Returns:
        A dataset of `(inputs, labels, weights)`. `inputs` are the fields of `jobi_tf.models.batches.Queries`, with the
        queries for heads before those for tails. `labels` has the key `triple`, the answers, int32 [B, m], padded with
        -1, or with `soft_labels` the answers and their shares, float32 [B, 2, m + k]; and `pair` if `joint`, int8
        [B, E] or [B, M], 1 for entities seen on that side of the relation in training.
        The weight of a query, float32 [B], is its number of answers divided by the mean number. `rare_weight`
        changes the weights of the triple head only, not those of the pair head and of regularisers.

    Raises:
        UsageError: an argument is out of range or has no effect, the batch is larger than the number of queries, or
            the graph has weights for its triples or more than 2^24 entities.
        DataError: there is no such split, or `soft_labels` are of another graph.
    """
    check_is_graph(graph)
    if graph.num_entities > MOST_ENTITIES:
        raise UsageError(f"expected at most {MOST_ENTITIES:,} entities for queries against all entities, got {graph}")
    if graph.weights:
        raise UsageError("expected a graph without weights of triples for queries against all entities")
    if pair_entities is not None and not joint:
        raise UsageError(f"expected no pair_entities without the pair head (joint=False), got {pair_entities}")
    check_at_least(1, answers_per_query=answers_per_query, pair_entities=1 if pair_entities is None else pair_entities)
    check_numbers("(0, 1]", rare_weight=rare_weight)
    if rare_weight < 1 and answers_per_query > 1:
        raise UsageError(f"expected answers_per_query=1 with rare_weight, got {answers_per_query}")
    if soft_weight is not None and soft_labels is None:
        raise UsageError(f"expected no soft_weight without soft_labels, got {soft_weight}")
    soft_weight = SOFT_WEIGHT if soft_weight is None else soft_weight
    check_numbers("(0, inf)", soft_weight=soft_weight)
    if soft_labels is not None:
        if not isinstance(soft_labels, SoftLabels):
            raise UsageError(f"expected soft labels as from SoftLabels.load, got {soft_labels!r}")
        if split != "train":
            raise UsageError(f"expected the split train with soft labels, got {split}")
        soft_labels.check(graph)
    known = KnownAnswers.of_graph(graph, [split])
    parts, place = known.answers.in_parts(answers_per_query)
    count = len(place)
    _full_batches(count, batch_size, f"{split} queries")  # raises for a size that makes no step
    queries = tf.constant(known.queries()[place], tf.int32)
    mean_answers, listed = len(parts.entities) / count, _ragged(parts)
    seen = _ragged(Occurrences.of_graph(graph).seen) if joint else None
    if rare_weight < 1:
        degrees = entity_degrees(graph.train, graph.num_entities)
        factors = rare_weight + (1 - rare_weight) * degrees[parts.entities] / degrees.max()
        factors = tf.constant(factors / factors.mean(), tf.float32)  # one for each query
    if soft_labels is not None:
        shares = soft_labels.shares(soft_weight)
        soft = tf.constant(np.stack([soft_labels.entities, shares], 1), tf.float32)
        places = tf.constant(place)
    order, turns = stream(seed, "order"), stream(seed, "pair entities")
    entities = graph.num_entities
    size = min(pair_entities or entities, entities)

    def batch(step: tf.Tensor) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        # Queries are numbered by side first: sorted, heads come before tails.
        ids = part.of(tf.sort(_shuffled(step, batch_size, count, order)))
        rows, answers = tf.gather(queries, ids), tf.gather(listed, ids)
        inputs = {name: rows[:, i] for i, name in enumerate(("anchors", "relations", "sides"))}
        inputs["answers"] = answers.to_tensor(-1)
        inputs["weights"] = tf.cast(answers.row_lengths(), tf.float32) / mean_answers
        labels = {"triple": inputs["answers"]}
        if soft_labels is not None:
            labels["triple"] = _with_soft_labels(answers, tf.gather(soft, tf.gather(places, ids)))
        if seen is not None:
            distinct, place = tf.unique(inputs["sides"] * graph.num_relations + inputs["relations"])
            pairs = _multi_hot(tf.gather(seen, distinct), entities)
            if size < entities:
                chosen = tf.cast(_shuffled(step, size, entities, turns), tf.int32)
                pairs = tf.gather(pairs, chosen, axis=1)
                # A row for each query, since with several devices a batch is divided by rows.
                inputs["pair_entities"] = tf.broadcast_to(chosen, [batch_size // part.count, size])
            labels["pair"] = tf.gather(pairs, place)
        weights = dict.fromkeys(labels, inputs["weights"])
        if rare_weight < 1:
            weights["triple"] *= tf.gather(factors, ids)
        return inputs, labels, weights

    return _endless(batch, first_step)


@lru_cache(maxsize=1)
def number_of_queries(graph: Graph, split: str = "train", answers_per_query: int = ANSWERS_PER_QUERY) -> int:
    """Returns the number of queries of a split on both sides, after queries with many answers are split."""
    return len(KnownAnswers.of_graph(graph, [split]).answers.in_parts(answers_per_query)[1])


def _ragged(lists: Csr) -> tf.RaggedTensor:
    """Returns lists of entities as a tensor, ragged int32 [lists, …]."""
    offsets = tf.constant(lists.offsets, tf.int64)
    return tf.RaggedTensor.from_row_splits(tf.constant(lists.entities, tf.int32), offsets, validate=False)


def _with_soft_labels(answers: tf.RaggedTensor, soft: tf.Tensor) -> tf.Tensor:
    """Returns the answers and soft labels, float32 [B, 2, k] with entities and shares, as one: float32 [B, 2, m + k].

    The answers share evenly what the soft labels leave.
    """
    left = 1 - tf.reduce_sum(soft[:, 1], 1)
    share = left / tf.cast(answers.row_lengths(), tf.float32)
    ids = tf.cast(answers.to_tensor(-1), tf.float32)
    return tf.concat([tf.stack([ids, tf.where(ids < 0, 0.0, share[:, None])], 1), soft], 2)


def _multi_hot(lists: tf.RaggedTensor, num_entities: int) -> tf.Tensor:
    """Returns int8 [N, E] with 1 for the entities of each list."""
    where = tf.stack([tf.cast(lists.value_rowids(), tf.int32), lists.values], 1)
    shape = [tf.shape(lists.row_lengths())[0], num_entities]
    return tf.scatter_nd(where, tf.ones(tf.shape(where)[:1], tf.int8), shape)


def _shuffled(step: tf.Tensor, size: int, count: int, seed: tf.Tensor) -> tf.Tensor:
    """Returns the indices of the items of a step, int64 [size].

    Over the `count // size` steps of an epoch none is taken twice; each epoch has another order.
    """
    epoch, place = step // (count // size), step % (count // size)
    positions = place * size + tf.range(size, dtype=tf.int64)
    return tf.random.experimental.index_shuffle(positions, tf.random.fold_in(seed, epoch), count - 1)


def _streamed(shards: Shards, batch_size: int, seed: int, first_step: int) -> tf.data.Dataset:
    """Returns the endless stream of batches of triples, int32 [B, 3], from step `first_step` on.

    In each epoch the blocks of all files come in another order; the triples of `window` blocks at a time are
    shuffled. The order depends on `seed` alone, and a step is found without reading those before it, but for its
    window. The triples of an epoch that do not fill a batch are left out: they are the last ones of a window of full
    blocks, so that each epoch leaves out others. A block that is not full is in the first window, which may be short.
    """
    steps, triples = len(shards) // batch_size, shards.block * shards.window
    first_epoch, skipped = first_step // steps, first_step % steps * batch_size
    order, within = stream(seed, "order of blocks"), stream(seed, "order in windows")
    full, rest = divmod(len(shards), shards.block)  # blocks, and the triples of one that is not full
    every = full + (rest > 0)
    windows = -(-every // shards.window)
    fewer_blocks, fewer = windows * shards.window - every, windows * triples - len(shards)  # in the first window
    paths = tf.constant(shards.paths())
    firsts = tf.constant(np.cumsum([0, *shards.counts[:-1]]) // shards.block, tf.int64)  # first block of each file

    def block(number: tf.Tensor) -> tf.data.Dataset:
        file = tf.searchsorted(firsts, [number], "right")[0] - 1
        start = (number - firsts[file]) * shards.block
        # A file has to be a multiple of the record, the whole block, but for a header and a footer.
        whole = number < full
        sizes = (tf.where(whole, shards.block, rest), start, tf.where(whole & (file == len(shards.files) - 1), rest, 0))
        record, header, footer = (tf.cast(size, tf.int64) * RECORD for size in sizes)
        buffer = shards.block * RECORD
        return tf.data.FixedLengthRecordDataset(paths[file], record, header, footer, buffer).take(1)

    def shuffled(epoch: tf.Tensor, number: tf.Tensor, skip: tf.Tensor) -> tf.Tensor:
        end = (number + 1) * shards.window - fewer_blocks
        places = tf.range(tf.maximum(end - shards.window, 0), end) - (every - full)  # -1 is the block that is not full
        seed_of_epoch, last = tf.random.fold_in(order, epoch), max(0, full - 1)
        chosen = tf.random.experimental.index_shuffle(tf.maximum(places, 0), seed_of_epoch, last)
        chosen = tf.data.Dataset.from_tensor_slices(tf.where(places < 0, tf.cast(full, tf.int64), chosen))
        read = chosen.interleave(block, BLOCKS_AT_ONCE, 1, BLOCKS_AT_ONCE, deterministic=True).batch(shards.window)
        rows = tf.reshape(tf.io.decode_raw(tf.strings.reduce_join(read.get_single_element()), tf.int32), [-1, 3])
        seed_of_window = tf.random.fold_in(tf.random.fold_in(within, epoch), number)
        return tf.random.experimental.stateless_shuffle(rows, seed_of_window)[skip:]

    def batches(epoch: tf.Tensor) -> tf.data.Dataset:
        done = tf.where(epoch == first_epoch, tf.cast(skipped, tf.int64), 0)
        first = (done + fewer) // triples
        skip = done - tf.maximum(first * triples - fewer, 0)
        numbers = tf.data.Dataset.range(first, windows)
        rows = numbers.map(lambda i: shuffled(epoch, i, tf.where(i == first, skip, 0)))
        return rows.prefetch(1).rebatch(batch_size, drop_remainder=True)

    return tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max).flat_map(batches)


def _endless(batch: Callable, first_step: int, triples: tf.data.Dataset | None = None) -> tf.data.Dataset:
    """Returns the batches of all steps, of the number of the step and, if they are a stream, of its triples."""
    check_at_least(0, first_step=0 if tf.is_tensor(first_step) else first_step)
    steps = tf.data.Dataset.range(tf.cast(first_step, tf.int64), np.iinfo(np.int64).max)
    if triples is not None:
        steps = tf.data.Dataset.zip(steps, triples)
    batch = tf.autograph.experimental.do_not_convert(batch)  # there is nothing to convert, which would take time
    workers = min(8, max(2, (os.cpu_count() or 1) // 2))  # each keeps a batch in memory
    batches = steps.map(batch, num_parallel_calls=workers, deterministic=True).prefetch(2)
    # Nothing is left to tune, and the sleeping tuner would delay the end of training by seconds (TensorFlow 2.21).
    options = tf.data.Options()
    options.autotune.enabled = False
    # TensorFlow takes the reading of shards for state that a checkpoint cannot hold. The only state is the step.
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    # TensorFlow does not know that a stream of triples has no end.
    endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    return batches.with_options(options).apply(endless)
