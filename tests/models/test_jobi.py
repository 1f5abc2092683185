import keras
import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.data.negatives import NegativeSampler
from jobi_tf.data.occurrences import Occurrences
from jobi_tf.data.pipeline import training_batches
from jobi_tf.errors import UsageError
from jobi_tf.models.scorers import SCORERS
from tests.graphs import random_graph

from .oracles import WIDTHS


def batches(joint=True, first_step=0):
    graph = random_graph()
    occurrences = Occurrences.of_graph(graph)
    return training_batches(graph.train, NegativeSampler(occurrences, 5, 0.3), 20, joint, 0, first_step)


def compiled(joint=True, **options):
    model = jobi_tf.JoBi(30, 4, 8, joint=joint, **options)
    losses = {"triple": jobi_tf.SampledSoftmax()}
    if joint:
        losses["pair"] = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(jobi_tf.LazyAdam(0.01), losses)
    return model


def fit(model, steps, first_step=0):
    history = model.fit(batches(model.joint, first_step), steps_per_epoch=steps, verbose=0, shuffle=False)
    return history.history["loss"]


@pytest.mark.parametrize("joint", [True, False])
def test_fit_save_load_fit_is_as_without_a_break(joint, tmp_path):
    first = compiled(joint)
    fit(first, 3)
    first.save(tmp_path / "model.keras")
    second = keras.saving.load_model(tmp_path / "model.keras")
    inputs = next(iter(batches(joint)))[0]
    for name, scores in first.predict(inputs, verbose=0).items():
        np.testing.assert_array_equal(second.predict(inputs, verbose=0)[name], scores)
    assert fit(first, 3, 3) == fit(second, 3, 3)
    for a, b in zip(*(x.weights + x.optimizer.variables for x in (first, second)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_training_lowers_both_losses():
    history = compiled().fit(batches(), epochs=10, steps_per_epoch=10, verbose=0, shuffle=False).history
    for name, share in (("triple_loss", 0.8), ("pair_loss", 0.98)):
        assert history[name][-1] < share * history[name][0]


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("scorer", SCORERS)
def test_number_of_parameters(scorer, joint, reciprocal):
    entity, relation = WIDTHS[scorer]
    in_common = 5 * 5 * 5 if scorer == "tucker" else 0
    model = jobi_tf.JoBi(50, 7, 5, scorer, joint, reciprocal=reciprocal)
    assert (model.width, model.relation_width) == (entity, relation * (1 + reciprocal))
    assert model.count_params() == 50 * entity + (1 + joint) * (7 * relation * (1 + reciprocal) + in_common)
    assert len(model.weights) == 2 + joint + (1 + joint) * (scorer == "tucker")


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_saved_model_comes_back(scorer, tmp_path):
    model = jobi_tf.JoBi(9, 3, 4, scorer, reciprocal=True, n3=0.5, entity_dropout=0.25)
    model.save(tmp_path / "model.keras")
    restored = jobi_tf.load_model(tmp_path / "model.keras")
    assert restored.get_config() == model.get_config()
    for a, b in zip(model.weights, restored.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(restored.score([[0, 1, 2]]), model.score([[0, 1, 2]]))


def test_without_the_pair_head_there_is_no_pair_table():
    model = jobi_tf.JoBi(5, 2, 3, joint=False)
    assert [x.name for x in model.weights] == ["entity", "triple_relation"]
    assert model.pair_relation is None


def test_first_embeddings_are_glorot_normal_in_each_part():
    model = jobi_tf.JoBi(3000, 1000, 100, "complex")
    for table in (model.entity, model.triple_relation, model.pair_relation):
        rows = table.shape[0]
        for part in np.split(table.numpy(), 2, 1):
            deviation = np.sqrt(2 / (rows + 100))
            assert part.std() == pytest.approx(deviation, rel=0.01)
            assert abs(part.mean()) < 5 * deviation / np.sqrt(part.size)
            assert abs(part).max() > 3 * deviation  # not truncated
            assert np.mean(abs(part) < deviation) == pytest.approx(0.6827, abs=0.01)
    assert not np.array_equal(model.triple_relation, model.pair_relation)


def test_the_seed_decides_the_first_embeddings():
    a, b, c = (jobi_tf.JoBi(6, 2, 4, seed=seed).entity.numpy() for seed in (1, 1, 2))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_mixed_precision_keeps_float32_tables_and_scores():
    inputs = next(iter(batches()))[0]
    model, mixed = compiled(), compiled(dtype="mixed_bfloat16")
    assert {x.dtype for x in mixed.weights} == {"float32"}
    assert mixed.score([[0, 1, 2]]).dtype == tf.float32
    for name, scores in mixed(inputs).items():
        assert scores.dtype == tf.float32
        np.testing.assert_allclose(scores, model(inputs)[name], atol=1e-5)
    assert fit(mixed, 3) == pytest.approx(fit(model, 3), rel=1e-5)


@pytest.mark.parametrize("size", ["num_entities", "num_relations", "dim"])
def test_sizes_below_one_are_refused(size):
    with pytest.raises(UsageError, match=f"expected {size} to be at least 1, got 0"):
        jobi_tf.JoBi(**{"num_entities": 3, "num_relations": 3, "dim": 3, size: 0})
