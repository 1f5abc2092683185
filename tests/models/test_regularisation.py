"""Penalties and dropout, in each of the forms of a batch."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.models.penalties import penalty
from jobi_tf.models.scorers import SCORERS

from .oracles import moduli

ENTITIES, RELATIONS = 9, 4
FORMS = ["own", "by side", "shared", "shared by side", "all"]
BY_SIDE = ["by side", "shared by side", "all"]


def batch(form, seed=0):
    rng = np.random.default_rng(seed)
    if form == "all":
        inputs = {
            "anchor": rng.integers(ENTITIES, size=4),
            "relation": rng.integers(RELATIONS, size=4),
            "side": [0, 0, 1, 1],
            "answers": [[1, 2, 3], [5, -1, -1], [0, 4, -1], [8, 7, 6]],
        }
        weight = {"weight": tf.constant([1.5, 0.5, 1.0, 1.5])}
    else:
        shape = (2, 3) if form.startswith("shared") else (6,)
        sizes = {"head": ENTITIES, "relation": RELATIONS, "tail": ENTITIES}
        inputs = {name: rng.integers(size, size=shape) for name, size in sizes.items()}
        inputs["candidates"] = rng.integers(ENTITIES, size=(shape[0], *((2, 2) if form in BY_SIDE else (4,))))
        if form == "own":
            inputs["head_corruptions"] = rng.integers(5, size=6)
        weight = {}
    return {name: tf.constant(x, tf.int32) for name, x in inputs.items()} | weight


def triples_of(inputs):
    """The triples that a batch stands for, [N, 3], with what each counts and the side that is sought."""
    if "anchor" not in inputs:
        triples = np.stack([inputs[name].numpy().ravel() for name in ("head", "relation", "tail")], 1)
        sides = ((0.5, 0), (0.5, 1)) if inputs["candidates"].ndim == 3 else ((1.0, None),)
        return [(triple, *side) for triple in triples for side in sides], len(triples)
    found = []
    for anchor, relation, side, answers, weight in zip(*(inputs[x].numpy() for x in inputs), strict=True):
        answers = answers[answers >= 0]
        for answer in answers:
            triple = (anchor, relation, answer) if side else (answer, relation, anchor)
            found.append((triple, weight / len(answers), side))
    return found, len(inputs["anchor"])


def oracle(model, inputs):
    """Lacroix et al.: λ/3 Σ |x|³ over head, relation and tail of each triple; the same with λ/2 and |x|²."""
    triples, count = triples_of(inputs)
    entity = model.entity.numpy().astype(np.float64)
    total = 0.0
    for (head, relation, tail), weight, side in triples:
        sizes = [(moduli(model.scorer, entity[x]), model.n3) for x in (head, tail)]
        for table, n3 in ((model.triple_relation, model.n3), (model.pair_relation, model.n3_pair)):
            row = table.numpy()[relation].astype(np.float64)
            if model.reciprocal:
                row = np.split(row, 2)[0 if side else 1]
            if model.scorer != "rotate":  # angles have no size
                sizes.append((moduli(model.scorer, row, types=2), n3))
        total += weight * sum(n3 / 3 * (x**3).sum() + model.l2 / 2 * (x**2).sum() for x, n3 in sizes)
    return total / count


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scorer", SCORERS)
def test_penalties_are_those_of_the_triples(scorer, form):
    reciprocal = form in BY_SIDE and scorer in ("complex", "tucker")
    model = jobi_tf.JoBi(ENTITIES, RELATIONS, 4, scorer, n3=0.5, n3_pair=0.25, l2=0.125, reciprocal=reciprocal)
    inputs = batch(form)
    model(inputs, training=True)
    assert float(tf.add_n(model.losses)) == pytest.approx(oracle(model, inputs), rel=1e-4)
    assert float(model.metrics[-1].result()) == pytest.approx(oracle(model, inputs), rel=1e-4)
    assert model.metrics[-1].name == "penalty"
    model(inputs, training=False)
    assert not model.losses


@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_penalties(form):
    model, inputs = jobi_tf.JoBi(ENTITIES, RELATIONS, 4, n3=0.5, n3_pair=0.25, l2=0.125), batch(form)
    variables = [x.value for x in model.trainable_variables]
    with tf.GradientTape() as tape:
        model(inputs, training=True)
        loss = tf.add_n(model.losses)
    for table, found in zip(model.trainable_variables, tape.gradient(loss, variables), strict=True):
        start, found = table.numpy(), tf.convert_to_tensor(found).numpy()
        for place in [(1, 2), (2, 5), (3, 7)]:
            slopes = []
            for step in (1e-3, -1e-3):
                moved = start.copy()
                moved[place] += step
                table.assign(moved)
                slopes.append(oracle(model, inputs))
            table.assign(start)
            assert found[place] == pytest.approx((slopes[0] - slopes[1]) / 2e-3, rel=1e-2, abs=1e-5)


def test_a_penalty_of_zeros_has_a_gradient_of_zero():
    squares = tf.Variable(tf.zeros([2, 3]))
    with tf.GradientTape() as tape:
        value = penalty(squares, 1.0, 0.0)
    np.testing.assert_allclose(value, [0, 0], atol=1e-20)
    np.testing.assert_allclose(tape.gradient(value, squares), np.zeros((2, 3)), atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("where", ["entity", "relation"])
def test_dropout_leaves_a_share_out_in_training_only(form, where):
    inputs = batch(form)
    plain, dropping = (jobi_tf.JoBi(ENTITIES, RELATIONS, 4, **{f"{where}_dropout": x}) for x in (0.0, 0.5))
    np.testing.assert_array_equal(dropping(inputs)["triple"], plain(inputs)["triple"])
    first, second = (dropping(inputs, training=True)["triple"].numpy() for _ in range(2))
    assert (first != second).any()
    assert np.isfinite(first).all()
    # In the mean over many draws nothing changes, as what stays is scaled up.
    drawn = tf.function(lambda: dropping(inputs, training=True)["pair"])
    draws = np.mean([drawn().numpy() for _ in range(300)], 0)
    expected = plain(inputs)["pair"].numpy()
    assert abs(draws - expected).mean() < 0.3 * abs(expected).mean()


@pytest.mark.parametrize("form", FORMS)
def test_a_known_entity_is_dropped_from_its_query_and_not_as_a_candidate(form):
    model = jobi_tf.JoBi(ENTITIES, RELATIONS, 4, "transe", entity_dropout=0.5)
    model.triple_relation.assign(tf.zeros_like(model.triple_relation))
    model.entity.assign(tf.ones_like(model.entity))
    scores = model(batch(form), training=True)["triple"].numpy()
    # Each number of the query is 0 or 2, of the candidate 1: whatever was dropped, each of 4 numbers is off by 1.
    np.testing.assert_allclose(scores, np.full(scores.shape, -2.0), atol=1e-3)


def test_a_restored_model_goes_on_with_the_draws_of_dropout(tmp_path):
    model, inputs = jobi_tf.JoBi(ENTITIES, RELATIONS, 4, entity_dropout=0.5, relation_dropout=0.25), batch("own")
    model(inputs, training=True)
    model.save(tmp_path / "model.keras")
    restored = keras.saving.load_model(tmp_path / "model.keras")
    for _ in range(3):
        first, second = (x(inputs, training=True)["triple"] for x in (model, restored))
        np.testing.assert_array_equal(first, second)
