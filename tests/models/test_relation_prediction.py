"""The loss of telling a triple's relation from all others, in each of the forms of a batch."""

import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.errors import UsageError
from jobi_tf.models.scorers import SCORERS, get_scorer

from .oracles import ORACLES, WIDTHS, halves, in_common
from .test_regularisation import BY_SIDE, ENTITIES, FORMS, RELATIONS, batch, triples_of

LINEAR = ["complex", "distmult", "simple", "rescal", "tucker"]
CASES = [(x, form, y) for x in LINEAR for form in FORMS for y in ((False, True) if form in BY_SIDE else (False,))]


def oracle(model, inputs):
    """The mean over triples of ln Σ exp(score of every relation) less the score of the triple's own."""
    triples, count = triples_of(inputs)
    entity, relation = (x.numpy().astype(np.float64) for x in (model.entity, model.triple_relation))
    total = 0.0
    for (head, own, tail), weight, side in triples:
        h, t, rows = entity[[head]], entity[[tail]], relation
        if model.reciprocal:  # every relation forth and back, those of this side first
            h, t = (h, t) if side else (t, h)
            rows = np.concatenate(halves(rows)[:: 1 if side else -1])
        scores = ORACLES[model.scorer](h, rows, t, **in_common(model))
        # Among queries a triple counts twice, once a side.
        total += (0.5 if "anchor" in inputs else 1) * weight * (np.log(np.exp(scores).sum()) - scores[own])
    return total / count


def built(scorer, reciprocal=False):
    model = jobi_tf.JoBi(ENTITIES, RELATIONS, 4, scorer, reciprocal=reciprocal, relation_prediction=2.0)
    for table in model.weights:  # far enough from zero that mistakes show
        table.assign(2 * table)
    return model


@pytest.mark.parametrize(("scorer", "form", "reciprocal"), CASES)
def test_the_loss_and_its_gradient(scorer, form, reciprocal):
    model, inputs = built(scorer, reciprocal), batch(form)
    tables = [model.entity, model.triple_relation, *model.common[0].values()]
    with tf.GradientTape() as tape:
        model(inputs, training=True)
        loss = tf.add_n(model.losses)
    assert float(loss) == pytest.approx(2 * oracle(model, inputs), rel=1e-5)
    assert model.metrics[-1].name == "relation_loss"
    assert float(model.metrics[-1].result()) == pytest.approx(oracle(model, inputs), rel=1e-5)
    for table, found in zip(tables, tape.gradient(loss, [x.value for x in tables]), strict=True):
        start, found = table.numpy(), tf.convert_to_tensor(found).numpy()
        for place in [(0, 0), (1, 2), (2, 3), (3, 1)]:
            values = []
            for step in (1e-2, -1e-2):
                moved = start.copy()
                moved[place] += step
                table.assign(moved)
                values.append(2 * oracle(model, inputs))
            table.assign(start)
            assert found[place] == pytest.approx((values[0] - values[1]) / 2e-2, rel=5e-3, abs=1e-4)


def test_there_is_none_outside_of_training_nor_for_the_pair_head():
    model, inputs = built("complex"), batch("own")
    model(inputs)
    assert not model.losses
    with tf.GradientTape() as tape:
        model(inputs, training=True)
        loss = tf.add_n(model.losses)
    assert tape.gradient(loss, model.pair_relation.value) is None


def test_it_is_added_to_the_penalties():
    model, inputs = built("complex"), batch("all")
    penalised = jobi_tf.JoBi(ENTITIES, RELATIONS, 4, n3=0.5)
    both = jobi_tf.JoBi(ENTITIES, RELATIONS, 4, n3=0.5, relation_prediction=2.0)
    for x in (penalised, both):
        x.set_weights(model.get_weights()[: len(x.get_weights())])
        x(inputs, training=True)
    model(inputs, training=True)
    totals = [float(tf.add_n(x.losses)) for x in (model, penalised, both)]
    assert totals[2] == pytest.approx(totals[0] + totals[1], rel=1e-5)


@pytest.mark.parametrize("name", LINEAR)
def test_a_query_for_relations_gives_the_score(name):
    rng, (entity, _) = np.random.default_rng(0), WIDTHS[name]
    h, t = rng.normal(size=(2, 6, entity)).astype(np.float32)
    scorer = get_scorer(name)
    r = rng.normal(size=(6, 25 if name in ("rescal", "tucker") else entity)).astype(np.float32)
    found = tf.reduce_sum(scorer.relation_query(h, t) * r, -1)
    np.testing.assert_allclose(found, tf.reduce_sum(scorer.tail_query(h, r) * t, -1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SCORERS)
def test_scorers_without_such_a_query_refuse(name):
    assert get_scorer(name).linear_in_relations == get_scorer(name, reciprocal=True).linear_in_relations
    assert get_scorer(name).linear_in_relations == (name in LINEAR)
    if name not in LINEAR:
        with pytest.raises(UsageError, match=f"relation_prediction to be left at 0 with the scorer {name}, got 0.5"):
            jobi_tf.JoBi(3, 2, 4, name, relation_prediction=0.5)
