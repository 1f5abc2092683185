import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.data.batches import query_batches, training_batches
from jobi_tf.data.occurrences import TAIL
from jobi_tf.data.seeds import fold_in, stream
from jobi_tf.errors import DataError, UsageError
from jobi_tf.models.scorers import SCORERS
from tests.graphs import random_graph

from .oracles import WIDTHS


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("scorer", WIDTHS)
def test_number_of_parameters(scorer, joint, reciprocal):
    entity, relation = WIDTHS[scorer]
    shared = 5 * 5 * 5 if scorer == "tucker" else 0
    model = jobi_tf.JoBi(50, 7, 5, scorer, joint, reciprocal=reciprocal)
    assert model.entities.table.shape == (50, entity)
    assert model.heads[0].relations.table.shape == (7 * (1 + reciprocal), relation)
    assert model.count_params() == 50 * entity + (1 + joint) * (7 * relation * (1 + reciprocal) + shared)


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_saved_model_comes_back(scorer, tmp_path):
    options = {"reciprocal": True, "regularizers": ["n3"], "entity_dropout": 0.25}
    model = jobi_tf.JoBi(9, 3, 9, scorer, **options)
    model.save(tmp_path / "model.keras")
    restored = jobi_tf.load_model(tmp_path / "model.keras")
    assert restored.get_config() == model.get_config()
    for a, b in zip(model.weights, restored.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(restored.score([[0, 1, 2]]), model.score([[0, 1, 2]]))


def test_first_embeddings_are_glorot_normal_in_each_part():
    model = jobi_tf.JoBi(3000, 1000, 100, "complex")
    for table in (model.entities.table, *(head.relations.table for head in model.heads)):
        rows = table.shape[0]
        for part in np.split(table.numpy(), 2, 1):
            deviation = np.sqrt(2 / (rows + 100))
            assert part.std() == pytest.approx(deviation, rel=0.01)
            assert abs(part.mean()) < 5 * deviation / np.sqrt(part.size)
            assert abs(part).max() > 3 * deviation  # not truncated
            assert np.mean(abs(part) < deviation) == pytest.approx(0.6827, abs=0.01)


def test_initializers_by_name_or_as_objects():
    zeros = jobi_tf.JoBi(4, 2, 3, entity_initializer="zeros", relation_initializer=keras.initializers.Ones())
    assert not zeros.entities.table.numpy().any()
    assert (zeros.heads[1].relations.table.numpy() == 1).all()
    triple, pair = jobi_tf.JoBi(4, 2, 3, relation_initializer="glorot_normal").heads
    assert (triple.relations.table.numpy() != pair.relations.table.numpy()).all()


def test_no_two_seeds_share_a_table_or_a_stream():
    """Ten seeds, every pair of their tables, orders, negatives and dropout draws."""
    graph, arrays = random_graph(entities=40, relations=40), []
    for seed in range(10):
        model = jobi_tf.JoBi(40, 40, 8, "tucker", entity_dropout=0.5, relation_dropout=0.5, seed=seed)
        arrays += [x.numpy()[:8, :8] for x in model.weights if len(x.shape)]
        (inputs, _), *_ = training_batches(graph, 50, 8, seed=seed).take(1)
        arrays += [inputs["triples"].numpy()[:, 0], inputs["negatives"].numpy()]
        (inputs, _, _), *_ = query_batches(graph, 50, seed=seed, pair_entities=8).take(1)
        arrays += [inputs["anchors"].numpy(), inputs["pair_entities"].numpy()[0]]
        drops = [model._drop, *(head.drop for head in model.heads)]
        arrays += [drop(np.ones((8, 8), np.float32), training=True).numpy() for drop in drops]
    for a, b in itertools.combinations(arrays, 2):
        assert a.shape != b.shape or not np.array_equal(a, b)
    seeds = [fold_in(seed, use) for seed in range(10) for use in ("entities", "triple", "pair")]
    assert len(set(seeds)) == 30
    assert not np.array_equal(stream(0, "order"), stream(1, "order"))


def test_a_seed_makes_the_same_tables_again():
    a, b = (jobi_tf.JoBi(6, 2, 4, seed=1).get_weights() for _ in range(2))
    assert all(map(np.array_equal, a, b))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("dtype", policy) for policy in ("mixed_bfloat16", "mixed_float16", "float16")),
        *((size, 0) for size in ("num_entities", "num_relations", "dim")),
        *(("entity_dropout", 1.0), ("relation_dropout", -0.5), ("seed", -1), ("dim", 2.5), ("reciprocal", 2)),
        *((side, "glorot") for side in ("entity_initializer", "relation_initializer")),
    ],
)
def test_values_out_of_range_are_refused(name, value):
    with pytest.raises(UsageError, match=rf"{name}.* '?{value}"):
        jobi_tf.JoBi(**{"num_entities": 4, "num_relations": 2, name: value})


@pytest.mark.parametrize(
    "call",
    [
        lambda x: jobi_tf.JoBi(4, 2, entity_dropout=x),
        lambda x: jobi_tf.training_batches(random_graph(), 2, 2, p=x),
        *(jobi_tf.SampledSoftmax, jobi_tf.SampledMargin, jobi_tf.SampledLogistic, jobi_tf.N3),
        lambda x: jobi_tf.RuleModel(random_graph(), minutes=x),
    ],
)
def test_text_is_no_number(call):
    with pytest.raises(UsageError, match=r"'0\.5'"):
        call("0.5")


def test_weights_of_another_size_are_refused(tmp_path):
    jobi_tf.JoBi(5, 2, 8).save_weights(tmp_path / "of.weights.h5")
    with pytest.raises(ValueError, match=r"shape \(5, 8\).*\(5, 16\)"):
        (model := jobi_tf.JoBi(5, 2, 4)).load_weights(tmp_path / "of.weights.h5")
    keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]).save_weights(tmp_path / "none.weights.h5")
    with pytest.raises(ValueError, match="0 rows"):
        model.load_weights(tmp_path / "none.weights.h5")


def test_another_model_is_not_loaded(tmp_path):
    keras.Sequential([keras.Input([2]), keras.layers.Dense(1)]).save(tmp_path / "other.keras")
    with pytest.raises(DataError, match="Sequential"):
        jobi_tf.load_model(tmp_path / "other.keras")


def test_what_is_no_triple_or_side_is_refused():
    model = jobi_tf.JoBi(5, 2, 4)
    for triples in ([("a", "b", "c")], [0, 1, 2], [[0.5, 1, 2]]):
        with pytest.raises(UsageError, match="triples of ids"):
            model.score(triples)
    assert model.score(np.array([[0, 1, 2]], np.uint8)) == model.score([[0, 1, 2]])
    for triples in ([[0, 1, 5]], [[0, 2, 1]], [[-1, 0, 1]]):
        with pytest.raises(UsageError, match="below"):
            model.score(triples)
    with pytest.raises(UsageError, match="'tail'"):
        model.scores([[0, 1, 2]], "tail")
    with pytest.raises(UsageError, match="pair"):
        jobi_tf.JoBi(4, 2, joint=False).score([[0, 1, 2]], head="pair")


@pytest.mark.parametrize("optimizer", [jobi_tf.LazyAdam(0.1), keras.optimizers.SGD(0.1)])
def test_candidates_share_the_table_and_keep_its_values_while_rows_are_updated(optimizer):
    model = jobi_tf.JoBi(6, 2, 4)
    before = model.entities.table.numpy().copy()
    candidates = model.candidates()
    optimizer.apply([tf.IndexedSlices(tf.ones((2, 8)), [0, 3], (6, 8))], [model.entities.table])
    np.testing.assert_array_equal(candidates, before)
    np.testing.assert_array_equal(model.candidates(), model.entities.table)
    assert not np.array_equal(before, model.entities.table)


def test_candidates_of_a_table_of_16_bits_are_computed_in_float32():
    model = jobi_tf.JoBi(30, 2, 40, "typecomplex", table_dtype="bfloat16", entity_initializer="random_normal")
    triples = [[0, 1, tail] for tail in range(30)]  # types of tails are made unit vectors
    np.testing.assert_allclose(model.scores(triples[:1], TAIL)[0], model.score(triples), rtol=1e-4)


def test_xla_compiles_scores_of_all_entities():
    model, triples = jobi_tf.JoBi(6, 2, 4), tf.constant([[0, 1, 2]])
    scores = tf.function(model.scores, jit_compile=True)(triples, 1)
    np.testing.assert_allclose(scores, model.scores(triples, 1), rtol=1e-5)
