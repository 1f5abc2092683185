"""Regularisers and dropout, in each form of a batch."""

import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.errors import UsageError
from jobi_tf.models.scorers import SCORERS

from .batches import BY_SIDE, ENTITIES, FORMS, RELATIONS, batch, triples_of
from .oracles import ORACLES, moduli, shared_weights, tables

N3, PAIR_N3, L2 = 0.5, 0.25, 0.125
LINEAR = ["complex", "distmult", "simple", "rescal", "tucker"]


def norms():
    return [jobi_tf.N3(N3, PAIR_N3), jobi_tf.L2(L2)]


def relation_row(model, relation, side):
    return model.num_relations + relation if model.reciprocal and side == 0 else relation


def norms_oracle(model, inputs):
    """Lacroix et al.: λ/3 Σ |x|³ over head, relation and tail of each triple; the same with λ/2 and |x|²."""
    triples, count = triples_of(inputs)
    entity = tables(model)[0]
    total = 0.0
    for (head, relation, tail), weight, side in triples:
        sizes = [(moduli(model.scorer.name, entity[x]), N3) for x in (head, tail)]
        for place, n3 in ((0, N3), (1, PAIR_N3)):
            row = tables(model, place)[1][relation_row(model, relation, side)]
            if model.scorer.name != "rotate":  # angles have no size
                sizes.append((moduli(model.scorer.name, row, types=2), n3))
        total += weight * sum(n3 / 3 * (x**3).sum() + L2 / 2 * (x**2).sum() for x, n3 in sizes)
    return total / count


def prediction_oracle(model, inputs):
    """The mean over triples of ln Σ exp(score of every relation) minus the score of the triple's own."""
    triples, count = triples_of(inputs)
    entity, relations = tables(model)
    total = 0.0
    for (head, relation, tail), weight, side in triples:
        h, t = entity[[head]], entity[[tail]]
        if model.reciprocal and side == 0:
            h, t = t, h
        scores = ORACLES[model.scorer.name](h, relations, t, **shared_weights(model))
        loss = np.log(np.exp(scores).sum()) - scores[relation_row(model, relation, side)]
        total += (0.5 if "anchors" in inputs else 1) * weight * loss  # in queries a triple occurs once for each side
    return total / count


def dura_oracle(model, inputs):
    """Zhang et al.: ½ (|h|² + |t|² + |h·R|² + |R·t|²) of each triple, the products by scores of unit vectors."""
    triples, count = triples_of(inputs)
    entity, relations = tables(model)
    units, score, total = np.eye(entity.shape[1]), ORACLES[model.scorer.name], 0.0
    for (head, relation, tail), weight, side in triples:
        h, t = entity[[head]], entity[[tail]]
        if model.reciprocal and side == 0:
            h, t = t, h
        r, shared = relations[[relation_row(model, relation, side)]], shared_weights(model)
        rows = [h, t, score(h, r, units, **shared), score(units, r, t, **shared)]
        total += weight / 2 * sum((x**2).sum() for x in rows)
    return total / count


def added(model, inputs, training=True):
    model(inputs, training=training)
    return float(tf.add_n(model.losses))


def assert_gradients(model, inputs, oracle, rel):
    variables = [model.entities.table, *(head.relations.table for head in model.heads)]
    with tf.GradientTape() as tape:
        model(inputs, training=True)
        loss = tf.add_n(model.losses)
    gradients = tape.gradient(loss, [x.value for x in variables], unconnected_gradients="zero")
    for table, found in zip(variables, gradients, strict=True):
        start, found = table.numpy(), tf.convert_to_tensor(found).numpy()
        for place in [(1, 2), (2, 3), (3, 1)]:
            values = []
            for step in (1e-2, -1e-2):
                moved = start.copy()
                moved[place] += step
                table.assign(moved)
                values.append(oracle(model, inputs))
            table.assign(start)
            assert found[place] == pytest.approx((values[0] - values[1]) / 2e-2, rel=rel, abs=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scorer", [x for x in SCORERS if x != "conve"])
def test_norms_are_those_of_the_triples(scorer, form):
    reciprocal = form in BY_SIDE and scorer in ("complex", "tucker")
    model = jobi_tf.JoBi(ENTITIES, RELATIONS, 4, scorer, reciprocal=reciprocal, regularizers=norms())
    inputs = batch(form, weights=True)
    expected = pytest.approx(norms_oracle(model, inputs), rel=1e-4)
    assert added(model, inputs) == expected
    assert [x.name for x in model.metrics[-2:]] == ["n3", "l2"]
    assert sum(float(x.result()) for x in model.metrics[-2:]) == expected
    assert added(model, inputs, training=False) == expected  # a validation loss has them too


@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_norms(form):
    model = jobi_tf.JoBi(ENTITIES, RELATIONS, 4, regularizers=norms())
    assert_gradients(model, batch(form), norms_oracle, rel=2e-2)


def test_the_norm_of_zeros_has_a_gradient_of_zero():
    squares = tf.Variable(tf.zeros([2, 3]))
    with tf.GradientTape() as tape:
        value = jobi_tf.N3().penalty(squares)
    np.testing.assert_allclose(value, [0, 0], atol=1e-20)
    np.testing.assert_allclose(tape.gradient(value, squares), np.zeros((2, 3)), atol=1e-10)


@pytest.mark.parametrize(
    ("scorer", "form", "reciprocal"),
    [(x, form, y) for x in LINEAR for form in FORMS for y in ((False, True) if form in BY_SIDE else (False,))],
)
@pytest.mark.parametrize(
    ("kind", "oracle"), [(jobi_tf.DURA, dura_oracle), (jobi_tf.RelationPrediction, prediction_oracle)]
)
def test_dura_and_relation_prediction_are_those_of_the_triples(scorer, form, reciprocal, kind, oracle):
    options = {"reciprocal": reciprocal, "regularizers": [kind(2.0)]}
    model, inputs = jobi_tf.JoBi(ENTITIES, RELATIONS, 4, scorer, **options), batch(form, weights=True)
    for table in model.weights:  # far enough from zero that mistakes show
        table.assign(2 * table)
    assert added(model, inputs) == pytest.approx(2 * oracle(model, inputs), rel=1e-5)
    if scorer in ("complex", "tucker"):
        assert_gradients(model, inputs, lambda *x: 2 * oracle(*x), rel=5e-3)


@pytest.mark.parametrize("name", [x for x in SCORERS if x not in LINEAR and x != "conve"])
@pytest.mark.parametrize("regularizer", ["relation_prediction", "dura"])
def test_other_scorers_refuse_relation_prediction_and_dura(name, regularizer):
    with pytest.raises(UsageError, match=name):
        jobi_tf.JoBi(ENTITIES, RELATIONS, 4, name, regularizers=[regularizer], reciprocal=name == "conve")


@pytest.mark.parametrize("kind", [jobi_tf.N3, jobi_tf.L2, jobi_tf.DURA, jobi_tf.RelationPrediction])
@pytest.mark.parametrize("weight", [-0.1, float("nan")])
def test_a_weight_is_not_negative(kind, weight):
    with pytest.raises(jobi_tf.UsageError, match=str(weight)):
        kind(weight)


def test_regularizers_by_name():
    (found,) = jobi_tf.JoBi(3, 2, regularizers="n3").regularizers
    assert found.get_config() == jobi_tf.N3().get_config()
    with pytest.raises(UsageError, match="n4"):
        jobi_tf.JoBi(3, 2, regularizers=["n4"])
    with pytest.raises(UsageError, match="Loss"):
        jobi_tf.JoBi(3, 2, regularizers=[type("Loss", (jobi_tf.N3,), {})()])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("where", ["entity", "relation"])
def test_dropout_drops_in_training_only(form, where):
    inputs = batch(form)
    plain, dropping = (jobi_tf.JoBi(ENTITIES, RELATIONS, 4, **{f"{where}_dropout": x}) for x in (0.0, 0.5))
    np.testing.assert_array_equal(dropping(inputs)["triple"], plain(inputs)["triple"])
    first, second = (dropping(inputs, training=True)["triple"].numpy() for _ in range(2))
    assert (first != second).any()
    assert np.isfinite(first).all()
    # The mean over many draws is as without dropout, since the other numbers are scaled up.
    drawn = tf.function(lambda: dropping(inputs, training=True)["pair"])
    draws = np.mean([drawn().numpy() for _ in range(300)], 0)
    expected = plain(inputs)["pair"].numpy()
    assert abs(draws - expected).mean() < 0.3 * abs(expected).mean()


@pytest.mark.parametrize("form", FORMS)
def test_a_known_entity_is_dropped_from_its_query_and_not_as_a_candidate(form):
    model = jobi_tf.JoBi(ENTITIES, RELATIONS, 4, "transe", entity_dropout=0.5)
    model.heads[0].relations.table.assign(tf.zeros([RELATIONS, 4]))
    model.entities.table.assign(tf.ones([ENTITIES, 4]))
    scores = model(batch(form), training=True)["triple"].numpy()
    # Each number of the query is 0 or 2, of the candidate 1: whatever was dropped, each of 4 numbers is off by 1.
    np.testing.assert_allclose(scores, np.full(scores.shape, -2.0), atol=1e-3)
