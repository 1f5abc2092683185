"""Biased corruption of training triples, in graph and with stateless seeds."""

import numpy as np
import tensorflow as tf

from jobi_tf.data.occurrences import HEAD, SIDES, TAIL, Occurrences, column, triple_keys
from jobi_tf.errors import UsageError

IGNORED = -1
LARGEST_BITMAP = 2**28  # bits: 32 MB; a power of two


def half_of(negatives: int) -> int:
    """Returns how many of the negatives of a triple are of each side.

    Raises:
        UsageError: `negatives` is odd.
    """
    if negatives % 2:
        raise UsageError(f"expected an even number of negatives, half of them for each side, got {negatives}")
    return negatives // 2


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
    """A set of keys to look up in graph.

    Holds one bit for each possible key; where those are too many, one for each hash of a key, and looks up by bisection
    what the hashes let through.

    Args:
        keys: int64 [K], ascending, distinct.
        size: the keys lie in [0, size).
    """

    def __init__(self, keys: np.ndarray, size: int):
        self._exact = size <= LARGEST_BITMAP
        # Constants made here, outside any graph, are captured by it instead of being copied into its definition.
        self._keys = None if self._exact or not len(keys) else tf.constant(keys, tf.int64)
        places = keys if self._exact else _hash(tf.constant(keys)).numpy()
        bits = np.zeros(-(-min(size, LARGEST_BITMAP) // 8), np.uint8)
        np.bitwise_or.at(bits, places >> 3, np.left_shift(1, places & 7).astype(np.uint8))
        self._bits = tf.constant(bits)

    def __call__(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns int8, of the shape of `keys` (int64): 1 for a key of the set, else 0."""
        places = keys if self._exact else _hash(keys)
        byte = tf.gather(self._bits, tf.bitwise.right_shift(places, 3))
        bit = tf.bitwise.right_shift(byte, tf.cast(tf.bitwise.bitwise_and(places, 7), tf.uint8))
        found = tf.cast(tf.bitwise.bitwise_and(bit, 1), tf.int8)
        if self._keys is None:
            return found
        maybe = tf.where(found)
        verified = tf.cast(contains(self._keys, tf.gather_nd(keys, maybe)), tf.int8)
        return tf.scatter_nd(maybe, verified, tf.shape(found, tf.int64))


def _hash(keys: tf.Tensor) -> tf.Tensor:
    """Multiplies by 2⁶⁴ over the golden ratio and keeps the highest bits: keys side by side end up far apart."""
    product = keys * tf.constant(-7046029254386353131, tf.int64)
    highest = tf.bitwise.right_shift(product, 64 - LARGEST_BITMAP.bit_length() + 1)
    return tf.bitwise.bitwise_and(highest, LARGEST_BITMAP - 1)


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
        self._known = None
        if train is not None:
            keys = np.unique(self._triple_keys(*train.T.astype(np.int64)))
            self._known = Membership(keys, self.num_entities**2 * self.num_relations)

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
        row = self._row(triples[:, 1:2], tails)
        candidates = self._draw(row, draws)
        triple_labels = self._triple_labels(triples, candidates, tails)
        return candidates, head_corruptions, triple_labels, self._pair_labels(row, candidates)

    def corrupt_by_side(self, triples: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Draws as many negatives of `triples` on one side as on the other.

        Args:
            triples: int32 [B, 3].
            seed: int [2]; equal seeds give equal draws.

        Returns:
            candidates: int32 [B, 2, n / 2]; the first ones of a triple replace its head, the second ones its tail.
            triple_labels: int8 [B, 2, n / 2], as of `corrupt`.
            pair_labels: int8 [B, 2, n / 2], as of `corrupt`.

        Raises:
            UsageError: n is odd.
        """
        half = half_of(self.negatives)
        triples = triples[:, None]  # [B, 1, 3]
        tails = tf.broadcast_to([[False], [True]], [2, half])
        row = self._row(triples[..., 1:2], tails)  # [B, 2, n / 2]
        candidates = self._draw(row, seed)
        return candidates, self._triple_labels(triples, candidates, tails), self._pair_labels(row, candidates)

    def corrupt_shared(
        self, triples: tf.Tensor, seed: tf.Tensor, by_side: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Draws negatives that the triples of a chunk share.

        Half of them replace heads. A biased one is drawn for the relation of any triple of the chunk.

        Args:
            triples: C chunks of c triples, int32 [C, c, 3].
            seed: int [2]; equal seeds give equal draws.
            by_side: give what is of heads and of tails by itself.

        Returns:
            candidates: int32 [C, n]; the first n // 2 replace heads, the others tails. By side [C, 2, n / 2].
            triple_labels: int8 [C, c, n] or [C, c, 2, n / 2], as of `corrupt`.
            pair_labels: the same, as of `corrupt`, of each candidate with each triple's relation.

        Raises:
            UsageError: n is odd, by side.
        """
        shape = tf.stack([tf.shape(triples)[0], self.negatives])
        choices, draws = tf.unstack(tf.random.split(seed, 2))
        tails = tf.range(self.negatives) >= self.negatives // 2  # [n]
        chosen = tf.random.stateless_uniform(shape, choices, 0, tf.shape(triples)[1], tf.int32)
        candidates = self._draw(self._row(tf.gather(triples[:, :, 1], chosen, batch_dims=1), tails), draws)
        row = self._row(triples[:, :, 1:2], tails)  # [C, c, n]
        everywhere = tf.broadcast_to(candidates[:, None], tf.shape(row))
        found = candidates, self._triple_labels(triples, everywhere, tails), self._pair_labels(row, everywhere)
        if not by_side:
            return found
        sides = [2, half_of(self.negatives)]
        return tuple(tf.reshape(x, tf.concat([tf.shape(x)[:-1], sides], 0)) for x in found)

    def _row(self, relation: tf.Tensor, tails: tf.Tensor) -> tf.Tensor:
        """Returns the row of `Occurrences.seen`, int64, of relations on a side: the tail's where `tails`."""
        return tf.cast(relation, tf.int64) + tf.where(tails, tf.constant(self.num_relations, tf.int64), 0)

    def _draw(self, row: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns an entity for each row of `Occurrences.seen`: with probability p one of that row, else any."""
        # 63 random bits a candidate: 32 for its place in the list it is drawn from, 31 for whether the draw is biased.
        bits = tf.random.stateless_uniform(tf.shape(row), seed, None, None, tf.int64)
        fraction = tf.bitwise.bitwise_and(bits, 0xFFFFFFFF)
        biased = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, 32), 0x7FFFFFFF) < round(self.p * 2**31)
        start, stop = tf.gather(self._offsets, row), tf.gather(self._offsets, row + 1)
        seen = tf.gather(self._seen, start + tf.bitwise.right_shift(fraction * (stop - start), 32))
        drawn = tf.cast(tf.bitwise.right_shift(fraction * self.num_entities, 32), tf.int32)
        return tf.where(biased, seen, drawn)

    def _pair_labels(self, row: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
        return self._pairs(row * self.num_entities + tf.cast(candidates, tf.int64))

    def _triple_labels(self, triples: tf.Tensor, candidates: tf.Tensor, tails: tf.Tensor) -> tf.Tensor:
        if self._known is None:
            return tf.zeros(tf.shape(candidates), tf.int8)
        candidates = tf.cast(candidates, tf.int64)
        head, relation, tail = (tf.cast(triples[..., i : i + 1], tf.int64) for i in (column(HEAD), 1, column(TAIL)))
        keys = self._triple_keys(tf.where(tails, head, candidates), relation, tf.where(tails, candidates, tail))
        return IGNORED * self._known(keys)

    def _triple_keys(self, head, relation, tail):  # type: ignore[no-untyped-def]  # NumPy arrays or tensors, int64
        return triple_keys(head, relation, tail, self.num_entities, self.num_relations)
