"""The model in programs of one's own, by public names alone."""

import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import yaml

import jobi_tf
from jobi_tf import workers
from jobi_tf.errors import DataError, UsageError
from tests.graphs import random_graph
from tests.test_optimizers import oracle

ROOT = Path(__file__).resolve().parents[1]
GRAPH = random_graph()
FORMS = ["own", "by-side", "shared", "shared-by-side", "queries"]
SLOW_FORMS = [x if x in ("own", "queries") else pytest.param(x, marks=pytest.mark.slow) for x in FORMS]


def batches(form="own", joint=True, batch_size=50, **options):
    if form == "queries":
        return jobi_tf.query_batches(GRAPH, batch_size, joint, **options)
    return jobi_tf.training_batches(GRAPH, batch_size, 6, joint=joint, mode=form, **options)


def compiled(optimizer=None, form="own", joint=True, compile_options=None, **options):
    model = jobi_tf.JoBi(GRAPH.num_entities, GRAPH.num_relations, 8, joint=joint, **options)
    losses = {"triple": jobi_tf.FullSoftmax() if form == "queries" else jobi_tf.SampledSoftmax()}
    if joint:
        losses["pair"] = jobi_tf.PairCrossentropy()
    model.compile(optimizer or jobi_tf.LazyAdam(0.01), losses, **compile_options or {})
    return model


def fit(model, form="own", steps=4, **options):
    return model.fit(batches(form, model.joint), steps_per_epoch=steps, verbose=0, **options).history


def run(program, *arguments):
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, *([program] if isinstance(program, Path) else ["-c", program]), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=arguments[0], check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.processes
def test_the_example_trains_ranks_and_saves(tmp_path):
    output = run(ROOT / "examples" / "own_training.py", tmp_path)
    assert float(re.search(r"^<.*MRR (.*?),", output, re.MULTILINE)[1]) > 0.4  # 0.005 by chance
    program = "import jobi_tf; print(jobi_tf.load_run('runs/mine').tails('Switzerland', 'official_language', k=3))"
    assert output.endswith(run(program, tmp_path))
    program = "import jobi_tf, keras; print(type(keras.saving.load_model('runs/mine/model.keras')).__name__)"
    assert run(program, tmp_path).split() == ["JoBi"]


def test_a_model_of_fit_becomes_a_run(tmp_path):
    model = compiled(regularizers=[jobi_tf.N3(0.1, 0.2), "dura"])
    saved = jobi_tf.Run.from_model(model, GRAPH, p=0.1).save(tmp_path / "run")
    np.testing.assert_array_equal(saved.model.score(GRAPH.test), model.score(GRAPH.test))
    settings = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert {x: settings[x] for x in ("n3", "n3_pair", "dura", "dim")} == {
        "n3": 0.1,
        "n3_pair": 0.2,
        "dura": 0.05,
        "dim": 8,
    }
    assert "epochs" not in settings
    assert settings["p"] == 0.1
    assert jobi_tf.export_run(saved, tmp_path / "export", warmup=False).version == 1
    with pytest.raises(UsageError, match="export_run"):
        model.export(tmp_path / "export")
    with pytest.raises(UsageError, match="31 entities"):
        jobi_tf.Run.from_model(model, random_graph(entities=31))
    with pytest.raises(UsageError, match=r"dim 8 .*9"):
        jobi_tf.Run.from_model(model, GRAPH, dim=9)


def test_a_model_that_could_not_be_read_is_not_saved(tmp_path):
    class Unregistered(jobi_tf.JoBi):
        pass

    run = jobi_tf.Run.from_model(Unregistered(GRAPH.num_entities, GRAPH.num_relations, 2), GRAPH)
    with pytest.raises(jobi_tf.errors.DataError, match=r"Unregistered first$"):
        run.save(tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_table_of_16_bits_trains_like_one_of_32_and_goes_on_after_saving(jit_compile, tmp_path):
    options = {"compile_options": {"jit_compile": jit_compile}, "regularizers": ["n3"]}
    exact, short = (compiled(table_dtype=x, **options) for x in ("float32", "bfloat16"))
    assert short.entities.table.dtype == short.optimizer.slots[0][0].dtype == "bfloat16"
    losses = [fit(model, steps=40)["loss"][0] for model in (exact, short)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert losses[0] != losses[1]
    triples = tf.constant([[0, 1, 2], [3, 2, 1]])
    every = short.scores(triples, 1).numpy()
    np.testing.assert_allclose(every[[0, 1], [2, 1]], short.score(triples), rtol=1e-5)
    np.testing.assert_allclose(short.in_float32().scores(triples, 1), every, rtol=1e-5)
    short.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.entities.table.dtype == "bfloat16"
    fit(short), fit(loaded)
    for a, b in zip(short.variables, loaded.variables, strict=True):
        np.testing.assert_array_equal(a, b)


def dense_gradients(model, batch):
    """Gradients of every table by automatic differentiation over scores of single triples."""
    inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(batch)
    with tf.GradientTape() as tape:
        loss = model.compute_loss(inputs, labels, model(inputs, training=True), weights)
    return [tf.convert_to_tensor(x).numpy().astype(float) for x in tape.gradient(loss, model.trainable_variables)]


@pytest.mark.parametrize("form", SLOW_FORMS)
@pytest.mark.parametrize("name", ["adam", "lazy"])
def test_adam_by_name_is_adam_on_every_table(name, form):
    """Row-sparse Adam differs where a row is not touched: then its oracle has no gradient of 0, but none."""
    model = compiled(name if name == "adam" else None, form)
    model.optimizer.learning_rate = 0.01
    reference, start = compiled("adam", form), [x.numpy() for x in model.trainable_variables]
    steps, tables, history = batches(form).take(3), start, [[] for _ in start]
    for batch in steps:
        for variable, value in zip(reference.trainable_variables, tables, strict=True):
            variable.assign(value)
        for gradients, gradient in zip(history, dense_gradients(reference, batch), strict=True):
            gradients.append(gradient if name == "adam" else np.where(gradient.any(1, keepdims=True), gradient, np.nan))
        tables = [oracle(*x, rate=0.01) for x in zip(start, history, strict=True)]
    model.fit(steps, verbose=0)
    for table, expected in zip(model.trainable_variables, tables, strict=True):
        np.testing.assert_allclose(table, expected, atol=2e-5)


@pytest.mark.parametrize(
    "optimizer",
    ["sgd", *(pytest.param(x, marks=pytest.mark.slow) for x in ("adagrad", "adamw", "lion", "rmsprop", "adafactor"))],
)
def test_any_keras_optimizer_by_name_gets_dense_gradients(optimizer):
    model = compiled(optimizer)
    before = model.entities.table.numpy()
    history = fit(model, epochs=2)
    assert np.isfinite(history["loss"]).all()
    assert not np.array_equal(model.entities.table.numpy(), before)
    options = {"clipnorm": 1.0, "weight_decay": 0.01, "use_ema": True}
    assert np.isfinite(fit(compiled(keras.optimizers.Adam(0.01, **options)))["loss"]).all()


def test_losses_do_not_depend_on_how_a_step_is_executed():
    plain = compiled()
    assert plain.jit_compile is compiled(compile_options={"jit_compile": False}).jit_compile is False
    expected = fit(plain)["loss"]
    for options in ({"steps_per_execution": 2}, {"run_eagerly": True}):
        assert fit(compiled(compile_options=options))["loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("form", "optimizer"),
    [
        ("own", jobi_tf.LazyAdam),
        ("queries", jobi_tf.LazyAdam),
        *(pytest.param(form, jobi_tf.LazyAdam, marks=pytest.mark.slow) for form in FORMS[1:-1]),
        *(pytest.param(form, jobi_tf.LazyAdagrad, marks=pytest.mark.slow) for form in FORMS),
        *(pytest.param(form, keras.optimizers.Adam, marks=pytest.mark.slow) for form in FORMS),
    ],
)
def test_a_step_compiled_as_a_whole_is_the_same(form, optimizer):
    options = {"regularizers": ["n3", "relation_prediction"], "entity_dropout": 0.0}
    plain = compiled(optimizer(0.01), form, **options)
    whole = compiled(optimizer(0.01), form, compile_options={"jit_compile": True}, **options)
    assert whole.jit_compile
    assert fit(whole, form)["loss"] == pytest.approx(fit(plain, form)["loss"], rel=1e-5)
    for a, b in zip(whole.trainable_variables, plain.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.slow
def test_relations_that_are_matrices_are_compiled_as_a_whole():
    losses = [
        fit(compiled(form="queries", scorer="rescal", compile_options={"jit_compile": value}), "queries")["loss"]
        for value in (True, False)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_callbacks_of_keras_see_the_ranking(tmp_path, recwarn):
    model, path = compiled(), tmp_path / "best.keras"
    callbacks = [
        jobi_tf.ValidationRanking(GRAPH, every=1),
        keras.callbacks.EarlyStopping("val_mrr", mode="max", patience=2, restore_best_weights=True),
        keras.callbacks.ModelCheckpoint(path, "val_mrr", mode="max", save_best_only=True),
        keras.callbacks.TensorBoard(tmp_path / "logs"),
    ]
    history = fit(model, epochs=40, callbacks=callbacks)
    assert len(history["val_mrr"]) < 20  # ranked every epoch, and stopped early
    best = keras.saving.load_model(path)
    for found in (best, model):
        assert jobi_tf.evaluate(found, GRAPH, split="valid").metrics()["mrr"] == pytest.approx(max(history["val_mrr"]))
    assert list((tmp_path / "logs").rglob("events*"))
    assert not [x for x in recwarn if "val_" in str(x.message) or "shuffle" in str(x.message)]


class OwnLoss(jobi_tf.JoBi):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return tf.reduce_mean(y_pred["triple"] ** 2)


class OwnOutput(jobi_tf.JoBi):
    def call(self, inputs, training=False):
        scores = super().call(inputs, training)
        return {**scores, "mean": tf.reduce_mean(scores["triple"], 1, keepdims=True)}


def test_losses_are_float32():
    keras.config.set_floatx("float64")
    try:
        with pytest.raises(UsageError, match="float64"):
            compiled(dtype="float32")
    finally:
        keras.config.set_floatx("float32")


def test_labels_and_losses_of_two_heads_are_by_name():
    inputs, labels = next(iter(batches()))
    model, data = compiled(), {name: np.array(x) for name, x in inputs.items()}
    in_order = [np.array(labels[name]) for name in ("triple", "pair")]
    for call in (model.fit, model.evaluate, model.train_on_batch):
        with pytest.raises(UsageError, match="labels as a dict with pair and triple"):
            call(data, in_order)
    model.compile(jobi_tf.LazyAdam(0.01), [jobi_tf.SampledSoftmax(), jobi_tf.PairCrossentropy()])
    with pytest.raises(UsageError, match="losses as a dict with pair and triple"):
        model.train_on_batch(data, labels)


def test_subclasses_may_have_a_loss_or_an_output_of_their_own():
    model = OwnLoss(GRAPH.num_entities, GRAPH.num_relations, 8)
    model.compile(jobi_tf.LazyAdam(0.01))
    assert fit(model)["loss"][0] < 0.1
    model = OwnOutput(GRAPH.num_entities, GRAPH.num_relations, 8)
    losses = {"triple": jobi_tf.SampledSoftmax(), "pair": jobi_tf.PairCrossentropy(), "mean": "mse"}
    model.compile(jobi_tf.LazyAdam(0.01), losses, loss_weights={"triple": 1.0, "pair": 1.0, "mean": 0.5})
    labelled = batches().map(lambda x, y: (x, {**y, "mean": tf.ones([50, 1])}))
    assert model.fit(labelled, steps_per_epoch=4, verbose=0).history["mean_loss"][0] > 0.5


def test_queries_may_come_in_any_order_of_their_sides():
    (inputs, *_), *_ = batches("queries", joint=False).take(1)
    model, order = compiled(form="queries", joint=False), np.random.default_rng(0).permutation(50)
    mixed = model({name: tf.gather(x, order) for name, x in inputs.items()})["triple"]
    np.testing.assert_allclose(mixed, tf.gather(model(inputs)["triple"], order), atol=1e-6)


def test_a_training_that_diverged_is_not_ranked():
    model = compiled()
    model.entities.table.assign(model.entities.table * np.nan)
    history = fit(model, callbacks=[keras.callbacks.TerminateOnNaN(), jobi_tf.ValidationRanking(GRAPH, every=1)])
    assert np.isnan(history["loss"]).all()
    assert "val_mrr" not in history


def test_callbacks_that_come_before_the_ranking_warn_that_they_have_no_metrics():
    early = keras.callbacks.EarlyStopping("val_mrr", mode="max")
    with pytest.warns(UserWarning, match="val_mrr"):
        fit(compiled(), callbacks=[early, jobi_tf.ValidationRanking(GRAPH, every=1)])


def test_validation_batches_and_evaluate_and_predict():
    model = compiled(regularizers=["n3"])
    validation = jobi_tf.training_batches(GRAPH, 20, 6, split="valid")
    history = fit(model, validation_data=validation, validation_steps=1)
    parts = {"val_triple_loss", "val_pair_loss", "val_n3"}
    assert history["val_loss"][0] == pytest.approx(sum(history[name][0] for name in parts), rel=1e-5)
    result = model.evaluate(validation, steps=1, verbose=0, return_dict=True)
    assert result["loss"] == pytest.approx(history["val_loss"][0], rel=1e-5)
    scores = model.predict(validation.map(lambda inputs, _: inputs), steps=2, verbose=0)
    assert scores["triple"].shape == scores["pair"].shape == (40, 7)


@pytest.mark.parametrize("form", FORMS[:4])
def test_the_number_of_negatives_may_change(form):
    model = compiled(form=form)
    for negatives in (4, 10, 2):
        stream = jobi_tf.training_batches(GRAPH, 50, negatives, mode=form)
        trained = model.fit(stream, steps_per_epoch=1, verbose=0).history["loss"][0]
        (_, labels), *_ = stream.take(1)
        if negatives != 4:
            assert model.predict(stream, steps=1, verbose=0)["pair"].shape == labels["pair"].shape
        assert trained == pytest.approx(np.log(labels["triple"].shape[-1]) + np.log(2), rel=0.1)


@pytest.mark.parametrize("given", [{"n3": 0.5}, ["n3", jobi_tf.N3(0.5)], jobi_tf.N3, "n4"])
def test_regularizers_are_a_list_of_different_ones(given):
    with pytest.raises(UsageError, match="egularizer"):
        jobi_tf.JoBi(3, 1, 2, regularizers=given)


class Vector(jobi_tf.Regularizer):
    def __call__(self, positives, heads):
        return tf.ones([4])


def test_a_mean_after_the_ranking_warns():
    with pytest.warns(UserWarning, match="AverageWeights comes after"):
        fit(compiled(), callbacks=[jobi_tf.ValidationRanking(GRAPH, every=1), jobi_tf.AverageWeights(2)])


@pytest.mark.parametrize("form", FORMS[:4])
def test_weights_of_triples_weigh_their_losses(form):
    weighted = dataclasses.replace(GRAPH, weights={"train": np.linspace(0, 2, len(GRAPH.train), dtype=np.float32)})
    inputs, labels, weights = next(iter(jobi_tf.training_batches(weighted, 50, 6, mode=form)))
    model = compiled()
    found = model.evaluate(x=inputs, y=labels, sample_weight=weights, batch_size=50, verbose=0, return_dict=True)
    losses = jobi_tf.SampledSoftmax().call(labels["triple"], model(inputs)["triple"]).numpy()
    of_triple = inputs["weights"].numpy()
    expected = (losses.reshape(*of_triple.shape, -1) * of_triple[..., None]).mean()
    assert found["triple_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("rows_of_a_block", [2**16, 7])
def test_fit_save_load_fit_is_as_without_a_break(tmp_path, monkeypatch, rows_of_a_block):
    monkeypatch.setattr("jobi_tf.workers.ROWS_OF_A_BLOCK", rows_of_a_block)
    first = compiled(regularizers=["n3"], entity_dropout=0.1)
    fit(first, steps=3)
    first.save(tmp_path / "model.keras")
    second = keras.saving.load_model(tmp_path / "model.keras")
    later = batches(first_step=3)
    a, b = (x.fit(later, steps_per_epoch=3, verbose=0).history for x in (first, second))
    assert a == b
    for x, y in zip(*(x.weights + x.optimizer.variables for x in (first, second)), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_frozen_model_is_saved_and_loaded(tmp_path):
    model = jobi_tf.JoBi(GRAPH.num_entities, GRAPH.num_relations, 8)
    model.entities.trainable = False
    model.compile(jobi_tf.LazyAdam(0.01), {"triple": jobi_tf.SampledSoftmax(), "pair": jobi_tf.PairCrossentropy()})
    fit(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for x, y in zip(*(x.weights + x.optimizer.variables for x in (model, loaded)), strict=True):
        np.testing.assert_array_equal(x, y)
    before = loaded.entities.table.numpy()
    fit(loaded)
    np.testing.assert_array_equal(loaded.entities.table, before)


def test_weights_of_another_shape_are_not_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "ROWS_OF_A_BLOCK", 5)
    path = tmp_path / "a.weights.h5"
    for given, other in (({"dim": 1}, {"dim": 2}), ({"num_entities": 12}, {"num_entities": 10})):
        options = {"num_entities": 9, "num_relations": 2, "dim": 2, "scorer": "distmult"}
        jobi_tf.JoBi(**options | given).save_weights(path)
        with pytest.raises(ValueError, match=r"expected a table of the shape \(\d+, \d\).*\(\d+, \d\)"):
            jobi_tf.JoBi(**options | other).load_weights(path)


def test_weights_have_names_of_their_own_and_are_saved_as_hdf5(tmp_path):
    model = compiled(scorer="tucker", relation_dropout=0.1)
    fit(model)
    names = [x.path for x in model.weights]
    assert len(set(names)) == len(names)
    model.save(tmp_path / "model.h5")
    loaded = keras.saving.load_model(tmp_path / "model.h5", custom_objects={"JoBi": jobi_tf.JoBi})
    for x, y in zip(*(x.weights + x.optimizer.variables for x in (model, loaded)), strict=True):
        np.testing.assert_array_equal(x, y)


def test_triples_of_names_make_a_graph_that_trains():
    rows = [("Paris", "capital of", "France"), ("Bern", "capital of", "Switzerland"), ("Bern", "near", "Paris")]
    graphs = [
        jobi_tf.Graph.from_triples(rows, valid=rows[:1]),
        jobi_tf.Graph.from_triples(np.array(rows), np.array(rows[:1])),
        jobi_tf.Graph.from_triples(pd.DataFrame(rows), pd.DataFrame(rows[:1])),
        jobi_tf.Graph.from_triples(np.array(rows, "S"), tf.constant(rows[:1])),
        jobi_tf.Graph.from_triples(pd.DataFrame(rows).assign(edges=0.5), pd.DataFrame(rows[:1])),
        jobi_tf.Graph.from_triples(
            *(pd.DataFrame(x, columns=["s", "p", "O"])[["O", "s", "p"]] for x in (rows, rows[:1]))
        ),
    ]
    for wrong in (["note", "h", "edge", "t"], ["x", "h", "t"]):
        with pytest.raises(DataError, match=f"of train, .*got {', '.join(wrong)}"):
            jobi_tf.Graph.from_triples(pd.DataFrame([wrong], columns=wrong))
    for right in (["h", "edge", "x", "note"], ["h", "r", "t"], ["a", "b", "c", "d"]):
        assert jobi_tf.Graph.from_triples(pd.DataFrame([right], columns=right)).relations.names == [right[1]]
    indexed = pd.DataFrame([["a", "b", "c"]], columns=["h", "r", "t"]).set_index(["h", "r"])
    assert jobi_tf.Graph.from_triples(indexed).entities.names == ["a", "c"]
    ids = pd.DataFrame({"h": [1], "r": [2], "t": [3], "confidence": [0.5]})
    for kind in (int, float):  # pandas makes ids beside missing ones floats
        assert jobi_tf.Graph.from_triples(ids.astype({"h": kind})).entities.names == ["1", "3"]
    large = pd.DataFrame({"h": [2**63 + 1, 2**63 + 2], "r": [1, 1], "t": [5.0, 6.0]})  # which floats cannot tell apart
    assert jobi_tf.Graph.from_triples(large).entities.names == [str(2**63 + 1), "5", str(2**63 + 2), "6"]
    assert len({graph.fingerprint for graph in graphs}) == 1
    assert (graphs[0].num_entities, graphs[0].num_relations, len(graphs[0].valid)) == (4, 2, 1)
    assert graphs[0].entities[0] == "Paris"
    model = jobi_tf.JoBi(4, 2, 3, joint=False)
    model.compile(jobi_tf.LazyAdam(0.01), {"triple": jobi_tf.SampledSoftmax()})
    weighted = jobi_tf.Graph.from_triples(rows, weights=[1, 2, 3])
    model.fit(jobi_tf.training_batches(weighted, 3, 4, joint=False), steps_per_epoch=2, verbose=0)


@pytest.mark.parametrize(
    ("train", "options", "words"),
    [
        ([], {}, "training triples"),
        ([("a", "b")], {}, "three columns"),
        ([("a", "b", "c"), ("a", "b")], {}, r"three columns .*\('a', 'b'\) in row 1"),
        ([{"head": "a", "relation": "b", "tail": "c"}], {}, "three columns .*head.* in row 0"),
        ([(b"\xff", "b", "c")], {}, "UTF-8"),
        ([("a", " ", "c")], {}, "' '"),
        ("train.tsv", {}, "train.tsv"),
        (5, {}, "5"),
        ([("a", "b", "")], {}, "''"),
        ([("a", "b", "c\nd")], {}, "one line"),
        ([("a", "b", pd.NA)], {}, "<NA>"),
        ([("a", "b", "c\udc80")], {}, "UTF-8"),
        ([("a", "b", "c")], {"weights": [1, 2]}, "weight"),
        ([("a", "b", "c")], {"weights": [-1]}, "weight"),
        ([("a", "b", "c")], {"weights": ["heavy"]}, "heavy"),
    ],
)
def test_triples_that_are_none_are_refused(train, options, words):
    with pytest.raises(jobi_tf.errors.DataError, match=words):
        jobi_tf.Graph.from_triples(train, **options)


@pytest.fixture(scope="module")
def on_devices(tmp_path_factory):
    """A process can split the CPU only before TensorFlow starts, so this is another one."""

    @functools.cache
    def found(form: str, count: int = 2) -> dict:
        program = (
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
            f"from tests import own_program_on_devices as x; x.main({form!r}, {count})"
        )
        return json.loads(run(program, tmp_path_factory.mktemp("devices")).splitlines()[-1])

    return found


@pytest.mark.processes
@pytest.mark.parametrize("optimizer", ["lazy", "lazy of 16 bits", "adam"])
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", ["own", *(pytest.param(x, marks=pytest.mark.slow) for x in FORMS[1:])])
def test_twenty_steps_on_several_devices_give_the_weights_of_one(on_devices, form, count, optimizer):
    if form == "queries" and optimizer == "lazy of 16 bits":
        pytest.skip("queries of all entities need a float32 table")
    found = on_devices(form, count)[optimizer]
    assert found["moved"] > 0.05
    assert found["gap"] < 1e-5
    assert found["loss"] < (1e-2 if optimizer == "lazy of 16 bits" else 1e-4)


@pytest.mark.processes
def test_a_batch_that_devices_cannot_share_is_an_error(on_devices):
    assert "25 rows" in on_devices("own")["odd"]


@pytest.mark.processes
def test_a_step_on_several_devices_is_not_compiled_as_a_whole(on_devices):
    assert "jit_compile" in on_devices("own")["jit"]


OTHER = jobi_tf.Graph.from_triples([("a", "b", "c")] * 9, [("a", "b", "c")])


def recompiled(losses):
    (model := compiled()).compile(jobi_tf.LazyAdam(0.01), losses)
    return model


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: compiled(scorer="rotate", table_dtype="bfloat16"), "rotate"),
        (lambda: fit(compiled("adam", table_dtype="bfloat16")), "LazyAdam"),
        (lambda: fit(compiled(form="queries", table_dtype="bfloat16"), "queries"), "queries of all entities"),
        (lambda: compiled(joint=False).fit(batches()), "joint=False"),
        (lambda: compiled().fit(batches("queries")), "training_batches for SampledSoftmax"),
        (lambda: fit(compiled(form="queries"), "queries", validation_data=batches()), "query_batches for FullSoftmax"),
        (lambda: fit(recompiled({"triple": jobi_tf.SampledSoftmax()})), "pair and triple"),
        (lambda: fit(recompiled(jobi_tf.SampledSoftmax())), "pair and triple"),
        (lambda: fit(recompiled(dict.fromkeys(("triple", "pair", "pairs"), jobi_tf.SampledSoftmax()))), "'pairs'"),
        (lambda: compiled().fit(batches()), "steps_per_epoch"),
        (lambda: fit(compiled(), validation_data=batches()), "validation_steps"),
        (lambda: compiled().evaluate(batches()), "steps"),
        (lambda: compiled().predict(batches()), "steps"),
        (lambda: jobi_tf.JoBi(4, 2).compile(), "optimizer"),
        (lambda: compiled(compile_options={"loss_weights": [1, 0.5]}), "loss_weights .*pair and triple"),
        (lambda: compiled(compile_options={"loss_weights": {"pair": 0.5}}), "loss_weights .*pair and triple"),
        (lambda: compiled(compile_options={"loss_weights": {"t": 1}}), "loss_weights .*'t'"),
        (lambda: compiled(compile_options={"metrics": [["mae"], ["mae"]]}), "metrics .*pair and triple"),
        (lambda: compiled().fit(batches().map(lambda x, y: (x, (y["triple"], y["pair"])))), "pair and triple.*tuple"),
        (lambda: jobi_tf.JoBi(4, 2, entity_initializer=np.zeros((4, 400))), "entity_initializer .*ndarray"),
        (lambda: jobi_tf.Run.from_model(compiled(), "umls"), "'umls'"),
        (lambda: compiled().fit(batches().unbatch(), steps_per_epoch=1), "single elements"),
        (lambda: fit(compiled(regularizers=[Vector()])), "vector"),
        (lambda: compiled()(tf.constant([[0, 1, 2]])), "by name"),
        (lambda: jobi_tf.evaluate(compiled(), OTHER), "30 entities"),
        (lambda: fit(compiled(), callbacks=[jobi_tf.ValidationRanking(OTHER)]), "30 entities"),
    ],
)
def test_what_cannot_be_trained_or_ranked_is_refused(call, words):
    with pytest.raises(UsageError, match=words):
        call()


def test_batches_of_a_larger_graph_are_refused():
    larger = jobi_tf.training_batches(random_graph(entities=500, train=400), 400, 6)
    with pytest.raises(jobi_tf.DataError, match="out of range"):
        compiled().fit(larger, steps_per_epoch=1, verbose=0)
