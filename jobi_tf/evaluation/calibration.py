"""From scores to probabilities (Platt 1999), and how far such probabilities can be trusted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy import optimize
from scipy.special import expit as sigmoid

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.negatives import NegativeSampler
from jobi_tf.data.occurrences import HEAD, TAIL, KnownAnswers, Occurrences, column, find
from jobi_tf.data.seeds import stream
from jobi_tf.tables import html_table

BINS = 15
MAX_TRIPLES = 20_000
DRAWS = 20  # corruptions drawn on each side of a triple; the first one that is not a known fact is used
TOLERANCE = 1e-10  # of the gradient of the cross entropy

Scores = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Bin:
    """Statements with probabilities from `low` to `high`: their weight, mean probability and the share that is true."""

    low: float
    high: float
    weight: float
    probability: float
    true: float


@dataclass(frozen=True)
class Calibration:
    """The probability of a score s, sigmoid(slope · s + intercept), and how reliable it is."""

    slope: float
    intercept: float
    ece_before: float  # expected calibration error of sigmoid(s), 0 to 1, on triples that the fit did not use
    ece_after: float  # the same of the fitted probability
    bins: tuple[Bin, ...]  # those of `ece_after` that are not empty
    split: str  # of the triples
    triples: int  # their number

    def probability(self, scores: np.ndarray) -> np.ndarray:
        """Returns the probabilities of triples with these scores."""
        return sigmoid(self.slope * np.asarray(scores, np.float64) + self.intercept)

    def _repr_html_(self) -> str:
        errors = f"expected calibration error {self.ece_before:.3f} before, {self.ece_after:.3f} after calibration"
        title = f"probabilities on {self.triples:,} triples of the {self.split} split: {errors}"
        rows = [[f"{x.low:.2f} to {x.high:.2f}", f"{x.probability:.3f}", f"{x.true:.3f}"] for x in self.bins]
        return html_table(title, ["probability", "mean", "share that is true"], rows)

    def warnings(self) -> list[str]:
        """Returns a sentence for each reason not to trust these probabilities."""
        reasons = []
        if self.split != "valid":
            missing = "without two validation triples of relations that training saw"
            reasons.append(f"{missing}, the fit is on training triples, and probabilities are too high")
        if self.slope <= 0:
            reasons.append("scores separate triples from corruptions no better than chance: do not trust probabilities")
        if self.ece_after > self.ece_before:
            reasons.append(f"{self.triples:,} triples are too few for the fit: it made probabilities of others worse")
        return reasons


class Scored(NamedTuple):
    """Scores of triples of a split and of corruptions of them, float64 [N], and which are those of triples, bool [N].

    `fitted` marks one half of the triples, with their corruptions: on it probabilities are fitted to measure their
    error on the other half.
    """

    split: str
    scores: np.ndarray
    true: np.ndarray
    fitted: np.ndarray


def score_sample(scores: Scores, graph: Graph, p: float, seed: int) -> Scored:
    """Scores up to 20,000 validation triples, or training triples if there are none, and corruptions of them.

    `scores` gives the scores of triples, int32 [N, 3] → [N]. `p` is the share of the corruptions that are drawn from
    the entities seen with the relation, as in training.
    """
    split, triples = sample(graph, seed)  # in random order
    corruptions, rows = corrupt(triples, graph, p, seed)
    values = scores(np.concatenate([triples, corruptions])).astype(np.float64)
    fitted = np.concatenate([np.arange(len(triples)), rows]) % 2 == 0
    return Scored(split, values, np.arange(len(values)) < len(triples), fitted)


def calibrate(scores: Scores, graph: Graph, p: float, seed: int) -> Calibration:
    """Fits probabilities on a sample; see `score_sample` for the arguments."""
    return calibrate_sample(score_sample(scores, graph, p, seed))


def calibrate_sample(scored: Scored) -> Calibration:
    """Fits probabilities on all of a sample; their error is measured on one half, with a fit on the other half."""
    split, values, true, fitted = scored
    measured = ~fitted if true.sum() > 1 else fitted
    slope, intercept = fit(values[fitted], true[fitted])
    labels, logits = true[measured], values[measured]
    (before, _), (after, bins) = (
        expected_calibration_error(sigmoid(x), labels, balanced_weights(labels), BINS)
        for x in (logits, slope * logits + intercept)
    )
    return Calibration(*fit(values, true), before, after, bins, split, int(true.sum()))


def sample(graph: Graph, seed: int, most: int = MAX_TRIPLES) -> tuple[str, np.ndarray]:
    """Returns the split and its triples, int32 [N, 3] with N ≤ `most`, to calibrate on, in random order.

    They are validation triples whose relation training saw, as corruptions are drawn as in training; or training
    triples if there are fewer than two of those.
    """
    valid = graph.valid[np.isin(graph.valid[:, 1], np.unique(graph.train[:, 1]))]
    split, triples = ("valid", valid) if len(valid) > 1 else ("train", graph.train)
    chosen = np.random.default_rng(seed).permutation(len(triples))[:most]
    return split, np.asarray(triples[chosen])


def corrupt(triples: np.ndarray, graph: Graph, p: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws for each triple a corruption of its head and one of its tail that are not known facts.

    The triples are of relations that training saw, int32 [N, 3]. One for which `DRAWS` draws find none has fewer.

    Returns:
        Corruptions, int32 [M, 3], and the row of the triple of each, int64 [M].
    """
    sampler = NegativeSampler(Occurrences.of_graph(graph), 2 * DRAWS, p)
    drawn = sampler.draw(tf.constant(triples, tf.int32), stream(seed, "calibration"), by_side=True).entities.numpy()

    known = KnownAnswers.of_graph(graph, SPLITS, triples)
    corruptions, rows = [], []
    for side in (HEAD, TAIL):
        queries, answers = known.lookup(side, triples)
        first = np.arange(len(triples))[:, None] * graph.num_entities  # of the keys of a triple and an entity
        _, known_fact = find(first[queries, 0] + answers, first + drawn[:, side])
        new = ~known_fact  # [N, draws]
        rows.append(np.flatnonzero(new.any(1)))
        corruptions.append(triples[rows[-1]])
        corruptions[-1][:, column(side)] = drawn[rows[-1], side, new[rows[-1]].argmax(1)]
    return np.concatenate(corruptions), np.concatenate(rows)


def balanced_weights(true: np.ndarray) -> np.ndarray:
    """Returns weights, float64 [N] with sum 1, with which all triples weigh as much as all corruptions; bool [N]."""
    return np.where(true, 0.5 / max(int(true.sum()), 1), 0.5 / max(int((~true).sum()), 1))


def fit(scores: np.ndarray, true: np.ndarray) -> tuple[float, float]:
    """Returns the slope and intercept of least cross entropy, of scores and which of them are those of triples, [N].

    All triples weigh as much as all corruptions. The targets are Platt's, which no finite score reaches:
    (n₊ + 1) / (n₊ + 2) for the n₊ triples, and 1 / (n₋ + 2) for the n₋ corruptions.
    """
    positives, negatives = int(true.sum()), int((~true).sum())
    targets = np.where(true, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    scale = np.abs(scores).max() or 1.0
    inputs, weights = np.stack([scores / scale, np.ones_like(scores)], 1), balanced_weights(true)  # [N, 2], [N]

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        logits = inputs @ point
        value = weights @ (np.logaddexp(0, logits) - targets * logits)
        return float(value), inputs.T @ (weights * (sigmoid(logits) - targets))

    def curvature(point: np.ndarray) -> np.ndarray:
        probabilities = sigmoid(inputs @ point)
        return (inputs.T * (weights * probabilities * (1 - probabilities))) @ inputs

    found = optimize.minimize(loss, np.zeros(2), jac=True, hess=curvature, method="trust-exact", tol=TOLERANCE)
    return float(found.x[0] / scale), float(found.x[1])


def expected_calibration_error(
    probabilities: np.ndarray, true: np.ndarray, weights: np.ndarray | None = None, bins: int = 10
) -> tuple[float, tuple[Bin, ...]]:
    """Returns the expected calibration error of probabilities, and the bins of equal width that hold any.

    The error is the mean distance within a bin between the probability and the share that is true (Naeini et al. 2015).
    All arrays are [N]; without weights all statements count 1.
    """
    weights = np.ones(len(true)) if weights is None else weights
    places = np.minimum((probabilities * bins).astype(int), bins - 1)
    totals, means, shares = (np.bincount(places, weights * x, bins) for x in (1, probabilities, true))
    found = [
        Bin(i / bins, (i + 1) / bins, float(totals[i]), float(means[i] / totals[i]), float(shares[i] / totals[i]))
        for i in np.flatnonzero(totals).tolist()
    ]
    error = sum(x.weight * abs(x.probability - x.true) for x in found)
    return float(error / (totals.sum() or 1)), tuple(found)
