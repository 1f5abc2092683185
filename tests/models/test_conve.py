"""ConvE: its net in NumPy, what a query of training sees besides, and what goes with it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.data.occurrences import HEAD, TAIL, KnownAnswers
from jobi_tf.errors import UsageError
from jobi_tf.evaluation.ranker import Ranker
from jobi_tf.models.scorers import conve
from jobi_tf.training.assembly import build_batches, build_model, completed, epoch
from jobi_tf.training.config import TrainConfig
from tests.graphs import named_graph, random_graph

from .batches import batch
from .oracles import convolved, oracle_scores, shared_weights
from .test_regularizers import norms, norms_oracle

SETTINGS = {"dataset": "tiny", "model": "conve", "loss": "full-softmax", "reciprocal": True, "dim": 12, "joint": False}
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


def drawn(dim=12, **options):
    """A model of nine entities whose weights are all of a size that shows mistakes."""
    model, rng = jobi_tf.JoBi(9, 3, dim, "conve", reciprocal=True, **options), np.random.default_rng(4)
    for weight in model.weights:
        if weight.dtype == "float32":
            least = 0.3 if weight.name in ("gamma", "moving_variance") else -1.0
            weight.assign(rng.uniform(least, 1.5, weight.shape))
    return model


def queries():
    inputs = batch("queries")
    return inputs | {"relations": inputs["relations"] % 3}


def pairs(count, dim=12):
    return np.random.default_rng(5).normal(size=(count, 2 * dim)).astype(np.float32)


def test_scores_are_those_of_float32_under_a_global_policy_too():
    triples, policy = [[0, 1, 2], [3, 2, 1]], keras.config.dtype_policy()
    expected = drawn().scores(triples, TAIL)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        np.testing.assert_array_equal(drawn(dtype="float32").scores(triples, TAIL), expected)
    finally:
        keras.config.set_dtype_policy(policy)


@pytest.mark.parametrize(("dim", "expected"), [(9, (3, 3)), (20, (5, 4)), (36, (6, 6)), (200, (20, 10))])
def test_an_embedding_is_nearly_a_square(dim, expected):
    assert conve.picture(dim) == expected


@pytest.mark.parametrize("dim", [1, 8, 13, 22])
def test_an_embedding_that_the_convolution_does_not_fit_into_is_refused(dim):
    with pytest.raises(UsageError, match=f"dim .*{dim}"):
        jobi_tf.JoBi(9, 3, dim, "conve", reciprocal=True)


@pytest.mark.parametrize("dim", [9, 12])
def test_every_entity_is_scored_by_both_heads_as_the_oracle_does(dim):
    model = drawn(dim)
    inputs = queries()
    found = model(inputs)
    for head, name in enumerate(("triple", "pair")):
        for row, (anchor, relation, side) in enumerate(
            zip(*(inputs[x].numpy() for x in ("anchors", "relations", "sides")), strict=True)
        ):
            triples = np.full((9, 3), relation)
            triples[:, 0], triples[:, 2] = (anchor, np.arange(9)) if side else (np.arange(9), anchor)
            np.testing.assert_allclose(found[name][row], oracle_scores(model, triples, side, head), **CLOSE)


def test_triples_are_scored_as_the_oracle_does():
    model, triples = drawn(joint=False), np.random.default_rng(2).integers((9, 3, 9), size=(20, 3))
    np.testing.assert_allclose(model.score(triples), oracle_scores(model, triples), **CLOSE)
    for side, column in ((HEAD, 0), (TAIL, 2)):
        scores = model.scores(tf.constant(triples), side).numpy()
        expected = oracle_scores(model, triples, side)
        np.testing.assert_allclose(scores[np.arange(20), triples[:, column]], expected, **CLOSE)


def test_training_takes_means_and_variances_of_the_batch_and_keeps_a_tenth():
    model, given = drawn(joint=False), pairs(50)
    before, net = shared_weights(model), model.heads[0].net
    net.drop_maps.rate = net.drop_hidden.rate = 0.0
    expected, statistics = convolved(*np.split(given.astype(np.float64), 2, 1), **before, training=True)
    np.testing.assert_allclose(net(given, training=True), expected, **CLOSE)
    after = shared_weights(model)
    for name, (mean, variance) in statistics.items():
        for kind, value in (("moving_mean", mean), ("moving_variance", variance)):
            kept = 0.9 * before[f"{name}_{kind}"] + 0.1 * value
            np.testing.assert_allclose(after[f"{name}_{kind}"], kept, **CLOSE)


def test_scores_outside_of_training_change_no_statistics():
    model = drawn()
    before = [x.numpy() for x in model.weights]
    model(queries())
    model.score(np.array([[0, 1, 2]]))
    for old, new in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(old, new.numpy())


def test_dropout_differs_between_steps():
    net, given = drawn(joint=False).heads[0].net, pairs(20)
    first, second = (net(given, training=True).numpy() for _ in range(2))
    assert (first != second).mean() > 0.3


def test_every_weight_of_both_nets_learns():
    model = drawn()
    with tf.GradientTape() as tape:
        scores = model(queries(), training=True)
        loss = tf.add_n([tf.reduce_sum(tf.sin(x)) for x in scores.values()])
    for variable, gradient in zip(
        model.trainable_variables, tape.gradient(loss, [x.value for x in model.trainable_variables]), strict=True
    ):
        assert np.abs(tf.convert_to_tensor(gradient).numpy()).max() > 0, variable.path
    assert len(model.trainable_variables) == 3 + 2 * 6


def test_the_two_nets_start_apart_and_a_seed_makes_them_again():
    first, second = (x.net for x in jobi_tf.JoBi(9, 3, 12, "conve", reciprocal=True).heads)
    again = jobi_tf.JoBi(9, 3, 12, "conve", reciprocal=True).heads[0].net
    assert not np.array_equal(first.dense.kernel.numpy(), second.dense.kernel.numpy())
    for old, new in zip(first.weights, again.weights, strict=True):
        np.testing.assert_array_equal(old.numpy(), new.numpy())


def test_penalties_leave_out_the_bias():
    model = jobi_tf.JoBi(9, 4, 12, "conve", reciprocal=True, regularizers=norms())
    model.entities.table.assign(3 * model.entities.table)
    inputs = batch("queries")
    model(inputs, training=True)
    assert float(tf.add_n(model.losses)) == pytest.approx(norms_oracle(model, inputs), rel=1e-4)


def ring(size=30):
    """Each entity's next and previous ones; of every third pair only the previous one is for training."""
    forth = np.array([(x, 0, (x + 1) % size) for x in range(size)], np.int32)
    held_out = np.arange(size) % 3 == 0
    splits = {"train": np.concatenate([forth[~held_out], forth[:, ::-1] + [0, 1, 0]]), "valid": forth[held_out]}
    return named_graph({name: x.astype(np.int32) for name, x in (splits | {"test": forth[:0]}).items()}, size, 2)


def test_it_learns_what_follows():
    graph = ring()
    config = completed(TrainConfig.create(SETTINGS | {"batch_size": 100, "learning_rate": 0.01, "dim": 16}), graph)
    model, steps = build_model(config, graph), epoch(config, graph).steps
    batches = build_batches(config, graph)
    losses = model.fit(batches, epochs=100, steps_per_epoch=steps, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    for side in (HEAD, TAIL):
        ranks = Ranker(model, KnownAnswers.of_graph(graph, ())).rank(graph.valid, side).ranks()
        assert (1 / ranks).mean() > 0.5  # 0.13 by chance


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "softmax", "reciprocal": False}, "loss .*softmax"),
        ({"loss": "logistic"}, "loss .*logistic"),
        ({"reciprocal": False}, "reciprocal .*False"),
        ({"dim": 10}, "dim .*10"),
    ],
)
def test_settings_that_do_not_suit_it_are_refused_before_there_is_a_folder(tmp_path, settings, message):
    given = {name: value for name, value in SETTINGS.items() if name != "dataset"} | settings
    with pytest.raises(UsageError, match=message):
        jobi_tf.train(random_graph(), run_dir=tmp_path / "run", callbacks=(), **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("mode", ["by-side", "shared-by-side"])
def test_negatives_are_refused(mode):
    model = jobi_tf.JoBi(30, 4, 12, "conve", reciprocal=True, joint=False)
    batches = jobi_tf.training_batches(random_graph(), 50, 6, joint=False, mode=mode)
    with pytest.raises(UsageError, match="query_batches"):
        model(next(iter(batches))[0])
