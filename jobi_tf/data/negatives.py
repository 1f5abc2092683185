"""Biased corruption of training triples, in TensorFlow graphs and with stateless seeds."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from jobi_tf.data.occurrences import HEAD, SIDES, TAIL, Occurrences, column, distinct, triple_keys
from jobi_tf.errors import UsageError, check_at_least, check_numbers

IGNORED = -1
LARGEST_BITMAP = 2**28  # bits: 32 MB; a power of two


def contains(sorted_keys: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Returns which `keys`, int64 of any shape, occur in `sorted_keys`, int64 [K] ascending and not empty: bool."""
    place = tf.searchsorted(sorted_keys, tf.reshape(keys, [-1]))
    found = tf.gather(sorted_keys, tf.minimum(place, tf.size(sorted_keys) - 1))
    return tf.reshape(found, tf.shape(keys)) == keys


class Membership:
    """A set of keys, int64 [K] ascending and distinct, in [0, size), for lookup in a TensorFlow graph.

    Holds one bit for each possible key; if those are too many, one for each hash of a key, and looks up by bisection
    the keys whose hash is present.
    """

    def __init__(self, keys: np.ndarray, size: int):
        self._exact = size <= LARGEST_BITMAP
        # Constants made here, outside any graph, are captured by it instead of being copied into its definition.
        self._keys = None if self._exact or not len(keys) else tf.constant(keys, tf.int64)
        with tf.init_scope():  # this may run in a graph: workers of parameter servers make their batches in one
            places = keys if self._exact else _hash(tf.constant(keys)).numpy()
        bits = np.zeros(-(-min(size, LARGEST_BITMAP) // 8), np.uint8)
        np.bitwise_or.at(bits, places >> 3, np.left_shift(1, places & 7).astype(np.uint8))
        self._bits = tf.constant(bits)

    def __call__(self, keys: tf.Tensor, certain: tf.Tensor) -> tf.Tensor:
        """Returns int8, of the shape of `keys` (int64): 1 for a key of the set, else 0.

        `certain`, bool of the same shape, are keys that are known to be in the set, which need no bisection.
        """
        places = keys if self._exact else _hash(keys)
        byte = tf.gather(self._bits, tf.bitwise.right_shift(places, 3))
        bit = tf.bitwise.right_shift(byte, tf.cast(tf.bitwise.bitwise_and(places, 7), tf.uint8))
        found = tf.cast(tf.bitwise.bitwise_and(bit, 1), tf.int8)
        if self._keys is None:
            return found
        candidates = tf.where((found > 0) & ~certain)
        verified = tf.cast(contains(self._keys, tf.gather_nd(keys, candidates)), tf.int8)
        return tf.tensor_scatter_nd_update(tf.cast(certain, tf.int8), candidates, verified)


def _hash(keys: tf.Tensor) -> tf.Tensor:
    """Multiplies by 2⁶⁴ over the golden ratio and keeps the highest bits, which spreads adjacent keys."""
    product = keys * tf.constant(-7046029254386353131, tf.int64)
    highest = tf.bitwise.right_shift(product, 64 - LARGEST_BITMAP.bit_length() + 1)
    return tf.bitwise.bitwise_and(highest, LARGEST_BITMAP - 1)


def can_filter(num_entities: int, num_relations: int) -> bool:
    """Returns whether the keys of all possible triples fit 64 bits, so that known ones can be found among negatives."""
    return num_entities**2 * num_relations <= 2**63


@dataclass(frozen=True)
class Part:
    """Part number `index` of `count` equal parts of a batch."""

    index: int
    count: int

    def __post_init__(self) -> None:
        check_at_least(0, index=self.index)
        check_at_least(self.index + 1, count=self.count)

    def of(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns the rows of this part: [B, ...] → [B / count, ...]."""
        if rows.shape[0] and rows.shape[0] % self.count:
            raise UsageError(f"expected batches that {self.count} parts share evenly, got {rows.shape[0]} rows")
        if self.count == 1:
            return rows
        size = (rows.shape[0] or tf.shape(rows)[0]) // self.count
        return rows[self.index * size : (self.index + 1) * size]


WHOLE = Part(0, 1)


class Negatives(NamedTuple):
    """The negatives of a batch, in one list for both sides, or by side.

    Labels are int8 [B, n] or [B, 2, n / 2], of chunks [C, c, n] or [C, c, 2, n / 2].
    """

    entities: tf.Tensor  # int32 [B, n], by side [B, 2, n / 2]; of chunks [C, n], by side [C, 2, n / 2]
    head_counts: tf.Tensor  # of each row, from the left, that replace the head and not the tail, int32 [B]; or n // 2
    triple_labels: tf.Tensor  # 0 for a negative, -1 (`IGNORED`) for a known training triple
    pair_labels: tf.Tensor  # 1 where the entity was seen on its side of the triple's relation in training


class NegativeSampler:
    """Draws the negatives of a batch of training triples, with the labels of both heads.

    For each negative a fair coin chooses the side to corrupt. With probability `p` the new entity is drawn uniformly
    from the distinct entities seen on that side of the relation in training, else uniformly from all entities (Balkır
    et al. 2019, section 3.2); where none was seen, always from all. `p = 1` is type-constrained sampling.

    Args:
        occurrences: the entities seen with each relation in training.
        negatives: number of negatives of a triple, n.
        p: probability of a biased draw.
        train: training triples, int [N, 3], if the triple head is to ignore negatives that are among them; None keeps
            them, as the paper does.

    Raises:
        UsageError: `p` is not in [0, 1], `negatives` is below 1, or the keys of triples would exceed 64 bits.
    """

    def __init__(self, occurrences: Occurrences, negatives: int, p: float, train: np.ndarray | None = None):
        check_numbers("[0, 1]", p=p)
        check_at_least(1, negatives=negatives)
        self.negatives = int(negatives)
        self.p = p
        self.num_entities = occurrences.num_entities
        self.num_relations = occurrences.num_relations
        self._offsets = tf.constant(occurrences.seen.offsets, tf.int64)
        self._seen = tf.constant(occurrences.seen.entities, tf.int32)
        self._pairs = Membership(occurrences.keys(), len(SIDES) * self.num_relations * self.num_entities)
        self._known = None
        if train is not None:
            if not can_filter(self.num_entities, self.num_relations):
                sizes = f"{self.num_entities:,} entities and {self.num_relations:,} relations"
                raise UsageError(f"expected entities² · relations to be at most 2^63 to filter negatives, got {sizes}")
            size = self.num_entities**2 * self.num_relations
            self._known = Membership(distinct(self._triple_keys(*np.asarray(train, np.int64).T)), size)

    def draw(
        self, triples: tf.Tensor, seed: tf.Tensor, shared: bool = False, by_side: bool = False, part: Part = WHOLE
    ) -> Negatives:
        """Draws the negatives of triples, or those that the triples of each chunk share.

        Shared negatives replace heads and tails in equal numbers, and a biased one is drawn for the relation of a
        random triple of the chunk.

        Args:
            triples: int32 [B, 3]; C chunks of c triples, int32 [C, c, 3], if `shared`.
            seed: int [2]; equal seeds give equal draws.
            shared, by_side: whether chunks share negatives, and whether these come in a list of n / 2 for each side.
            part: of which part of a batch these are the triples; they get the negatives that they have in the batch.
        """
        shape = tf.stack([tf.shape(triples)[0] * part.count, self.negatives])  # of the whole batch
        choices, draws = tf.unstack(tf.random.split(seed, 2))
        if shared or by_side:
            head_counts = tf.fill(tf.shape(triples)[:1], self.negatives // 2)
        else:
            # Only the sum of a row's coins matters, since its negatives are drawn alike: one draw replaces n.
            counts = tf.fill(shape[:1], float(self.negatives))
            head_counts = part.of(tf.random.stateless_binomial(shape[:1], choices, counts, 0.5, tf.int32))
        at_tail = tf.range(self.negatives) >= head_counts[:, None]  # [B or C, n]
        bits = part.of(tf.random.stateless_uniform(shape, draws, None, None, tf.int64))
        if shared:
            chosen = part.of(tf.random.stateless_uniform(shape, choices, 0, tf.shape(triples)[1], tf.int32))
            drawn_for = self._row(tf.gather(triples[:, :, 1], chosen, batch_dims=1), at_tail)
            entities, seen = self._draw(drawn_for, bits)
            at_tail = at_tail[:, None]  # each triple of a chunk with each of its negatives: [C, c, n]
            row = self._row(triples[:, :, 1:2], at_tail)
            placed = tf.broadcast_to(entities[:, None], tf.shape(row))
            seen = seen[:, None] & (row == drawn_for[:, None])
        else:
            row = self._row(triples[:, 1:2], at_tail)
            entities, seen = self._draw(row, bits)
            placed = entities
        pairs = row * self.num_entities + tf.cast(placed, tf.int64)
        labels = [self._triple_labels(triples, placed, at_tail), self._pairs(pairs, seen)]
        if by_side:
            entities, *labels = (
                tf.reshape(x, tf.concat([tf.shape(x)[:-1], [len(SIDES), self.negatives // 2]], 0))
                for x in (entities, *labels)
            )
        return Negatives(entities, head_counts, *labels)

    def _row(self, relation: tf.Tensor, at_tail: tf.Tensor) -> tf.Tensor:
        """Returns the row of `Occurrences.seen`, int64, of relations on a side."""
        return tf.cast(relation, tf.int64) + tf.where(at_tail, tf.constant(self.num_relations, tf.int64), 0)

    def _draw(self, row: tf.Tensor, bits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws an entity for each row of `Occurrences.seen`: with probability p one of that row, else any.

        Returns the entities, int32, and which of them were drawn from the row, bool.

        Of the random bits of an entity, 32 are for its place in the list it is drawn from, and 31 for whether the draw
        is biased.
        """
        fraction = tf.bitwise.bitwise_and(bits, 0xFFFFFFFF)
        biased = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, 32), 0x7FFFFFFF) < round(self.p * 2**31)
        drawn = tf.cast(tf.bitwise.right_shift(fraction * self.num_entities, 32), tf.int32)
        if not self._seen.shape[0]:
            return drawn, tf.zeros_like(drawn, tf.bool)
        start, stop = tf.gather(self._offsets, row), tf.gather(self._offsets, row + 1)
        place = start + tf.bitwise.right_shift(fraction * (stop - start), 32)
        seen = tf.gather(self._seen, tf.minimum(place, self._seen.shape[0] - 1))
        biased &= stop > start
        return tf.where(biased, seen, drawn), biased

    def _triple_labels(self, triples: tf.Tensor, entities: tf.Tensor, at_tail: tf.Tensor) -> tf.Tensor:
        if self._known is None:
            return tf.zeros(tf.shape(entities), tf.int8)
        entities = tf.cast(entities, tf.int64)
        head, relation, tail = (tf.cast(triples[..., i : i + 1], tf.int64) for i in (column(HEAD), 1, column(TAIL)))
        keys = self._triple_keys(tf.where(at_tail, head, entities), relation, tf.where(at_tail, entities, tail))
        return IGNORED * self._known(keys, tf.zeros_like(keys, tf.bool))

    def _triple_keys(self, head, relation, tail):  # type: ignore[no-untyped-def]  # NumPy arrays or tensors, int64
        return triple_keys(head, relation, tail, self.num_entities, self.num_relations)
