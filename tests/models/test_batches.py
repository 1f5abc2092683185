"""Every form of a batch is scored as ranking scores it, and has gradients without repeated rows."""

import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.data.occurrences import HEAD, TAIL, column
from jobi_tf.errors import UsageError
from jobi_tf.models import products
from jobi_tf.models.scorers import SCORERS

from .batches import BY_SIDE, ENTITIES, FORMS, RELATIONS, batch


class TwoProducts(jobi_tf.Scorer):
    dot_products = 2

    def tail_query(self, head, relation):
        return tf.concat([head * relation, head], -1)

    def head_query(self, relation, tail):
        return tf.concat([tail * relation, tail], -1)

    def split_query(self, query):
        return tf.split(query, 2, -1)

    def score(self, first, second):
        return first + tf.tanh(second)


CASES = [
    (name, form, reciprocal)
    for name in SCORERS
    if name != "conve"
    for form in FORMS
    for reciprocal in ((False, True) if form in BY_SIDE else (False,))
]
FAST = [
    (n, f, r) for n, f, r in CASES if n in ("complex", "transe") or (n in ("tucker", "typecomplex") and f == FORMS[0])
]
FAST += [(TwoProducts(), form, False) for form in FORMS]
SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in CASES if case not in FAST]


def by_ranking(model, inputs):
    """The same scores of the triple head, out of its scores of all entities on each side."""
    inputs = {name: x.numpy() for name, x in inputs.items()}
    if "anchors" in inputs:
        rows = []
        for anchor, relation, side in zip(*(inputs[x] for x in ("anchors", "relations", "sides")), strict=True):
            triple = np.full((1, 3), relation)
            triple[0, column(1 - side)] = anchor
            rows.append(model.scores(tf.constant(triple), side)[0])
        return tf.stack(rows)
    triples = next(inputs[name] for name in ("triples", "chunks") if name in inputs)
    flat = triples.reshape(-1, 3)
    copies = len(flat) // len(triples)
    of_sides = [model.scores(tf.constant(flat), side) for side in (HEAD, TAIL)]  # [N, E]
    if "head_negatives" in inputs:
        sides = []
        for side, name in ((HEAD, "head_negatives"), (TAIL, "tail_negatives")):
            places = np.concatenate([flat[:, [column(side)]], inputs[name].repeat(copies, 0)], 1)
            sides.append(tf.gather(of_sides[side], places, batch_dims=1))
        return tf.reshape(tf.stack(sides, 1), [*triples.shape[:-1], 2, -1])
    negatives = inputs["negatives"].repeat(copies, 0)
    counts = inputs["head_counts"] if "head_counts" in inputs else np.full(len(flat), negatives.shape[1] // 2)
    heads = tf.gather(of_sides[HEAD], negatives, batch_dims=1)
    tails = tf.gather(of_sides[TAIL], negatives, batch_dims=1)
    chosen = tf.where(np.arange(negatives.shape[1]) < counts[:, None], heads, tails)
    own = tf.gather(of_sides[TAIL], flat[:, [2]], batch_dims=1)
    return tf.reshape(tf.concat([own, chosen], 1), [*triples.shape[:-1], -1])


def test_ids_are_not_rounded():
    model, inputs = jobi_tf.JoBi(ENTITIES, RELATIONS, 4), batch("own")
    with pytest.raises(UsageError, match=r"negatives .*float32"):
        model(inputs | {"negatives": tf.cast(inputs["negatives"], tf.float32) + 0.5})


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize(("name", "form", "reciprocal"), [*FAST, *SLOW])
def test_scores_and_gradients_are_those_of_ranking(name, form, reciprocal, gpu, monkeypatch):
    for module in (jobi_tf.compiled, products):
        monkeypatch.setattr(module, "on_gpu", lambda: gpu)
    model, inputs = jobi_tf.JoBi(ENTITIES, RELATIONS, 4, name, reciprocal=reciprocal), batch(form)
    tables = [model.entities.table, model.heads[0].relations.table, *model.heads[0].shared.values()]
    results = []
    for scores in (lambda: model(inputs)["triple"], lambda: by_ranking(model, inputs)):
        with tf.GradientTape() as tape:
            found = scores()
            loss = tf.reduce_sum(tf.sin(found) * tf.reshape(tf.range(float(tf.size(found))), tf.shape(found)))
        results.append([found, *map(tf.convert_to_tensor, tape.gradient(loss, [x.value for x in tables]))])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_in_a_graph_are_those_of_eager_execution(form):
    model, inputs = jobi_tf.JoBi(ENTITIES, RELATIONS, 4, regularizers=["n3"], reciprocal=form in BY_SIDE), batch(form)
    variables = [x.value for x in model.trainable_variables]

    def gradients(weight):
        with tf.GradientTape() as tape:
            scores = model(inputs)
            loss = weight * tf.add_n([tf.reduce_sum(tf.sin(x)) for x in scores.values()]) + tf.add_n(model.losses)
        return [tf.convert_to_tensor(x) for x in tape.gradient(loss, variables)]

    in_graph = tf.function(gradients, autograph=False)
    for weight in (1.0, 0.0, 1.0):  # the same again after others
        for ours, theirs in zip(in_graph(weight), gradients(weight), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_both_heads_score_alike_with_equal_relations(form):
    model, inputs = jobi_tf.JoBi(ENTITIES, RELATIONS, 4), batch(form)
    model.heads[1].relations.table.assign(model.heads[0].relations.table)
    scores = model(inputs)
    assert list(scores) == ["triple", "pair"]
    np.testing.assert_allclose(scores["triple"], scores["pair"], rtol=1e-6)
    assert list(jobi_tf.JoBi(ENTITIES, RELATIONS, 4, joint=False)(inputs)) == ["triple"]


@pytest.mark.parametrize(("regularizers", "gpu"), [([], False), (["n3"], False), (["n3"], True)])
@pytest.mark.parametrize("form", FORMS)
def test_no_row_is_repeated_in_a_gradient(form, regularizers, gpu, monkeypatch):
    monkeypatch.setattr(products, "on_gpu", lambda: gpu)
    model = jobi_tf.JoBi(ENTITIES, RELATIONS, 4, regularizers=regularizers)

    def gradients():
        with tf.GradientTape() as tape:
            scores = model(batch(form), training=True)
            loss = tf.add_n([tf.reduce_sum(tf.sin(x)) for x in scores.values()] + model.losses)
        return tape.gradient(loss, [x.value for x in model.trainable_variables])

    sparse = gradients()
    of_entities = [sparse[0]] if form != "queries" else []
    for gradient in (*of_entities, *sparse[1:]):
        assert isinstance(gradient, tf.IndexedSlices)  # a step must not cost the whole table
        ids = gradient.indices.numpy().tolist()
        assert len(ids) == len(set(ids))
    for table in (model.entities, *(head.relations for head in model.heads)):
        table.sparse_gradient = False
    for a, b in zip(sparse, gradients(), strict=True):
        assert isinstance(b, tf.Tensor)
        np.testing.assert_allclose(tf.convert_to_tensor(a), b, rtol=1e-5, atol=1e-6)


def test_the_pair_head_can_score_some_entities():
    model, chosen = jobi_tf.JoBi(ENTITIES, RELATIONS, 4), np.array([5, 0, 7])
    inputs = batch("queries")
    some = model(inputs | {"pair_entities": tf.constant(np.tile(chosen, (4, 1)), tf.int32)})
    every = model(inputs)
    np.testing.assert_allclose(some["pair"], every["pair"].numpy()[:, chosen], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(some["triple"], every["triple"])


@pytest.mark.parametrize("form", ["own", "shared"])
def test_reciprocal_relations_refuse_one_list_for_both_sides(form):
    with pytest.raises(UsageError, match=r"by.side"):
        jobi_tf.JoBi(ENTITIES, RELATIONS, 4, reciprocal=True)(batch(form))


@pytest.mark.parametrize("change", [{"tails": tf.zeros([6, 2], tf.int32)}, {"head_counts": None}])
def test_other_keys_are_refused(change):
    inputs = {name: x for name, x in (batch("own") | change).items() if x is not None}
    with pytest.raises(UsageError, match="head_counts"):
        jobi_tf.JoBi(ENTITIES, RELATIONS, 4)(inputs)
