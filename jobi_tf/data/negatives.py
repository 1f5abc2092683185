"""Biased corruption of training triples, in graph and with stateless seeds."""

import numpy as np
import tensorflow as tf

from jobi_tf.data.occurrences import SIDES, TAIL, Occurrences, column, triple_keys
from jobi_tf.errors import UsageError

IGNORED = -1
LARGEST_BITMAP = 2**28  # bits: 32 MB


def contains(sorted_keys: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Tells which `keys` occur in `sorted_keys`, by bisection.

    Args:
        sorted_keys: int64 [K], ascending, not empty.
        keys: int64, of any shape.

    Returns:
        bool, of the shape of `keys`.
    """
    place = tf.searchsorted(sorted_keys, tf.reshape(keys, [-1]))
    found = tf.gather(sorted_keys, tf.minimum(place, tf.size(sorted_keys) - 1))
    return tf.reshape(found, tf.shape(keys)) == keys


class Membership:
    """A set of keys to look up in graph: one bit for each possible key where that is small, else by bisection.

    Args:
        keys: int64 [K], ascending, distinct.
        size: the keys lie in [0, size).
    """

    def __init__(self, keys: np.ndarray, size: int):
        # Constants made here, outside any graph, are captured by it instead of being copied into its definition.
        self._bits = size <= LARGEST_BITMAP
        if self._bits:
            table = np.zeros(-(-size // 8), np.uint8)
            np.bitwise_or.at(table, keys >> 3, np.left_shift(1, keys & 7).astype(np.uint8))
            self._table = tf.constant(table)
        else:
            self._table = tf.constant(keys, tf.int64)

    def __call__(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns int8, of the shape of `keys` (int64): 1 for a key of the set, else 0."""
        if not self._bits:
            return tf.cast(contains(self._table, keys), tf.int8)
        byte = tf.gather(self._table, tf.bitwise.right_shift(keys, 3))
        bit = tf.bitwise.right_shift(byte, tf.cast(tf.bitwise.bitwise_and(keys, 7), tf.uint8))
        return tf.cast(tf.bitwise.bitwise_and(bit, 1), tf.int8)


class NegativeSampler:
    """Makes the negatives of a batch of training triples, with the labels of both heads.

    For each negative a fair coin chooses the side to corrupt. With probability `p` the new entity is drawn uniformly
    from the distinct entities seen on that side of the relation in training, else uniformly from all entities
    (Balkır et al. 2019, section 3.2). `p = 1` is type-constrained sampling.

    Args:
        occurrences: the entities seen with each relation in training.
        negatives: negatives a triple, n.
        p: probability of a biased draw.
        train: training triples, int [N, 3], if negatives that are in fact training triples shall be ignored by
            the triple head; None keeps them, as the paper does.

    Raises:
        UsageError: `p` lies outside [0, 1], or `negatives` is below 1.
    """

    def __init__(self, occurrences: Occurrences, negatives: int, p: float, train: np.ndarray | None = None):
        if not 0 <= p <= 1:
            raise UsageError(f"expected a probability p in [0, 1], got {p}")
        if negatives < 1:
            raise UsageError(f"expected at least 1 negative a triple, got {negatives}")
        self.negatives = negatives
        self.p = p
        self.num_entities = occurrences.num_entities
        self.num_relations = occurrences.num_relations
        self._offsets = tf.constant(occurrences.seen.offsets, tf.int64)
        self._seen = tf.constant(occurrences.seen.entities, tf.int32)
        self._pairs = Membership(occurrences.keys(), len(SIDES) * self.num_relations * self.num_entities)
        self._known = None if train is None else tf.constant(np.sort(self._triple_keys(*train.T.astype(np.int64))))

    def corrupt(self, triples: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Draws the negatives of `triples`.

        Args:
            triples: int32 [B, 3].
            seed: int [2]; equal seeds give equal draws.

        Returns:
            candidates: int32 [B, n], the entities put in.
            head_corruptions: int32 [B]; the first that many candidates of a row replace its head, the others its tail.
            triple_labels: int8 [B, n], 0 for a negative, -1 (`IGNORED`) for one that is a known training triple.
            pair_labels: int8 [B, n], 1 where the candidate was seen on its side of the relation in training.
        """
        shape = (tf.shape(triples)[0], self.negatives)
        # A row's coins matter only through their sum, since its candidates are drawn alike: one draw replaces n.
        coins, draws = tf.unstack(tf.random.split(seed, 2))
        counts = tf.fill(shape[:1], float(self.negatives))
        head_corruptions = tf.random.stateless_binomial(shape[:1], coins, counts, 0.5, tf.int32)
        tails = tf.range(self.negatives) >= head_corruptions[:, None]  # [B, n], where the tail is replaced
        # 63 random bits a candidate: 32 for its place in the list it is drawn from, 31 for whether the draw is biased.
        bits = tf.random.stateless_uniform(shape, draws, None, None, tf.int64)
        fraction = tf.bitwise.bitwise_and(bits, 0xFFFFFFFF)
        biased = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, 32), 0x7FFFFFFF) < round(self.p * 2**31)

        rows = tf.cast(triples[:, 1:2], tf.int64) + self.num_relations * tf.range(len(SIDES), dtype=tf.int64)  # [B, 2]
        starts, stops = tf.gather(self._offsets, rows), tf.gather(self._offsets, rows + 1)
        row, start, count = (tf.where(tails, x[:, 1:], x[:, :1]) for x in (rows, starts, stops - starts))  # [B, n]
        seen = tf.gather(self._seen, start + tf.bitwise.right_shift(fraction * count, 32))
        drawn = tf.cast(tf.bitwise.right_shift(fraction * self.num_entities, 32), tf.int32)
        candidates = tf.where(biased, seen, drawn)
        pair_labels = self._pairs(row * self.num_entities + tf.cast(candidates, tf.int64))
        return candidates, head_corruptions, self._triple_labels(triples, candidates, tails), pair_labels

    def corrupt_shared(self, triples: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Draws negatives that the triples of a chunk share.

        Args:
            triples: C chunks of c triples, int32 [C, c, 3].
            seed: int [2]; equal seeds give equal draws.

        Returns:
            candidates: int32 [C, n]; the first n // 2 replace heads, the others tails. A biased one is drawn for the
                relation of some triple of the chunk.
            triple_labels: int8 [C, c, n], as of `corrupt`.
            pair_labels: int8 [C, c, n].
        """
        chunks, size = tf.unstack(tf.shape(triples)[:2])
        choices, draws = tf.unstack(tf.random.split(seed, 2))
        tails = tf.range(self.negatives) >= self.negatives // 2  # [n]
        chosen = tf.random.stateless_uniform([chunks, self.negatives], choices, 0, size, tf.int32)
        relation = tf.cast(tf.gather(triples[:, :, 1], chosen, batch_dims=1), tf.int64)  # [C, n]
        offset = tf.where(tails, tf.constant(self.num_relations, tf.int64), 0)
        candidates = self._draw(relation + offset, draws)
        row = tf.cast(triples[:, :, 1:2], tf.int64) + offset  # [C, c, n]
        everywhere = tf.broadcast_to(candidates[:, None, :], tf.shape(row))
        pair_labels = self._pairs(row * self.num_entities + tf.cast(everywhere, tf.int64))
        flat = [tf.reshape(x, [chunks * size, -1]) for x in (triples, everywhere)]
        triple_labels = tf.reshape(self._triple_labels(*flat, tails[None]), tf.shape(row))
        return candidates, triple_labels, pair_labels

    def _draw(self, row: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        bits = tf.random.stateless_uniform(tf.shape(row), seed, None, None, tf.int64)
        fraction = tf.bitwise.bitwise_and(bits, 0xFFFFFFFF)
        biased = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, 32), 0x7FFFFFFF) < round(self.p * 2**31)
        start, stop = tf.gather(self._offsets, row), tf.gather(self._offsets, row + 1)
        seen = tf.gather(self._seen, start + tf.bitwise.right_shift(fraction * (stop - start), 32))
        drawn = tf.cast(tf.bitwise.right_shift(fraction * self.num_entities, 32), tf.int32)
        return tf.where(biased, seen, drawn)

    def _triple_labels(self, triples: tf.Tensor, candidates: tf.Tensor, tails: tf.Tensor) -> tf.Tensor:
        if self._known is None:
            return tf.zeros(tf.shape(candidates), tf.int8)
        candidates = tf.cast(candidates, tf.int64)
        head, relation, tail = (tf.cast(triples[:, i : i + 1], tf.int64) for i in (column(0), 1, column(TAIL)))
        keys = self._triple_keys(tf.where(tails, head, candidates), relation, tf.where(tails, candidates, tail))
        return tf.where(contains(self._known, keys), tf.constant(IGNORED, tf.int8), tf.constant(0, tf.int8))

    def _triple_keys(self, head, relation, tail):  # type: ignore[no-untyped-def]  # NumPy arrays or tensors, int64
        return triple_keys(head, relation, tail, self.num_entities, self.num_relations)
