"""Runs whose batches are queries with their answers."""

import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.data import batches
from jobi_tf.errors import UsageError
from jobi_tf.losses import FullSoftmax, PairCrossentropy
from jobi_tf.training.assembly import epoch
from tests.graphs import random_graph

from .test_train import Interrupt, assert_same_run, rows
from .test_train import train as train_plainly

SETTINGS = {"loss": "full-softmax", "learning_rate": 0.05, "reciprocal": True, "n3": 0.01}
COMPARED = {"few": {"pair_entities": 7}, "every": {}}


def train(folder, **settings):
    return train_plainly(folder, **SETTINGS | settings)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("runs") / "whole", entity_dropout=0.1, schedule="cosine")


def test_a_run_that_was_interrupted_is_resumed_exactly(run, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", entity_dropout=0.1, schedule="cosine", callbacks=[Interrupt("within an epoch", 3)])
    jobi_tf.resume(tmp_path / "run")
    assert_same_run(run.path, tmp_path / "run")


def test_the_loss_falls_and_the_rate_counts_triples(run):
    first, *_, last = rows(run.path)
    assert last["triple_loss"] < 0.95 * first["triple_loss"]
    assert first["loss"] == pytest.approx(first["triple_loss"] + first["pair_loss"] + first["n3"], rel=1e-4)
    assert first["triples_per_second"] * first["seconds"] == pytest.approx(epoch(run.config, run.graph).triples)


def test_the_loss_of_the_triple_head_is_without_penalty_and_that_of_relations(tmp_path):
    options = {"joint": False, "epochs": 1, "learning_rate": 1e-9, "eval_every": 0}
    row = rows(train(tmp_path / "run", relation_prediction=2.0, **options).path)[0]
    assert row["loss"] == pytest.approx(row["triple_loss"] + row["n3"] + row["relation_prediction"])
    assert row["relation_prediction"] > 0
    assert row["n3"] > 0
    bare = rows(train(tmp_path / "bare", n3=0.0, **options).path)[0]
    assert row["triple_loss"] == pytest.approx(bare["triple_loss"], rel=1e-5)


def test_products_in_bfloat16_give_nearly_the_same_training(tmp_path):
    options = {"epochs": 2, "eval_every": 0}
    exact, rounded = (rows(train(tmp_path / x, precision=x, **options).path)[-1] for x in ("float32", "bfloat16"))
    assert rounded["loss"] == pytest.approx(exact["loss"], rel=0.02)
    assert rounded["loss"] != exact["loss"]


def test_distances_are_not_computed_in_bfloat16():
    with pytest.raises(UsageError, match="transe"):
        jobi_tf.JoBi(9, 2, dim=4, scorer="transe", precision="bfloat16")


def test_with_one_answer_a_query_each_triple_is_two_queries(tmp_path):
    options = {"answers_per_query": 1, "checkpoint_every": "1", "eval_every": 0}
    run = train(tmp_path / "whole", **options)
    triples = len(run.graph.train)
    assert batches.number_of_queries(run.graph, answers_per_query=1) == 2 * triples
    steps = 2 * triples // run.config.batch_size
    assert epoch(run.config, run.graph) == (steps, round(steps * run.config.batch_size / 2))
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", **options, callbacks=[Interrupt("within an epoch", 3)])
    jobi_tf.resume(tmp_path / "run")
    assert_same_run(run.path, tmp_path / "run")


def test_a_pair_loss_of_some_entities_is_that_of_all_in_the_mean(tmp_path):
    options = {"learning_rate": 1e-9, "epochs": 1, "batch_size": 10, "n3": 0.0, "eval_every": 0}
    few, every = (rows(train(tmp_path / name, **options, **more).path)[0] for name, more in COMPARED.items())
    assert few["triple_loss"] == pytest.approx(every["triple_loss"], rel=1e-5)
    assert few["pair_loss"] == pytest.approx(every["pair_loss"], rel=0.01)
    assert few["pair_loss"] != every["pair_loss"]


def test_queries_in_parts_have_the_loss_and_the_gradient_of_whole_ones():
    graph = random_graph(entities=20, relations=2, train=300)
    found = []
    for most in (1, batches.ANSWERS_PER_QUERY, 10**6):
        count = batches.number_of_queries(graph, answers_per_query=most)
        (inputs, labels, weights), *_ = batches.query_batches(graph, count, answers_per_query=most).take(1)
        regularizers = [jobi_tf.N3(0.1), jobi_tf.L2(0.2), jobi_tf.RelationPrediction(0.5)]
        model = jobi_tf.JoBi(20, 2, 4, reciprocal=True, regularizers=regularizers)
        with tf.GradientTape() as tape:
            scores = model(inputs, training=True)
            losses = [FullSoftmax()(labels["triple"], scores["triple"], weights["triple"])]
            losses.append(PairCrossentropy()(labels["pair"], scores["pair"], weights["pair"]))
            loss = tf.add_n([*losses, *model.losses])
        found.append([count, loss, *map(tf.convert_to_tensor, tape.gradient(loss, model.trainable_variables))])
    counts = [x[0] for x in found]
    assert counts == sorted(set(counts), reverse=True)
    for one, other in ((found[0], found[1]), (found[1], found[2])):
        for a, b in zip(one[1:], other[1:], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_falling_learning_rate_keeps_its_number_of_epochs(run):
    with pytest.raises(UsageError, match=r"6 epochs .*cosine.* 9"):
        jobi_tf.resume(run.path, epochs=9)
