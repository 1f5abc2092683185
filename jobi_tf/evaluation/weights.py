"""Weights of models whose scores are added, fitted on validation triples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize
from scipy.special import log_softmax, softmax

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import HEAD, SIDES, KnownAnswers, column
from jobi_tf.evaluation.ranker import RankedModel, full_float32
from jobi_tf.evaluation.ranks import Ranks

CANDIDATES = 100  # wrong answers to a query, the best of the unweighted sum, and as many random ones of the others
SHRINKAGES = (1000, 100, 10)  # queries of validation that the global weights stand for
QUERIES_A_BLOCK, SCORES_A_BLOCK = 100, 2**24  # at most, the scores of all models
TOLERANCE = 1e-6  # of the gradient of the mean cross entropy


class Fitted(NamedTuple):
    """Weights of models for each relation, and in R more rows for its heads if these have their own: [R or 2R, models].

    The method is `equal`, `global` (the same for all relations) or `relation`, in which the global weights stand for
    `shrinkage` queries of validation. `held_out` has for each way of weighting its MRR on the halves of the validation
    split that it was not fitted on.
    """

    weights: np.ndarray
    method: str
    shrinkage: int | None = None
    held_out: dict[str, float] | None = None


@dataclass(frozen=True)
class _Queries:
    """Validation queries: the row of their relation, [N], and the scores of the true answer and then of wrong ones.

    Scores are those of each run, float32 [N, 1 + candidates, runs]. Counts are the entities that each candidate stands
    for, 0 where there is no further one, [N, 1 + candidates].
    """

    rows: np.ndarray
    scores: np.ndarray
    counts: np.ndarray

    def __getitem__(self, chosen: Any) -> "_Queries":
        return _Queries(self.rows[chosen], self.scores[chosen], self.counts[chosen])

    def reciprocal_ranks(self, weights: np.ndarray) -> np.ndarray:
        """Returns 1 / rank among the candidates with these weights of relations, [R or 2R, runs] → [N]."""
        totals, others = np.einsum("nck,nk->nc", self.scores, weights[self.rows]), self.counts[:, 1:]
        better, equal = ((test(totals[:, 1:], totals[:, :1]) * others).sum(1) for test in (np.greater, np.equal))
        return 1 / Ranks(better, equal).ranks()


def fit_weights(
    models: Sequence[RankedModel], graph: Graph, sides: bool = True, scales: np.ndarray | None = None
) -> Fitted:
    """Fits the weights by which the scores of models are multiplied before they are added.

    The weights minimize the cross-entropy of the validation triples, estimated from the best wrong answers of the
    unweighted sum and a sample of the others. `jobi_tf.merge_runs` describes the shrinkage.

    With `sides`, relations have separate weights for heads, in R more rows, like reciprocal relations. `scales` are
    factors by which the scores of each model are first multiplied, [models].
    """
    queries = _queries(models, graph, sides, np.ones(len(models)) if scales is None else scales)
    rows = graph.num_relations * (2 if sides else 1)
    halves = np.random.default_rng(0).permutation(len(queries.rows)) % 2
    held_out: dict[tuple[str, int | None], list[np.ndarray]] = {}
    for half in range(2):
        fitted_on, measured_on = queries[halves == half], queries[halves != half]
        for way, weights in _ways(fitted_on, rows).items():
            held_out.setdefault(way, []).append(measured_on.reciprocal_ranks(weights))
    values = {way: np.concatenate(parts) for way, parts in held_out.items()}
    best = max(values, key=lambda way: values[way].mean())
    worse = {way: values[best] - x for way, x in values.items()}
    # The simplest one that is not worse than the best by more than a standard error.
    chosen = next(way for way, x in worse.items() if x.mean() * len(x) ** 0.5 <= max(x.std(), 1e-12))
    names = {way: way[0] + (f" {way[1]}" if way[1] else "") for way in values}
    return Fitted(_ways(queries, rows)[chosen], *chosen, {names[way]: float(x.mean()) for way, x in values.items()})


def _queries(models: Sequence[RankedModel], graph: Graph, sides: bool, scales: np.ndarray) -> _Queries:
    valid = np.asarray(graph.valid)
    valid = valid[np.argsort(valid[:, 1], kind="stable")]
    known = KnownAnswers.of_graph(graph, ("train", "valid"), valid)
    shared, rng = [model.candidates() for model in models], np.random.default_rng(0)
    found, size = [], max(1, min(QUERIES_A_BLOCK, SCORES_A_BLOCK // (len(models) * graph.num_entities)))
    for side in range(len(SIDES)):
        for start in range(0, len(valid), size):
            block = valid[start : start + size]
            with full_float32():
                parts = [x.scores(block, side, y).numpy() for x, y in zip(models, shared, strict=True)]
            parts = [x * scale for x, scale in zip(parts, scales.astype(np.float32), strict=True)]  # [N, E] each
            total = sum(parts[1:], parts[0].copy())
            total[known.lookup(side, block)] = -np.inf
            count = min(CANDIDATES, total.shape[1])
            best = np.argpartition(-total, count - 1, 1)[:, :count]
            is_best = np.isfinite(np.take_along_axis(total, best, 1))
            np.put_along_axis(total, best, -np.inf, 1)
            draws = np.where(np.isfinite(total), rng.random(total.shape, np.float32), 2)
            drawn = np.argpartition(draws, count - 1, 1)[:, :count]
            is_drawn = np.take_along_axis(draws, drawn, 1) < 2
            each = np.isfinite(total).sum(1) / np.maximum(is_drawn.sum(1), 1)
            answers = np.concatenate([block[:, [column(side)]], best, drawn], 1)  # [N, 1 + candidates]
            counts = np.concatenate([np.ones((len(block), 1)), is_best, is_drawn * each[:, None]], 1)
            rows = block[:, 1] + (graph.num_relations if sides and side == HEAD else 0)
            found.append((rows, np.stack([np.take_along_axis(x, answers, 1) for x in parts], 2), counts))
    return _Queries(*(np.concatenate(x) for x in zip(*found, strict=True)))


def _ways(queries: _Queries, rows: int) -> dict[tuple[str, int | None], np.ndarray]:
    """Returns the weights [rows, runs] of each way of weighting, fitted on queries: its method and its shrinkage."""
    runs = queries.scores.shape[2]
    ones = np.ones(runs)
    everywhere, curvature = _minimum(queries, ones, np.zeros((runs, runs)))
    ways: dict[tuple[str, int | None], np.ndarray] = {
        ("equal", None): np.tile(ones, (rows, 1)),
        ("global", None): np.tile(everywhere, (rows, 1)),
    }
    for shrinkage in SHRINKAGES:
        weights = np.tile(everywhere, (rows, 1))
        for row in np.unique(queries.rows):
            weights[row], _ = _minimum(queries[queries.rows == row], everywhere, shrinkage * curvature)
        ways["relation", shrinkage] = weights
    return ways


def _minimum(queries: _Queries, center: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Minimizes Σ cross entropy + ½ (w - center)ᵀ precision (w - center) over weights w.

    Returns:
        The weights [runs], and the mean second derivative of the cross entropy of a query there, [runs, runs].
    """
    scores = queries.scores.astype(np.float64)
    with np.errstate(divide="ignore"):
        log_counts = np.log(queries.counts)

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        logs, pull = log_softmax(scores @ point + log_counts, 1), precision @ (point - center)
        gradient = np.tensordot(np.exp(logs), scores, 2) - scores[:, 0].sum(0) + pull
        return float((point - center) @ pull / 2 - logs[:, 0].sum()), gradient

    def curvature(point: np.ndarray) -> np.ndarray:
        shares = softmax(scores @ point + log_counts, 1)
        means = (shares[:, None] @ scores)[:, 0]  # [N, runs]
        return np.tensordot(shares[..., None] * scores, scores, ((0, 1), (0, 1))) - means.T @ means

    found = optimize.minimize(
        loss,
        center,
        jac=True,
        hess=lambda point: curvature(point) + precision,
        method="trust-exact",
        options={"gtol": TOLERANCE * len(scores)},
    )
    return found.x, curvature(found.x) / len(scores)
