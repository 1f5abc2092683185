"""Exact ranks of true answers among all entities, one matrix product for each block of queries."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from jobi_tf.compiled import compiled, on_gpu
from jobi_tf.data.graph import Graph, check_is_graph
from jobi_tf.data.occurrences import HEAD, TAIL, KnownAnswers, column
from jobi_tf.errors import JobiError, UsageError
from jobi_tf.evaluation.ranks import Ranks
from jobi_tf.models.jobi import JoBi
from jobi_tf.workers import has_servers, local_replicas, parts_of, read_in_blocks, sum_over_workers

MEMORY_BUDGET = 2**30
# Larger blocks of scores take more memory and are hardly faster.
FAST_BYTES = 96 * 2**20
LEAST_QUERIES, MOST_QUERIES = 128, 1536  # of a block that fits into memory: each block reads all candidates
PARTS = 8  # of the scores of a query, which are compared side by side
WORTH_COMPILING = 2**12  # candidates


class RankedModel(Protocol):
    """What scores all entities: a `JoBi`, a `RuleModel` or the model of a `Pool`."""

    num_entities: int
    num_relations: int

    def candidates(self) -> Any:
        """Returns what the scores of many blocks have in common: a tensor, or several."""

    def scores(self, triples: tf.Tensor, side: int, candidates: Any = None) -> tf.Tensor:
        """Returns the scores of every entity on one side: int [N, 3] → float32 [N, E]."""


def check_graph(model: RankedModel, graph: Graph) -> None:
    """Raises a `UsageError` unless this is a model that was made for a graph of this size."""
    check_is_graph(graph)
    if not hasattr(model, "num_entities"):
        raise UsageError(f"expected a JoBi model, got {type(model).__name__}")
    sizes, expected = (graph.num_entities, graph.num_relations), (model.num_entities, model.num_relations)
    if sizes != expected:
        wanted = f"{expected[0]:,} entities and {expected[1]:,} relations"
        raise UsageError(f"expected the graph of the model, with {wanted}, got {graph}")


def check_finite(finite: Any) -> None:
    """Raises a `JobiError` unless all scores were finite."""
    if not finite:
        reason = "the weights of the model are not usable, as after training with too high a learning rate"
        raise JobiError(f"expected finite scores, got NaN or infinity: {reason}")


class Ranker:
    """Ranks the true answers of triples among all entities, on either side.

    Triples with the same query are ranked by the same scores. Under a `tf.distribute` strategy, created inside its
    scope, each device ranks a block at a time, and several workers, each of which has to call `rank`, get the ranks of
    all. Matrix products are in full float32, also on GPUs.

    Args:
        model: the model, of a JoBi its triple head.
        known: answers that are left out as candidates, except the one that is ranked; those of no splits for raw ranks.
        candidates: ids of the only candidates, int [C]; the true answer always is one. None: all entities.
        memory_budget: bytes for the scores of a block on a device; a single query is always ranked.

    Example:
        >>> Ranker(model, known).rank(graph.test, TAIL).ranks("realistic")
    """

    def __init__(
        self,
        model: RankedModel,
        known: KnownAnswers,
        candidates: np.ndarray | None = None,
        memory_budget: int = MEMORY_BUDGET,
    ):
        self.model = model
        self.known = known
        self._mask = None
        if candidates is not None:
            mask = np.zeros(model.num_entities, bool)
            mask[candidates] = True
            self._mask = tf.constant(mask)
        self.block = _block(model, model.num_entities, memory_budget)
        # Where a query has several triples, its scores are copied without known answers, and then for each triple.
        self._block_of_several = _block(model, model.num_entities, memory_budget, copies=2)
        self._strategy = tf.distribute.get_strategy()
        self._replicas = local_replicas(self._strategy)
        # Comparisons occupy one core. Meanwhile the products of another block use the others.
        room = memory_budget >= 2 * self._block_of_several * _bytes_per_query(model, model.num_entities, copies=2)
        self._at_once = 2 if room and self._strategy.num_replicas_in_sync == 1 and not on_gpu() else 1
        # `partial` makes a function for each model. TensorFlow would warn that a common one is traced too often.
        shared, run = tf.function(partial(model.candidates)), self._strategy.run
        # Outside a function the candidates can share the memory of the table.
        self._candidates = partial(run, shared) if len(self._replicas) > 1 else model.candidates
        options = {"reduce_retracing": True, "autograph": False}
        self._count = [tf.function(partial(self._distributed_count, side), **options) for side in (HEAD, TAIL)]

    def rank(self, triples: np.ndarray, side: int, progress: Callable[[int], None] | None = None) -> Ranks:
        """Returns the N ranks of the entities on `side` (`HEAD` or `TAIL`) of triples, int [N, 3].

        `progress` is called with the number of triples that were ranked since its last call.

        Raises:
            JobiError: a score is not finite.
        """
        relation, anchor = triples[:, 1].astype(np.int64), triples[:, column(1 - side)]
        keys = relation * self.model.num_entities + anchor  # by relation, as rules are looked up by relation
        _, first, query, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        order = np.lexsort((query, counts[query] > 1))  # by query, those with one triple first
        single = np.count_nonzero(counts[query] == 1)
        parts = (order[:single], self.block), (order[single:], self._block_of_several)
        blocks = [x[i : i + size] for x, size in parts for i in range(0, len(x), size)]
        blocks += [order[:0]] * (-len(blocks) % self._strategy.num_replicas_in_sync)
        ranks, finite = np.zeros((2, len(triples)), np.int64), True
        replicas, own = self._strategy.num_replicas_in_sync, slice(self._replicas[0], self._replicas[-1] + 1)
        groups = [blocks[start : start + replicas] for start in range(0, len(blocks), replicas)]

        queries = triples[first]

        def count(each: list[np.ndarray]) -> list[tuple[np.ndarray, bool]]:
            arguments = [self._arguments(triples, x, queries, query[x], side) for x in each[own]]
            return self._counts(arguments, candidates, side)

        with full_float32():
            candidates = self._candidates() if len(triples) else None
            if len(triples) and replicas == 1:
                self._trace(candidates, side)
            for each, counts in zip(groups, _results(count, groups, self._at_once), strict=True):
                for block, (counted, good) in zip(each[own], counts, strict=True):
                    ranks[:, block] = counted
                    finite = finite and good
                if progress:
                    progress(sum(map(len, each)))
        # Workers add up what they counted: each has zeros for the blocks of the others.
        greater, equal, bad = sum_over_workers(self._strategy, np.vstack([ranks, np.full(len(triples), not finite)]))
        check_finite(not bad.any())
        return Ranks(greater, equal)

    def _trace(self, candidates: Any, side: int) -> None:
        """Traces the function that counts for blocks of any size, which saves tracing it again for the next sizes."""
        specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, candidates)
        block = [tf.TensorSpec(shape, tf.int32) for shape in ([None, 3], [None], [None], [None], [None])]
        self._count[side].get_concrete_function(specs, *block)

    def _arguments(
        self, triples: np.ndarray, block: np.ndarray, queries: np.ndarray, query: np.ndarray, side: int
    ) -> tuple[tf.Tensor, ...]:
        """Returns the distinct queries of a block [Q, 3], row and answer of each triple [P], and known answers [K].

        Known answers are given by row and entity. Where each query has one triple, its own answer is not among them.
        """
        distinct, place = np.unique(query, return_inverse=True)  # with a query for each, `place` counts up
        answers = triples[block, column(side)]
        if len(distinct) == len(block):
            rows, entities = _others(self.known, triples[block], side)
        else:
            rows, entities = self.known.lookup(side, queries[distinct])
        return tuple(tf.constant(x, tf.int32) for x in (queries[distinct], place, answers, rows, entities))

    def _counts(
        self, arguments: list[tuple[tf.Tensor, ...]], candidates: Any, side: int
    ) -> list[tuple[np.ndarray, bool]]:
        """Returns the counts of each block, int [2, P], and whether all of its scores are finite."""
        distribute, first = self._strategy.experimental_distribute_values_from_function, self._replicas[0]
        per_replica = distribute(lambda context: arguments[context.replica_id_in_sync_group - first])
        counts, finite = self._count[side](candidates, *per_replica)
        local = self._strategy.experimental_local_results
        return list(zip((x.numpy() for x in local(counts)), map(bool, local(finite)), strict=True))

    def _distributed_count(self, side: int, *arguments: Any) -> tuple[Any, Any]:
        return self._strategy.run(partial(self._count_block, side), arguments)

    def _count_block(self, side: int, candidates: Any, *block: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Counts better and equal candidates of each triple of a block, which is what `_arguments` returns.

        The score of the true answer is taken from the same product as those of the candidates, so that both are rounded
        alike, except in the last columns of a product, which other instructions may compute.
        """
        queries, place, answers, rows, entities = block
        scores = self.model.scores(queries, side, candidates)  # [Q, E]
        finite = tf.reduce_all(tf.math.is_finite(tf.reduce_sum(scores, 1)))
        true = tf.gather_nd(scores, tf.stack([place, answers], 1))  # [P]
        own = tf.ones_like(answers, tf.bool) if self._mask is None else tf.gather(self._mask, answers)

        def of_one() -> tuple[tf.Tensor, tf.Tensor]:
            return _filtered(scores, true, rows, entities, self._mask), own

        def of_several() -> tuple[tf.Tensor, tf.Tensor]:
            lowest = tf.fill(tf.shape(rows), -np.inf)
            without = tf.tensor_scatter_nd_update(scores, tf.stack([rows, entities], 1), lowest)
            left = tf.gather(without, place)  # [P, E]
            counted = own & (tf.gather(left, answers, batch_dims=1) == true)  # unless it is a known answer
            return _better_and_equal(left, true, self._mask), counted

        sizes = queries.shape[0], place.shape[0]
        if None in sizes:
            counts, counted = tf.cond(tf.shape(queries)[0] == tf.size(place), of_one, of_several)
        else:  # it is traced for blocks of one size
            counts, counted = of_one() if sizes[0] == sizes[1] else of_several()
        return counts - tf.stack([tf.zeros_like(place), tf.cast(counted, tf.int32)]), finite


class PartsRanker:
    """Ranks as `Ranker` does, with one part of the entity table at a time in the memory of this process.

    Parameter servers hold the parts. Each is received twice for a side: to score the true answers that are among its
    entities, and to count its entities with better and equal scores. The arguments are those of `Ranker`.
    """

    def __init__(self, model: JoBi, known: KnownAnswers, memory_budget: int = MEMORY_BUDGET):
        self.model, self.known = model, known
        self._parts = parts_of(model.entities.table)
        self._ends = np.cumsum([x.shape[0] for x in self._parts])
        self._block = _block(model, max(x.shape[0] for x in self._parts), memory_budget)
        self._scores = [tf.function(partial(self._true_scores, side), reduce_retracing=True) for side in (HEAD, TAIL)]
        self._count = [tf.function(partial(self._count_block, side), reduce_retracing=True) for side in (HEAD, TAIL)]

    def rank(self, triples: np.ndarray, side: int, progress: Callable[[int], None] | None = None) -> Ranks:
        """Ranks the entities on `side` of `triples`; see `Ranker.rank`. `progress` is called once."""
        answers = triples[:, column(side)]
        part = np.searchsorted(self._ends, answers, "right")
        # The answers of a block are in one part, so that their scores come from the products that count its entities.
        blocks = [
            rows[start : start + self._block]
            for rows in (np.flatnonzero(part == i) for i in range(len(self._parts)))
            for start in range(0, len(rows), self._block)
        ]
        true, ranks, finite = np.zeros(len(triples), np.float32), np.zeros((2, len(triples)), np.int64), True
        with full_float32():
            for first, candidates in self._candidates():
                for block in blocks:
                    if 0 <= answers[block[0]] - first < len(candidates):
                        places = tf.constant(answers[block] - first, tf.int32)
                        true[block] = self._scores[side](triples[block], candidates, places)
                del candidates  # before the next part is received
            for first, candidates in self._candidates():
                for block in blocks:
                    places = self._left_out(triples[block], side, first, first + len(candidates))
                    counts, good = self._count[side](triples[block], candidates, true[block], *places)
                    ranks[:, block] += counts
                    finite = finite and bool(good)
                del candidates
        check_finite(finite)
        if progress:
            progress(len(triples))
        return Ranks(*ranks)

    def _candidates(self) -> Iterator[tuple[int, tf.Tensor]]:
        """Yields the first entity and the candidates of each part."""
        for part, end in zip(self._parts, self._ends, strict=True):
            yield int(end) - part.shape[0], self.model.scorer.candidate(tf.constant(read_in_blocks(part)))

    def _left_out(self, triples: np.ndarray, side: int, first: int, end: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns row and place of each known answer of a block that is in a part, the true answers included."""
        rows, others = _others(self.known, triples, side)
        rows, entities = np.append(np.arange(len(triples)), rows), np.append(triples[:, column(side)], others)
        inside = (entities >= first) & (entities < end)
        return tf.constant(rows[inside], tf.int32), tf.constant(entities[inside] - first, tf.int32)

    def _true_scores(self, side: int, triples: tf.Tensor, candidates: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.model.scores(triples, side, candidates), places, batch_dims=1)

    def _count_block(
        self, side: int, triples: tf.Tensor, candidates: tf.Tensor, true: tf.Tensor, rows: tf.Tensor, places: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the counts of better and equal candidates, int [2, P], and whether all scores are finite."""
        scores = self.model.scores(triples, side, candidates)
        return _filtered(scores, true, rows, places), tf.reduce_all(tf.math.is_finite(scores))


def ranker_for(
    model: RankedModel, known: KnownAnswers, candidates: np.ndarray | None = None, memory_budget: int = MEMORY_BUDGET
) -> Ranker | PartsRanker:
    """Returns a `PartsRanker` if parameter servers hold the tables of the model, else a `Ranker`.

    Call it in the scope of the strategy. The arguments are those of `Ranker`.

    Raises:
        UsageError: with parameter servers there are candidates, or the model is a pool or rules.
    """
    if not has_servers(tf.distribute.get_strategy()):
        return Ranker(model, known, candidates, memory_budget)
    if candidates is not None or not isinstance(model, JoBi):
        given = "a pool or rules" if candidates is None else "candidates"
        raise UsageError(f"expected one run, ranked among all entities, with parameter servers, got {given}")
    return PartsRanker(model, known, memory_budget)


def _others(known: KnownAnswers, triples: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns row and entity of the known answers to each query but the one that is ranked, int [K] each."""
    rows, entities = known.lookup(side, triples)
    others = entities != triples[rows, column(side)]
    return rows[others], entities[others]


def _filtered(
    scores: tf.Tensor, true: tf.Tensor, rows: tf.Tensor, entities: tf.Tensor, mask: tf.Tensor | None = None
) -> tf.Tensor:
    """Counts as `_better_and_equal`, but leaves out the scores in some rows and columns, [K].

    They are counted with all others and then subtracted, so that the scores are not copied.
    """
    known, target = tf.gather_nd(scores, tf.stack([rows, entities], 1)), tf.gather(true, rows)
    left_out = tf.stack([known > target, known == target], 1)
    if mask is not None:
        left_out &= tf.gather(mask, entities)[:, None]
    left_out = tf.math.unsorted_segment_sum(tf.cast(left_out, tf.int32), rows, tf.size(true))
    return _better_and_equal(scores, true, mask) - tf.transpose(left_out)


def _better_and_equal(scores: tf.Tensor, true: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
    """Counts in scores [P, E] those better than the true answer's, [P], and those equal to it: int32 [2, P].

    Only candidates of the mask count, bool [E].
    """
    given = (scores, true) if mask is None else (scores, true, mask)
    few = scores.shape[1] is not None and scores.shape[1] < WORTH_COMPILING
    return _count(*given) if few else _compiled_count(*given)


def _count(scores: tf.Tensor, true: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
    """Returns for each row how many scores are better than the true one, and how many are equal, int32 [2, P].

    The scores of a row are added up part by part and then along the rest: XLA makes vector instructions of additions,
    but not of a sum along the last axis.
    """
    count = tf.shape(scores)[1]
    size = count // PARTS
    ends = [*(i * size for i in range(PARTS + 1)), count]
    parts = [slice(start, end) for start, end in itertools.pairwise(ends)]
    counts = []
    for compare in (tf.greater, tf.equal):
        found = [compare(scores[:, x], true[:, None]) for x in parts]
        if mask is not None:
            found = [y & mask[x] for x, y in zip(parts, found, strict=True)]
        *equals, rest = (tf.cast(x, tf.int32) for x in found)
        counts.append(tf.reduce_sum(tf.add_n(equals), 1) + tf.reduce_sum(rest, 1))
    return tf.stack(counts)


_compiled_count = compiled(_count)


def _results(function: Callable, values: Sequence[Any], at_once: int) -> Iterator[Any]:
    """Yields the results of a function in order, of which several are computed at once."""
    if at_once == 1:
        yield from map(function, values)
        return
    threads = ThreadPoolExecutor(at_once)
    try:
        yield from threads.map(function, values)
    finally:
        threads.shutdown(cancel_futures=True)


def _block(model: RankedModel, candidates: int, memory_budget: int, copies: int = 0) -> int:
    """Returns the number of triples of a block, given how many copies of their scores are made."""
    return max(1, min(fast_queries(candidates), memory_budget // _bytes_per_query(model, candidates, copies)))


def fast_queries(candidates: int) -> int:
    """Returns the number of queries of a block whose scores fit into memory."""
    return int(np.clip(FAST_BYTES // (4 * candidates), LEAST_QUERIES, MOST_QUERIES))


def _bytes_per_query(model: RankedModel, candidates: int, copies: int) -> int:
    # Float32: the products, the scores if they are not the only product, and copies. On GPUs, without XLA, also
    # comparisons, bool, and their casts to int32. A pool adds up the scores of its members.
    matrices = 1 + copies + len(getattr(model, "models", ()))
    if isinstance(model, JoBi):
        products = model.scorer.dot_products
        matrices = copies + products + (products > 1 or model.scorer.distance)
    return candidates * (4 * matrices + 5 * on_gpu())


@contextmanager
def full_float32() -> Iterator[None]:
    """Turns off TensorFloat-32, by which GPUs round the factors of matrix products to 10 bits."""
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
