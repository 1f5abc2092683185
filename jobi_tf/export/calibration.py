"""From scores to probabilities (Platt 1999), and how far such probabilities can be trusted."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from jobi_tf.data.graph import Graph
from jobi_tf.data.negatives import NegativeSampler
from jobi_tf.data.occurrences import HEAD, TAIL, Occurrences, column
from jobi_tf.evaluation.reliability import Bin, expected_calibration_error
from jobi_tf.export.assets import keys_of

BINS = 15
MOST_TRIPLES = 20_000
DRAWS = 20  # corruptions drawn for a triple, out of which come the first on each side that is no known fact
MOST_STEPS, SMALLEST_STEP = 100, 1e-10

Scores = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Calibration:
    """The probability of a score s, sigmoid(slope · s + intercept), and how reliable it is.

    Args:
        slope: factor of the score.
        intercept: added to it.
        ece_before: expected calibration error of sigmoid(s), 0 to 1, on triples that the measured fit did not see.
        ece_after: the same of the fitted probability.
        bins: those of `ece_after` that hold any.
        split: where the triples came from.
        triples: how many they were.
    """

    slope: float
    intercept: float
    ece_before: float
    ece_after: float
    bins: tuple[Bin, ...]
    split: str
    triples: int

    def warnings(self) -> list[str]:
        """Returns what is wrong with these probabilities, a sentence each."""
        found = []
        if self.split != "valid":
            found.append(
                "without validation triples the probabilities are fitted on training triples: they are too sure"
            )
        if self.slope <= 0:
            found.append("scores tell triples from corruptions no better than chance: do not trust the probabilities")
        return found


@dataclass(frozen=True)
class Labelled:
    """Scores of triples and of their corruptions.

    Args:
        scores: float64 [N].
        true: whether it is a triple, bool [N].
        owner: number of the triple that it is, or is a corruption of, int64 [N].
    """

    scores: np.ndarray
    true: np.ndarray
    owner: np.ndarray

    def __getitem__(self, chosen: np.ndarray) -> "Labelled":
        return Labelled(self.scores[chosen], self.true[chosen], self.owner[chosen])

    @property
    def weights(self) -> np.ndarray:
        """Weights by which triples and corruptions count the same in all, float64 [N] with mean 1."""
        share = self.true.mean()
        return np.where(self.true, 0.5 / max(share, 1e-300), 0.5 / max(1 - share, 1e-300))


def calibrate(scores: Scores, graph: Graph, known: np.ndarray, p: float, seed: int) -> Calibration:
    """Fits probabilities on validation triples and corruptions of them, on training triples where there are none.

    Args:
        scores: gives the scores of triples, int32 [N, 3] → [N].
        graph: the graph.
        known: keys of all known triples, ascending.
        p: share of the corruptions that are drawn from the entities seen with the relation, as in training.
        seed: seed of the draws.
    """
    split, triples = sample(graph, seed)
    corruptions, owner = corrupt(triples, graph, known, p, seed)
    labelled = Labelled(
        scores(np.concatenate([triples, corruptions])).astype(np.float64),
        np.arange(len(triples) + len(corruptions)) < len(triples),
        np.concatenate([np.arange(len(triples)), owner]),
    )
    fitted_on = labelled.owner % 2 == 0  # the sample is in random order
    measured = labelled[~fitted_on if len(triples) > 1 else fitted_on]
    slope, intercept = fit(labelled[fitted_on])
    before, _ = reliability(sigmoid(measured.scores), measured)
    after, bins = reliability(sigmoid(slope * measured.scores + intercept), measured)
    return Calibration(*fit(labelled), before, after, bins, split, len(triples))


def sample(graph: Graph, seed: int) -> tuple[str, np.ndarray]:
    """Returns validation triples in random order, or training triples where those are not two; with their split.

    Triples of relations that training never saw are left out: no corruption can be drawn as in training.
    """
    valid = graph.valid[np.isin(graph.valid[:, 1], np.unique(graph.train[:, 1]))]
    split, triples = ("valid", valid) if len(valid) > 1 else ("train", graph.train)
    chosen = np.random.default_rng(seed).permutation(len(triples))[:MOST_TRIPLES]
    return split, np.asarray(triples[chosen])


def corrupt(triples: np.ndarray, graph: Graph, known: np.ndarray, p: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws a corruption a side of each triple that is no known fact; of a few triples it may find none.

    Args:
        triples: int32 [N, 3], of relations that training saw.
        graph: the graph.
        known: keys of all known triples, int64, ascending.
        p: share of draws from the entities seen with the relation.
        seed: seed of the draws.

    Returns:
        Corruptions, int32 [M, 3], and the row of the triple of each, int64 [M].
    """
    occurrences = Occurrences.of_graph(graph)
    sampler = NegativeSampler(occurrences, DRAWS, p)
    draws = sampler.corrupt(tf.constant(triples, tf.int32), tf.constant([seed, 1], tf.int64))
    drawn, head_corruptions = (x.numpy() for x in draws[:2])
    at_head = np.arange(DRAWS) < head_corruptions[:, None]  # [N, draws]
    every = np.repeat(triples[:, None], DRAWS, 1)  # [N, draws, 3]
    every[..., column(HEAD)] = np.where(at_head, drawn, every[..., column(HEAD)])
    every[..., column(TAIL)] = np.where(at_head, every[..., column(TAIL)], drawn)
    keys = keys_of(every, graph)
    new = known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] != keys
    found, owners = [], []
    for here in (at_head, ~at_head):
        rows = np.flatnonzero((new & here).any(1))
        found.append(every[rows, (new & here)[rows].argmax(1)])
        owners.append(rows)
    return np.concatenate(found), np.concatenate(owners)


def fit(labelled: Labelled) -> tuple[float, float]:
    """Returns the slope and intercept of least cross entropy, by Newton's method (Lin, Lin and Weng 2007).

    The targets are Platt's, which no finite score reaches: (n₊ + 1) / (n₊ + 2) for the n₊ triples, and
    1 / (n₋ + 2) for the n₋ corruptions.
    """
    positives = int(labelled.true.sum())
    negatives = len(labelled.true) - positives
    targets = np.where(labelled.true, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    inputs = np.stack([labelled.scores, np.ones_like(labelled.scores)], 1)  # [N, 2]
    weights, point = labelled.weights, np.zeros(2)
    loss = _cross_entropy(inputs @ point, targets, weights)
    for _ in range(MOST_STEPS):
        probabilities = sigmoid(inputs @ point)
        gradient = inputs.T @ (weights * (probabilities - targets))
        curvature = (inputs.T * (weights * probabilities * (1 - probabilities))) @ inputs
        step = -np.linalg.solve(curvature + 1e-12 * len(targets) * np.eye(2), gradient)
        size, better = 1.0, loss
        while size > SMALLEST_STEP:
            better = _cross_entropy(inputs @ (point + size * step), targets, weights)
            if better < loss:
                break
            size /= 2
        if size <= SMALLEST_STEP:
            break
        point, loss = point + size * step, better
    return float(point[0]), float(point[1])


def reliability(probabilities: np.ndarray, labelled: Labelled) -> tuple[float, tuple[Bin, ...]]:
    """Returns the expected calibration error, where triples and corruptions weigh the same in all, and its bins."""
    weights = labelled.weights / labelled.weights.sum()
    return expected_calibration_error(probabilities, labelled.true, weights, BINS)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Returns 1 / (1 + exp(-x)), for any x without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * x))


def _cross_entropy(logits: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
    return float(weights @ (np.logaddexp(0, logits) - targets * logits))
