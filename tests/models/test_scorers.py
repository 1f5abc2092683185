import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.data.occurrences import HEAD, TAIL
from jobi_tf.errors import UsageError
from jobi_tf.models.scorers import SCORERS, get_scorer

from .oracles import ORACLES, oracle_scores

PARTS = {"distmult": 1, "complex": 2, "simple": 2}
SHAPES = [((7,), (7,), (7,)), ((5, 1), (1, 1), (1, 9)), ((), (4,), (3, 4))]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("name", SCORERS)
def test_both_queries_give_the_score(name, shapes):
    rng = np.random.default_rng(0)
    h, r, t = (rng.normal(size=(*shape, 5 * PARTS[name])).astype(np.float32) for shape in shapes)
    by_tail = tf.reduce_sum(get_scorer(name).tail_query(h, r) * t, -1)
    by_head = tf.reduce_sum(get_scorer(name).head_query(r, t) * h, -1)
    np.testing.assert_allclose(by_tail, ORACLES[name](h, r, t), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_head, ORACLES[name](h, r, t), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "symmetric"), [("distmult", True), ("complex", False), ("simple", False)])
def test_symmetry(name, symmetric):
    h, r, t = np.random.default_rng(1).normal(size=(3, 8, 6 * PARTS[name]))
    forth, back = (tf.reduce_sum(get_scorer(name).tail_query(a, r) * b, -1) for a, b in ((h, t), (t, h)))
    assert np.allclose(forth, back) == symmetric


@pytest.mark.parametrize("name", SCORERS)
def test_model_scores_as_the_oracle_on_both_sides(name):
    model = jobi_tf.JoBi(9, 3, 4, name)
    triples = np.random.default_rng(2).integers((9, 3, 9), size=(20, 3))
    expected = oracle_scores(model, triples)
    np.testing.assert_allclose(model.score(triples), expected, rtol=1e-4, atol=1e-6)
    for side, column in ((HEAD, 0), (TAIL, 2)):
        unread = triples.copy()
        unread[:, column] = 0
        scores = tf.matmul(model.queries(tf.constant(unread), side), model.entity, transpose_b=True).numpy()
        np.testing.assert_allclose(scores[np.arange(20), triples[:, column]], expected, rtol=1e-4, atol=1e-6)


def test_an_unknown_scorer_is_refused():
    with pytest.raises(UsageError, match="expected a scorer out of complex, distmult, simple, got 'transe'"):
        jobi_tf.JoBi(3, 1, scorer="transe")
