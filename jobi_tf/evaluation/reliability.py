"""How far probabilities can be trusted."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Bin:
    """Statements with probabilities from `low` to `high`: their weight, mean probability and the share that is true."""

    low: float
    high: float
    weight: float
    probability: float
    true: float


def expected_calibration_error(
    probabilities: np.ndarray, true: np.ndarray, weights: np.ndarray | None = None, bins: int = 10
) -> tuple[float, tuple[Bin, ...]]:
    """Returns the expected calibration error, and the bins of equal width that hold any statement.

    The error is the mean distance within a bin between the probability and the share that is true (Naeini et al. 2015).

    Args:
        probabilities: float [N], from 0 to 1.
        true: bool [N].
        weights: how much each counts, float [N]; None: all count 1.
        bins: how many.
    """
    weights = np.ones(len(true)) if weights is None else weights
    places = np.minimum((probabilities * bins).astype(int), bins - 1)
    found = []
    for i in np.unique(places).tolist():
        here = places == i
        weight = float(weights[here].sum())
        probability, share = (float(weights[here] @ x[here] / weight) for x in (probabilities, true))
        found.append(Bin(i / bins, (i + 1) / bins, weight, probability, share))
    total = sum(x.weight for x in found)
    return sum(x.weight * abs(x.probability - x.true) for x in found) / (total or 1), tuple(found)
