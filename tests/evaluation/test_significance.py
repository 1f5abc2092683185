import numpy as np
import pytest
from scipy import stats

from jobi_tf.errors import UsageError
from jobi_tf.evaluation.significance import paired_bootstrap


@pytest.mark.parametrize("effect", [0.0, 0.02, 0.05, 0.2])
def test_agrees_with_the_t_test(effect):
    rng = np.random.default_rng(0)
    a = rng.random(2000)
    b = a + rng.normal(effect, 0.5, 2000)
    result, expected = paired_bootstrap(a, b), stats.ttest_rel(b, a)
    interval = expected.confidence_interval()
    assert result.mean == pytest.approx((b - a).mean())
    assert result.p_value == pytest.approx(expected.pvalue, abs=0.02)
    assert (result.low, result.high) == pytest.approx((interval.low, interval.high), abs=0.003)


def test_is_antisymmetric_and_reproducible():
    a, b = np.random.default_rng(1).random((2, 500))
    forth, back = paired_bootstrap(a, b, seed=3), paired_bootstrap(b, a, seed=3)
    assert forth == paired_bootstrap(a, b, seed=3)
    assert (back.mean, back.low, back.high) == pytest.approx((-forth.mean, -forth.high, -forth.low))
    assert forth.p_value == back.p_value


def test_extremes():
    values = np.random.default_rng(2).random(100)
    assert paired_bootstrap(values, values).p_value == 1
    assert paired_bootstrap(values, values + np.linspace(1, 2, 100), samples=999).p_value == 1e-3
    assert paired_bootstrap(np.zeros(3), np.ones(3), samples=1).mean == 1
    large = paired_bootstrap(np.zeros(2**22 + 1), np.ones(2**22 + 1), samples=2)
    assert (large.low, large.high) == (1, 1)


@pytest.mark.parametrize(
    ("a", "b", "samples"), [([], [], 5), ([1], [1, 2], 5), ([[1.0]], [[1.0]], 5), ([1], [2], 0), ([1], [np.nan], 5)]
)
def test_rejects(a, b, samples):
    with pytest.raises(UsageError):
        paired_bootstrap(np.array(a), np.array(b), samples)
