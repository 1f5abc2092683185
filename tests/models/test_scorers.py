import keras
import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.data.occurrences import HEAD, TAIL
from jobi_tf.errors import UsageError
from jobi_tf.models import scorers
from jobi_tf.models.products import own_scores
from jobi_tf.models.scorers import SCORERS

from .oracles import ORACLES, WIDTHS, oracle_scores

SHAPES = [((7,), (7,), (7,)), ((5, 1), (1, 1), (1, 9)), ((), (4,), (3, 4))]
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
ON_BOTH_SIDES = [name for name in SCORERS if name != "conve"]


def draw(name, shapes, seed=0):
    """Head, relation, tail and the shared weights, for d = 5."""
    rng, (entity, relation) = np.random.default_rng(seed), WIDTHS[name]
    rows = [
        rng.normal(size=(*shape, width)).astype(np.float32)
        for shape, width in zip(shapes, (entity, relation, entity), strict=True)
    ]
    shared = {"core": rng.normal(size=(5, 25)).astype(np.float32)} if name == "tucker" else {}
    return *rows, shared


def scored(scorer, query, entity):
    return own_scores(scorer, query, scorer.candidate(entity))


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("name", ON_BOTH_SIDES)
def test_both_queries_give_the_score(name, shapes):
    scorer, (h, r, t, shared) = scorers.get(name), draw(name, shapes)
    made = scorer.relation(tf.constant(r.reshape(-1, r.shape[-1])), shared)
    made = tf.reshape(made, [*r.shape[:-1], made.shape[-1]])
    by_tail, by_head = scored(scorer, scorer.tail_query(h, made), t), scored(scorer, scorer.head_query(made, t), h)
    np.testing.assert_allclose(by_tail, ORACLES[name](h, r, t, **shared), **CLOSE)
    np.testing.assert_allclose(by_head, ORACLES[name](h, r, t, **shared), **CLOSE)


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("name", ON_BOTH_SIDES)
def test_a_model_scores_as_the_oracle_on_both_sides(name, reciprocal):
    model = jobi_tf.JoBi(9, 3, 4, name, reciprocal=reciprocal)
    for table in model.weights:  # far enough from zero that mistakes show
        table.assign(3 * table)
    triples = np.random.default_rng(2).integers((9, 3, 9), size=(20, 3))
    np.testing.assert_allclose(model.score(triples), oracle_scores(model, triples), **CLOSE)
    for side, column in ((HEAD, 0), (TAIL, 2)):
        unread = triples.copy()
        unread[:, column] = 0
        scores = model.scores(tf.constant(unread), side).numpy()
        expected = oracle_scores(model, triples, side)
        np.testing.assert_allclose(scores[np.arange(20), triples[:, column]], expected, **CLOSE)


@pytest.mark.parametrize("name", ["transe", "rotate"])
def test_a_distance_of_zero_has_a_gradient(name):
    scorer, (h, r, _, _) = scorers.get(name), draw(name, SHAPES[0])
    point = tf.Variable(scorer.tail_query(tf.constant(h), tf.constant(r))[..., :-2] / 2)  # of a query [2q, -1, -|q|²]
    with tf.GradientTape() as tape:
        score = scored(scorer, scorer.tail_query(h, r), point)
    assert float(tf.reduce_max(tf.abs(score))) < 0.01
    assert np.isfinite(tape.gradient(score, point).numpy()).all()


def test_angles_start_anywhere_on_the_circle_and_other_relations_small():
    angles = jobi_tf.JoBi(3, 500, 20, "rotate").heads[0].relations.table.numpy()
    assert angles.min() < -3.1
    assert angles.max() > 3.1
    assert angles.std() == pytest.approx(2 * np.pi / np.sqrt(12), rel=0.02)
    small = jobi_tf.JoBi(3, 500, 20, "transe").heads[0].relations.table.numpy()
    assert small.std() == pytest.approx(np.sqrt(2 / 520), rel=0.02)


def test_matrices_of_tucker_start_as_large_as_those_of_rescal():
    tucker, rescal = (jobi_tf.JoBi(3, 50, 40, name) for name in ("tucker", "rescal"))
    made = tucker.heads[0].all_relations().numpy()
    assert made.std() == pytest.approx(rescal.heads[0].all_relations().numpy().std(), rel=0.1)
    assert not np.array_equal(*(head.shared["core"].numpy() for head in tucker.heads))


def test_scorers_by_name_or_as_objects():
    for name, cls in SCORERS.items():
        assert type(scorers.get(name)) is cls
        assert scorers.get(name).name == name
        assert scorers.get(cls.__name__) is scorers.get(name)
        serialized = keras.saving.serialize_keras_object(cls())
        assert scorers.get(name) is scorers.get(serialized)  # what is compiled for one model serves the others
    assert scorers.get(mine := scorers.SimplE()) is mine
    for wrong in ("transf", 3, None):
        with pytest.raises(UsageError, match=f"{wrong}"):
            jobi_tf.JoBi(3, 1, scorer=wrong)


class WithArgument(scorers.DistMult):
    def __init__(self, power):
        self.power = power


def test_a_scorer_by_name_has_no_arguments():
    with pytest.raises(UsageError, match=r"WithArgument .*power"):
        scorers.get(f"{__name__}:WithArgument")


class TailsOnly(jobi_tf.Scorer):
    def tail_query(self, head, relation):
        return head * relation


@pytest.mark.parametrize("scorer", ["conve", TailsOnly()])
def test_a_scorer_without_a_head_query_needs_reciprocal_relations(scorer):
    with pytest.raises(UsageError, match="reciprocal"):
        jobi_tf.JoBi(9, 3, 12, scorer)
    assert jobi_tf.JoBi(9, 3, 12, scorer, reciprocal=True).scores([[0, 1, 2]], HEAD).shape == (1, 9)


@pytest.mark.parametrize("name", ["rescal", "tucker"])
def test_no_queries_have_no_scores(name):
    model = jobi_tf.JoBi(5, 3, 4, name)
    assert model.scores(np.zeros((0, 3), np.int32), TAIL).shape == (0, 5)
    assert model.score(np.zeros((0, 3), np.int32)).shape == (0,)
