import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.errors import UsageError
from jobi_tf.models.full_scores import full_scores, table_and_rows
from jobi_tf.models.scorer import Relations
from jobi_tf.models.scorers import SCORERS, get_scorer

from .oracles import oracle_scores
from .test_batch_scores import relation_width

WIDTH, ENTITIES = 6, 9
SIDES = np.array([0, 0, 0, 1, 1])


def queries(model, sides=SIDES, seed=0):
    rng = np.random.default_rng(seed)
    anchor, relation = rng.integers(model.num_entities, size=5), rng.integers(model.num_relations, size=5)
    inputs = {"anchor": anchor, "relation": relation, "side": sides, "answers": np.array([[1, -1]] * 5)}
    return {name: tf.constant(x, tf.int32) for name, x in inputs.items()} | {"weight": tf.ones([5])}


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("scorer", SCORERS)
def test_every_entity_is_scored_by_both_heads_as_the_oracle_does(scorer, reciprocal):
    model = jobi_tf.JoBi(ENTITIES, 3, 4, scorer, reciprocal=reciprocal)
    inputs = queries(model)
    found = model(inputs)
    for head, name in enumerate(("triple", "pair")):
        assert found[name].shape == (5, ENTITIES)
        for row, (anchor, relation, side) in enumerate(
            zip(*(inputs[x].numpy() for x in ("anchor", "relation", "side")), strict=True)
        ):
            triples = np.full((ENTITIES, 3), relation)
            triples[:, 0], triples[:, 2] = (anchor, np.arange(ENTITIES)) if side else (np.arange(ENTITIES), anchor)
            expected = oracle_scores(model, triples, side, head)
            np.testing.assert_allclose(found[name][row], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("places", [None, [3, 0, 3, 4, 0]])
@pytest.mark.parametrize("sides", [np.zeros(5), np.ones(5), SIDES])
@pytest.mark.parametrize("scorer", SCORERS)
def test_gradients_equal_those_of_each_side_by_itself(scorer, sides, places):
    rng, function = np.random.default_rng(1), get_scorer(scorer)
    sizes = [(ENTITIES, WIDTH), (5, WIDTH), (5, relation_width(scorer)), (5, relation_width(scorer))]
    inputs = [tf.constant(rng.normal(size=size).astype(np.float32)) for size in sizes]
    side, place = tf.constant(sides, tf.int32), None if places is None else tf.constant(places)

    def plain(table, anchor, *relations):
        made = function.candidate(table)
        relations = relations if places is None else [tf.gather(x, places) for x in relations]
        pairs = [(function.head_query(r, anchor), function.tail_query(anchor, r)) for r in relations]
        chosen = [tf.where(side[:, None] == 0, *pair) for pair in pairs]
        return [function.scores(q, lambda x: tf.einsum("bw,ew->be", x, made)) for q in chosen]

    def grouped(table, anchor, *relations):
        return full_scores(function, [table] * 2, [Relations(x, place) for x in relations], anchor, side)

    results = []
    for scores in (grouped, plain):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = tf.stack(scores(*inputs))
            loss = tf.reduce_sum(tf.sin(found) * tf.reshape(tf.range(90.0), found.shape))
        results.append([found, *map(tf.convert_to_tensor, tape.gradient(loss, inputs))])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("scorer", SCORERS)
def test_the_pair_head_can_score_some_entities(scorer):
    model = jobi_tf.JoBi(ENTITIES, 3, 4, scorer)
    inputs, chosen = queries(model), np.array([5, 0, 7])
    few = model(inputs | {"pair_entities": tf.constant(np.tile(chosen, (5, 1)), tf.int32)})
    every = model(inputs)
    np.testing.assert_allclose(few["pair"], every["pair"].numpy()[:, chosen], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(few["triple"], every["triple"])


def test_a_table_and_rows_of_it_have_one_gradient():
    table = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2))
    with tf.GradientTape() as tape:
        whole, twice, once = table_and_rows(table, tf.constant([3, 3]), tf.constant([0]))
        loss = tf.reduce_sum(whole * 2) + tf.reduce_sum(twice * [[1.0], [10.0]]) + tf.reduce_sum(once * 100)
    np.testing.assert_array_equal(twice, [[6, 7], [6, 7]])
    np.testing.assert_array_equal(once, [[0, 1]])
    np.testing.assert_array_equal(tape.gradient(loss, table), [[102, 102], [2, 2], [2, 2], [13, 13]])


@pytest.mark.parametrize("penalised", [0.0, 0.1])
def test_the_gradient_of_the_entities_is_one_table(penalised):
    model = jobi_tf.JoBi(ENTITIES, 3, 4, n3=penalised)
    with tf.GradientTape() as tape:
        scores = model(queries(model), training=True)
        loss = tf.add_n([tf.reduce_sum(tf.sin(x)) for x in scores.values()] + model.losses)
    gradients = tape.gradient(loss, [x.value for x in model.trainable_variables])
    assert isinstance(gradients[0], tf.Tensor)
    assert all(isinstance(x, tf.IndexedSlices) for x in gradients[1:])


def test_reciprocal_relations_refuse_triples():
    ids = tf.constant([0, 1], tf.int32)
    inputs = {"head": ids, "relation": ids, "tail": ids, "candidates": ids[:, None], "head_corruptions": ids}
    with pytest.raises(UsageError, match="expected queries, or candidates by side, as reciprocal relations have two"):
        jobi_tf.JoBi(4, 2, 3, reciprocal=True)(inputs)
