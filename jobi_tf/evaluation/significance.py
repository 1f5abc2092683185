"""Whether the difference between two models on the same triples is more than chance."""

from typing import NamedTuple

import numpy as np

from jobi_tf.errors import UsageError, check_at_least


class Difference(NamedTuple):
    """The mean of b minus the mean of a, its 95 % confidence interval, and the two-sided p-value of no difference."""

    mean: float
    low: float
    high: float
    p_value: float


def paired_bootstrap(a: np.ndarray, b: np.ndarray, samples: int = 10_000, seed: int = 0) -> Difference:
    """Returns the difference of the means of paired values, such as reciprocal ranks, with its significance.

    The pairs are resampled with replacement `samples` times. The p-value is the share of samples, the data included,
    whose difference is as far from the observed difference as that is from 0 (Efron and Tibshirani 1993).

    Args:
        a: values of the first model, float [N], one for each triple.
        b: values of the second model on the same triples, float [N].
        samples: number of draws.
        seed: seed of the draws.

    Raises:
        UsageError: there are no pairs, the shapes differ, a value is not finite, or a number is out of range.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise UsageError(f"expected two arrays of the same shape [N], got {list(a.shape)} and {list(b.shape)}")
    if not np.isfinite([a, b]).all():
        raise UsageError("expected finite values, got NaN or infinity")
    check_at_least(1, samples=samples)
    check_at_least(0, seed=seed)
    differences, rng = b - a, np.random.default_rng(seed)
    drawn = np.array([rng.choice(differences, len(a)).mean() for _ in range(samples)])
    observed = differences.mean()
    low, high = np.quantile(drawn, (0.025, 0.975))
    # A constant difference is drawn again exactly but for rounding.
    extreme = np.abs(drawn - observed) >= abs(observed) * (1 - 1e-12)
    return Difference(float(observed), float(low), float(high), float((1 + extreme.sum()) / (1 + samples)))
