from typing import get_args

import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.data.occurrences import HEAD, TAIL
from jobi_tf.errors import UsageError
from jobi_tf.models.reciprocal import Reciprocal
from jobi_tf.models.scorers import SCORERS, TAIL_SCORERS, get_scorer
from jobi_tf.training.config import TrainConfig

from .oracles import ORACLES, WIDTHS, oracle_scores

SHAPES = [((7,), (7,), (7,)), ((5, 1), (1, 1), (1, 9)), ((), (4,), (3, 4))]
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def draw(name, shapes, seed=0):
    """Head, relation, tail and the weights in common, for d = 5."""
    rng, (entity, relation) = np.random.default_rng(seed), WIDTHS[name]
    rows = [
        rng.normal(size=(*shape, width)).astype(np.float32)
        for shape, width in zip(shapes, (entity, relation, entity), strict=True)
    ]
    common = {"core": rng.normal(size=(5, 25)).astype(np.float32)} if name == "tucker" else {}
    return *rows, common


def scored(scorer, query, entity):
    return scorer.scores(query, lambda x: tf.reduce_sum(x * scorer.candidate(entity), -1))


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("name", SCORERS)
def test_both_queries_give_the_score(name, shapes):
    scorer, (h, r, t, common) = get_scorer(name), draw(name, shapes)
    made = scorer.relation(tf.constant(r.reshape(-1, r.shape[-1])), common)
    made = tf.reshape(made, [*r.shape[:-1], made.shape[-1]])
    by_tail, by_head = scored(scorer, scorer.tail_query(h, made), t), scored(scorer, scorer.head_query(made, t), h)
    np.testing.assert_allclose(by_tail, ORACLES[name](h, r, t, **common), **CLOSE)
    np.testing.assert_allclose(by_head, ORACLES[name](h, r, t, **common), **CLOSE)


@pytest.mark.parametrize("name", SCORERS)
def test_reciprocal_relations_ask_for_heads_by_their_second_half(name):
    (h, r, t, common), (_, inverse, _, _) = draw(name, SHAPES[0]), draw(name, SHAPES[0], 1)
    scorer = Reciprocal(get_scorer(name))
    assert (scorer.entity_width(5), scorer.relation_width(5)) == (WIDTHS[name][0], 2 * WIDTHS[name][1])
    made = scorer.relation(tf.concat([r, inverse], -1), common)
    by_tail, by_head = scored(scorer, scorer.tail_query(h, made), t), scored(scorer, scorer.head_query(made, t), h)
    np.testing.assert_allclose(by_tail, ORACLES[name](h, r, t, **common), **CLOSE)
    np.testing.assert_allclose(by_head, ORACLES[name](t, inverse, h, **common), **CLOSE)


@pytest.mark.parametrize(("name", "symmetric"), [("distmult", True), *((x, False) for x in SCORERS if x != "distmult")])
def test_symmetry(name, symmetric):
    h, r, t, common = draw(name, SHAPES[0])
    scorer = get_scorer(name)
    made = scorer.relation(tf.constant(r), common)
    forth, back = (scored(scorer, scorer.tail_query(a, made), b) for a, b in ((h, t), (t, h)))
    assert np.allclose(forth, back) == symmetric


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("name", SCORERS)
def test_model_scores_as_the_oracle_on_both_sides(name, reciprocal):
    model = jobi_tf.JoBi(9, 3, 4, name, reciprocal=reciprocal)
    for table in model.weights:  # far enough from zero that mistakes show
        table.assign(3 * table)
    triples = np.random.default_rng(2).integers((9, 3, 9), size=(20, 3))
    np.testing.assert_allclose(model.score(triples), oracle_scores(model, triples), rtol=1e-4, atol=1e-4)
    for side, column in ((HEAD, 0), (TAIL, 2)):
        unread = triples.copy()
        unread[:, column] = 0
        scores = model.scores(tf.constant(unread), side).numpy()
        expected = oracle_scores(model, triples, side)
        np.testing.assert_allclose(scores[np.arange(20), triples[:, column]], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["transe", "rotate"])
def test_a_distance_of_nothing_has_a_gradient(name):
    scorer, (h, r, _, _) = get_scorer(name), draw(name, SHAPES[0])
    point = tf.Variable(scorer.tail_point(tf.constant(h), tf.constant(r)))
    with tf.GradientTape() as tape:
        score = scored(scorer, scorer.tail_query(h, r), point)
    assert scorer.distance
    assert float(tf.reduce_max(tf.abs(score))) < 0.01
    assert np.isfinite(tape.gradient(score, point).numpy()).all()


def test_angles_start_all_around_the_circle_and_other_relations_small():
    angles = jobi_tf.JoBi(3, 500, 20, "rotate").triple_relation.numpy()
    assert angles.min() < -3.1
    assert angles.max() > 3.1
    assert angles.std() == pytest.approx(2 * np.pi / np.sqrt(12), rel=0.02)
    assert jobi_tf.JoBi(3, 500, 20, "transe").triple_relation.numpy().std() == pytest.approx(np.sqrt(2 / 520), rel=0.02)


def test_matrices_of_tucker_start_as_large_as_those_of_rescal():
    tucker, rescal = (jobi_tf.JoBi(3, 50, 40, name) for name in ("tucker", "rescal"))
    made = tucker.triple_relation.numpy() @ tucker.common[0]["core"].numpy()
    assert made.std() == pytest.approx(rescal.triple_relation.numpy().std(), rel=0.1)
    assert not np.array_equal(*(x["core"].numpy() for x in tucker.common))


def test_the_settings_name_the_scorers():
    assert get_args(TrainConfig.model_fields["model"].annotation) == (*SCORERS, *TAIL_SCORERS)


def test_an_unknown_scorer_is_refused():
    with pytest.raises(
        UsageError, match=f"expected a scorer out of {', '.join([*SCORERS, *TAIL_SCORERS])}, got 'transf'"
    ):
        jobi_tf.JoBi(3, 1, scorer="transf")
