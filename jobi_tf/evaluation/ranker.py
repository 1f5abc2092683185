"""Exact ranks of true answers among all entities, one matrix product a block of queries."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from jobi_tf.data.occurrences import KnownAnswers, column
from jobi_tf.errors import JobiError
from jobi_tf.evaluation.ranks import Ranks
from jobi_tf.models.jobi import JoBi

MEMORY_BUDGET = 512 * 2**20
# Scores of this size are still quick to read again, and their memory is reused from block to block.
HANDY_BYTES = 32 * 2**20


class Ranker:
    """Ranks the true answers of triples among all entities, on either side.

    Under a `tf.distribute` strategy, built inside its scope, every device takes a block of queries at a time.

    Args:
        model: the model whose triple head scores.
        known: answers that are left out as candidates, but for the one that is ranked; None leaves out none (raw).
        memory_budget: bytes that the scores of one block may take on a device; one query always fits.

    Example:
        >>> Ranker(model, known).rank(graph.test, TAIL).ranks("realistic")
    """

    def __init__(self, model: JoBi, known: KnownAnswers | None, memory_budget: int = MEMORY_BUDGET):
        self.model = model
        self.known = known
        bytes_a_query = 4 * model.num_entities
        handy = int(np.clip(HANDY_BYTES // bytes_a_query, 64, 1024))
        self.block = max(1, min(handy, memory_budget // bytes_a_query))
        self._strategy = tf.distribute.get_strategy()
        self._count = tf.function(self._distributed_count, reduce_retracing=True)

    def rank(self, triples: np.ndarray, side: int, progress: Callable[[int], None] | None = None) -> Ranks:
        """Ranks the entities that stand on `side` of `triples`.

        Args:
            triples: int [N, 3].
            side: `HEAD` or `TAIL`.
            progress: called with the number of triples that were ranked since its last call.

        Returns:
            N ranks.

        Raises:
            JobiError: a score is not finite.
        """
        parts: list[Ranks] = []
        replicas = self._strategy.num_replicas_in_sync
        for start in range(0, len(triples), self.block * replicas):
            blocks = [triples[start + i * self.block :][: self.block] for i in range(replicas)]
            parts += self._rank_blocks(blocks, side)
            if progress:
                progress(sum(map(len, blocks)))
        return Ranks.concatenate(parts) if parts else Ranks(np.empty(0, np.int64), np.empty(0, np.int64))

    def _rank_blocks(self, blocks: list[np.ndarray], side: int) -> list[Ranks]:
        arguments = [(tf.constant(block, tf.int32), *self._filter(block, side)) for block in blocks]
        distribute = self._strategy.experimental_distribute_values_from_function
        per_replica = [distribute(lambda c, i=i: arguments[c.replica_id_in_sync_group][i]) for i in range(3)]
        counts, finite = self._count(*per_replica, side)
        local = self._strategy.experimental_local_results
        if not all(bool(x) for x in local(finite)):
            raise JobiError("expected finite scores, got NaN or infinity: the model's weights are broken")
        return [Ranks(greater, equal) for greater, equal in (x.numpy().astype(np.int64) for x in local(counts))]

    def _filter(self, triples: np.ndarray, side: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the candidates to leave out: rows of `triples` int32 [M] and entities int32 [M]."""
        if self.known is None:
            rows, entities = np.empty(0, np.int32), np.empty(0, np.int32)
        else:
            rows, entities = self.known.lookup(side, triples)
            others = entities != triples[rows, column(side)]
            rows, entities = rows[others], entities[others]
        return tf.constant(rows, tf.int32), tf.constant(entities, tf.int32)

    def _distributed_count(self, triples: tf.Tensor, rows: tf.Tensor, entities: tf.Tensor, side: int) -> tf.Tensor:
        return self._strategy.run(self._count_block, (triples, rows, entities, side))

    def _count_block(
        self, triples: tf.Tensor, rows: tf.Tensor, entities: tf.Tensor, side: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Counts better and equal candidates.

        Known answers are counted with all others and then taken off: scores are never written over. The true answer's
        score comes from the same product as the candidates', so that they are rounded alike, but for the last columns
        of a product, which other instructions may compute.
        """
        scores = self.model.scores(triples, side)  # [b, E]
        true = tf.gather(scores, triples[:, column(side)], batch_dims=1)  # [b]
        known, target = tf.gather_nd(scores, tf.stack([rows, entities], 1)), tf.gather(true, rows)  # [M]
        counts = []
        for compare in (tf.greater, tf.equal):
            every = tf.reduce_sum(tf.cast(compare(scores, true[:, None]), tf.int32), 1)
            taken_off = tf.math.unsorted_segment_sum(tf.cast(compare(known, target), tf.int32), rows, tf.size(true))
            counts.append(every - taken_off)
        finite = tf.reduce_all(tf.math.is_finite(tf.reduce_sum(scores, 1)))
        return tf.stack([counts[0], counts[1] - 1]), finite
