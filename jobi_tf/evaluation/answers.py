"""Best answers to a query with one open side, by id and by name."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.occurrences import HEAD, TAIL, KnownAnswers, Occurrences, column
from jobi_tf.data.shards import blocks
from jobi_tf.errors import DataError, UsageError, check_at_least
from jobi_tf.evaluation.ranker import RankedModel, check_finite, full_float32
from jobi_tf.tables import Table

SCORES_AT_ONCE = 2**26  # 256 MB


class BestAnswers(NamedTuple):
    """The best answers to each query, best first, and whether they are known facts; each [N, k].

    Where fewer than k are left, the entity is -1 and the score -inf.
    """

    entities: np.ndarray
    scores: np.ndarray
    known: np.ndarray


def best_answers(
    model: RankedModel,
    known: KnownAnswers,
    triples: np.ndarray,
    side: int,
    k: int = 10,
    new_only: bool = False,
    seen: Occurrences | None = None,
    candidates: np.ndarray | None = None,
) -> BestAnswers:
    """Finds the k entities with the best scores on one side of triples, int [N, 3], whose own answers are not read.

    Known answers are marked, or left out with `new_only`. With `seen`, entities that did not occur on that side of the
    relation in these occurrences are left out. `candidates` are ids of the only entities that can be answers, int [C].

    Raises:
        UsageError: `k` is below 1.
        JobiError: a score is not finite.
    """
    check_at_least(1, k=k)
    parts, allowed = [], None if candidates is None else np.isin(np.arange(model.num_entities), candidates)
    for queries, scores in scored_blocks(model, triples, side):
        facts = np.zeros(scores.shape, bool)
        facts[known.lookup(side, queries)] = True
        if new_only:
            scores = tf.where(facts, -np.inf, scores)
        if seen:
            typed = np.zeros(scores.shape, bool)
            for row, relation in zip(typed, queries[:, 1].tolist(), strict=True):
                row[seen.of(side, relation)] = True
            scores = tf.where(typed, scores, -np.inf)
        if allowed is not None:
            scores = tf.where(allowed, scores, -np.inf)
        values, entities = (x.numpy() for x in tf.math.top_k(scores, min(k, model.num_entities)))
        entities = np.where(np.isneginf(values), -1, entities)
        parts.append((entities, values, np.take_along_axis(facts, entities, 1) & (entities >= 0)))
    return BestAnswers(*(np.concatenate(x) for x in zip(*parts, strict=True)))


def scored_blocks(model: RankedModel, triples: np.ndarray, side: int) -> Iterator[tuple[np.ndarray, tf.Tensor]]:
    """Yields queries with the scores of all entities on one side, float32 [N, E]; of no queries one empty block.

    Raises:
        JobiError: a score is not finite.
    """
    rows = model.candidates()
    for queries in blocks(triples, max(1, SCORES_AT_ONCE // model.num_entities)):
        with full_float32():
            scores = model.scores(tf.constant(queries), side, rows)
        check_finite(tf.reduce_all(tf.math.is_finite(tf.reduce_sum(scores, 1))))
        yield queries, scores


class Answer(NamedTuple):
    """An entity that completes a triple, its score, whether the triple is a known fact, and the split that has it."""

    entity: str
    score: float
    known: bool
    split: str | None


class ByName:
    """What answers queries by name: a run, a pool of runs, or rules."""

    graph: Graph
    model: Any

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.graph!r}>"

    @cached_property
    def occurrences(self) -> Occurrences:
        """The entities that occur with each relation in training."""
        return Occurrences.of_graph(self.graph)

    @cached_property
    def _held_out(self) -> dict[tuple[int, ...], str]:
        """The triples that are not in train, with the first of the other splits that has them."""
        held_out = {tuple(row): name for name in reversed(SPLITS[1:]) for row in self.graph.split(name).tolist()}
        heads, _, tails = zip(*held_out, strict=True) if held_out else ((), (), ())
        for train in blocks(self.graph.train):  # which may be in files
            for row in train[np.isin(train[:, 0], heads) & np.isin(train[:, 2], tails)].tolist():
                held_out.pop(tuple(row), None)
        return held_out

    def score(self, triples: Sequence[tuple[str, str, str]]) -> np.ndarray:
        """Returns the scores of triples of names (head, relation, tail), as tails: float32 [N]; higher is better.

        Raises:
            DataError: a name is unknown.
            JobiError: a score is not finite.
        """
        return self.finite_scores(self.graph.ids_of_triples(triples))

    def finite_scores(self, triples: np.ndarray) -> np.ndarray:
        """Returns the scores of triples of ids, int32 [N, 3] → float32 [N].

        Raises:
            JobiError: a score is not finite.
        """
        scores = self._scores(triples)
        check_finite(np.isfinite(scores).all())
        return scores

    def _scores(self, triples: np.ndarray) -> np.ndarray:
        """Returns the scores of triples of ids, int32 [N, 3] → float32 [N]."""
        scored = scored_blocks(self.model, triples, TAIL)
        return np.concatenate([tf.gather(scores, part[:, column(TAIL)], batch_dims=1) for part, scores in scored])

    def tails(self, head: str, relation: str, k: int = 10, **options: Any) -> Table[Answer]:
        """Returns the k best tails of (head, relation, ?), best first; the options are those of `answers`.

        Raises:
            DataError: a name is unknown.
            UsageError: `k` is below 1.
        """
        return self.answers(TAIL, [(head, relation)], k, **options)[0]

    def heads(self, relation: str, tail: str, k: int = 10, **options: Any) -> Table[Answer]:
        """Returns the k best heads of (?, relation, tail), best first; otherwise as `tails`."""
        return self.answers(HEAD, [(tail, relation)], k, **options)[0]

    def answers(
        self,
        side: int,
        queries: Sequence[tuple[str, str]],
        k: int = 10,
        new_only: bool = False,
        typed: bool = False,
        candidates: Sequence[str] | None = None,
    ) -> list[Table[Answer]]:
        """Returns the k best entities on one side of each query.

        Args:
            side: the side to predict, `HEAD` (0) or `TAIL` (1).
            queries: pairs of a known entity and a relation.
            k: largest number of answers to a query.
            new_only: whether to leave out known facts.
            typed: whether to leave out entities that training did not see on that side of the relation.
            candidates: names of the entities that can be answers; None: all.

        Raises:
            DataError: a name is unknown, or there are no candidates.
            UsageError: `k` is below 1, `side` is neither 0 nor 1, or a query is no pair.
        """
        if side not in (HEAD, TAIL):
            raise UsageError(f"expected side {HEAD} (head) or {TAIL} (tail), got {side!r}")
        queries = [*queries]
        for query in queries:
            if isinstance(query, str) or not hasattr(query, "__len__") or len(query) != 2:
                raise UsageError(f"expected queries (entity, relation), got {query!r}")
        triples = np.zeros((len(queries), 3), np.int32)
        triples[:, column(1 - side)] = self.graph.entities.ids(entity for entity, _ in queries)
        triples[:, 1] = self.graph.relations.ids(relation for _, relation in queries)
        known = KnownAnswers.of_graph(self.graph, SPLITS, triples, side)
        allowed = candidate_ids(self.graph, candidates)
        seen = self.occurrences if typed else None
        best = best_answers(self.model, known, triples, side, k, new_only, seen, allowed)
        tables = []
        for (entity, relation), triple, *row in zip(queries, triples.tolist(), *best, strict=True):
            rows = []
            for answer, score, is_known in zip(*row, strict=True):
                if answer >= 0:
                    triple[column(side)] = int(answer)
                    split = self._held_out.get(tuple(triple), "train") if is_known else None
                    rows.append(Answer(self.graph.entities[answer], float(score), bool(is_known), split))
            title = f"heads of (?, {relation}, {entity})" if side == HEAD else f"tails of ({entity}, {relation}, ?)"
            tables.append(Table(rows, Answer._fields, title))
        return tables


def candidate_ids(graph: Graph, candidates: Any) -> np.ndarray | None:
    """Returns ids, given ids or names, or None for all; raises a `DataError` for none or an unknown name."""
    if candidates is None:
        return None
    ids = graph.entities.ids_of(candidates)
    if not len(ids):
        raise DataError("expected candidates, got none")
    return ids
