import dataclasses
import json
import pickle

import keras
import numpy as np
import pytest
from filelock import FileLock

import jobi_tf
from jobi_tf.errors import DataError, JobiError, UsageError
from jobi_tf.evaluation.evaluate import evaluate
from jobi_tf.evaluation.metrics import best_row
from jobi_tf.training.assembly import steps_per_execution
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.recording import KeepBest
from tests.graphs import random_graph
from tests.processes import epoch_rows

GRAPH = random_graph()
SETTINGS = {"dim": 8, "batch_size": 50, "negatives": 5, "epochs": 6, "eval_every": 2, "patience": 9}
RATES = {"triples_per_second", "seconds", "learning_rate"}


def train(folder, graph=GRAPH, callbacks=(), **settings):
    config = TrainConfig.create({"dataset": graph.name} | SETTINGS | settings)
    without = config.without_effect().keys() - settings.keys()
    config = TrainConfig.create(config.model_dump(exclude_unset=True, exclude=without))
    return jobi_tf.train(graph, config=config, run_dir=folder, callbacks=callbacks)


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights(path):
    return [x.numpy() for x in keras.saving.load_model(path, compile=False).weights]


def assert_same_run(a, b):
    assert epoch_rows(a) == epoch_rows(b)
    for name in ("model.keras", "checkpoints/epoch-000006/model.keras"):
        for x, y in zip(weights(a / name), weights(b / name), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("runs") / "first", learning_rate=0.05)


class Interrupt(keras.callbacks.Callback):
    def __init__(self, when, epoch):
        super().__init__()
        self.when, self.epoch = when, epoch

    def on_epoch_begin(self, epoch, logs=None):
        self.now = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self.when == "within an epoch" and (self.now, batch) == (self.epoch, 1):
            raise KeyboardInterrupt

    def on_epoch_end(self, epoch, logs=None):
        if self.when == "before its checkpoint" and epoch == self.epoch:
            raise KeyboardInterrupt


def test_a_run_can_be_pickled(run):
    again = pickle.loads(pickle.dumps(run))
    np.testing.assert_array_equal(again.model.entities.table, run.model.entities.table)


def test_what_the_run_folder_holds(run):
    assert {x.name for x in run.path.iterdir()} == {
        "config.yaml", "environment.json", "graph", "model.keras", "metrics.jsonl", "metrics.csv", "checkpoints"
    }  # fmt: skip
    assert [x.name for x in (run.path / "checkpoints").iterdir()] == ["epoch-000006"]
    assert json.loads((run.path / "environment.json").read_text())["versions"].keys() >= {"tensorflow", "keras"}
    assert len((run.path / "metrics.csv").read_text().splitlines()) == 7


def test_rows_of_the_metrics(run):
    losses = {"epoch", "loss", "triple_loss", "pair_loss"} | RATES
    ranked = {f"val_{x}" for x in ("mrr", "hits@1", "hits@3", "hits@10", "mean_rank")}
    assert [row["epoch"] for row in rows(run.path)] == [1, 2, 3, 4, 5, 6]
    for row in rows(run.path):
        assert row.keys() == losses | (ranked if row["epoch"] % 2 == 0 else set())
        assert row["loss"] == pytest.approx(row["triple_loss"] + run.config.alpha * row["pair_loss"], rel=1e-5)


def test_one_seed_gives_one_result_and_another_seed_another(run, tmp_path):
    for seed in (0, 1):
        folder = train(tmp_path / str(seed), learning_rate=0.05, seed=seed, epochs=1).path
        assert (rows(folder)[0]["loss"] == rows(run.path)[0]["loss"]) == (seed == 0)


@pytest.mark.parametrize("when", ["within an epoch", "before its checkpoint"])
def test_a_resumed_run_ends_as_an_uninterrupted_one(run, tmp_path, when):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", learning_rate=0.05, callbacks=[Interrupt(when, 3)])
    assert [x.name for x in (tmp_path / "run" / "checkpoints").iterdir()] == ["epoch-000003"]
    jobi_tf.load_run(tmp_path / "run")
    jobi_tf.resume(tmp_path / "run")
    assert_same_run(run.path, tmp_path / "run")


def test_a_table_of_16_bits_is_one_of_32_in_the_run(tmp_path):
    settings = {"table_dtype": "bfloat16", "learning_rate": 0.05}
    whole = train(tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", **settings, callbacks=[Interrupt("within an epoch", 3)])
    jobi_tf.resume(tmp_path / "run")
    assert_same_run(whole.path, tmp_path / "run")
    assert keras.saving.load_model(whole.path / "model.keras").entities.table.dtype == "bfloat16"
    assert whole.model.entities.table.dtype == "float32"
    ranked = best_row(rows(whole.path), "mrr")
    assert evaluate(whole, split="valid").metrics()["mrr"] == pytest.approx(ranked["val_mrr"], rel=1e-3)


class Weights(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.begins, self.ends = [], []

    def on_epoch_begin(self, epoch, logs=None):
        self.begins.append(self.model.get_weights()[0])

    def on_epoch_end(self, epoch, logs=None):
        self.ends.append(self.model.get_weights()[0])


def test_epochs_end_with_the_mean_of_the_last_ones_and_training_is_the_same(run, tmp_path):
    settings, seen = {"learning_rate": 0.05, "average_epochs": 2}, Weights()
    whole = train(tmp_path / "whole", **settings, callbacks=[seen])
    last = "checkpoints/epoch-000006/model.keras"
    mean, after = seen.begins[1], [*seen.begins[1:], weights(whole.path / last)[0]]
    for end, own in zip(seen.ends, after, strict=True):
        np.testing.assert_allclose(end, mean := (mean + own) / 2, atol=1e-6)
    for x, y in zip(weights(whole.path / last), weights(run.path / last), strict=True):
        np.testing.assert_array_equal(x, y)
    assert evaluate(whole, split="valid").metrics()["mrr"] == max(x.get("val_mrr", 0) for x in rows(whole.path))
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", **settings, callbacks=[Interrupt("within an epoch", 3)])
    jobi_tf.resume(tmp_path / "run")
    assert_same_run(whole.path, tmp_path / "run")


def test_a_mean_of_weights_is_of_one_model():
    average, tables = jobi_tf.AverageWeights(2), []
    for callbacks in ([average], [average], [jobi_tf.AverageWeights(2)]):
        model = jobi_tf.JoBi(GRAPH.num_entities, GRAPH.num_relations, 4, joint=False)
        model.compile(jobi_tf.LazyAdam(0.01), {"triple": jobi_tf.SampledSoftmax()})
        batches = jobi_tf.training_batches(GRAPH, 50, 4, joint=False)
        model.fit(batches, steps_per_epoch=2, epochs=2, callbacks=callbacks, verbose=0)
        tables.append(model.entities.table.numpy())
    np.testing.assert_array_equal(tables[0], tables[2])
    np.testing.assert_array_equal(tables[1], tables[2])


def test_a_mean_in_bfloat16_follows_small_changes():
    model, average = jobi_tf.JoBi(1000, 1, 4, joint=False, table_dtype="bfloat16"), jobi_tf.AverageWeights(20)
    average.set_model(model)
    means, first = [], np.random.default_rng(0).uniform(1, 1.2, (1000, 8))
    for epoch in range(60):
        average.on_epoch_begin(epoch)
        model.entities.table.assign(first * (1 + (epoch > 0) / 16))  # a twentieth of the change is lost by rounding
        average.on_epoch_end(epoch)
        means.append(model.entities.table.numpy().astype(float).mean())
    assert means[5] == pytest.approx(first.mean() * (1 + 5 / 6 / 16), abs=1e-3)
    assert means[-1] == pytest.approx(first.mean() * (1 + (1 - 0.95**40 / 20) / 16), abs=1e-3)


def test_a_run_that_is_older_than_the_mean_has_none(tmp_path):
    train(tmp_path / "run", epochs=1, average_epochs=1)
    config = tmp_path / "run" / "config.yaml"
    for older in ("average_epochs: null\n", ""):
        config.write_text(config.read_text().replace("average_epochs: 1\n", older))
        assert jobi_tf.load_run(tmp_path / "run").config.average_epochs == 1
        config.write_text(config.read_text().replace("average_epochs: null\n", "average_epochs: 1\n"))
    jobi_tf.resume(tmp_path / "run", epochs=2)
    assert len(rows(tmp_path / "run")) == 2


def test_resuming_a_finished_run_changes_nothing(run):
    before = (run.path / "metrics.jsonl").read_bytes()
    np.testing.assert_array_equal(jobi_tf.resume(run.path).model.entities.table, run.model.entities.table)
    assert (run.path / "metrics.jsonl").read_bytes() == before


def test_the_run_has_its_best_weights(run):
    ranked = {row["epoch"]: row["val_mrr"] for row in rows(run.path) if "val_mrr" in row}
    assert len(set(ranked.values())) > 1
    assert evaluate(run, split="valid").metrics()["mrr"] == max(ranked.values())


def test_the_best_is_kept_and_training_stops_after_patience(tmp_path):
    model, rows = jobi_tf.JoBi(3, 1, 2), []
    model.compile("adam")
    model.stop_training = False
    best = KeepBest(tmp_path / "model.keras", "val_hits@10", 2)
    best.set_model(model)
    stops = []
    for epoch, hits in enumerate([0.4, 0.5, None, 0.5, None, 0.3]):
        model.entities.table.assign(np.full(model.entities.table.shape, epoch))
        logs = {} if hits is None else {"val_hits@10": hits}
        best.on_epoch_end(epoch, logs)
        rows.append({"epoch": epoch + 1} | logs)
        stops.append(model.stop_training)
    assert stops == [False] * 5 + [True]
    for callback in (best, KeepBest(tmp_path / "model.keras", "val_hits@10", 2, rows)):  # and one that is resumed
        assert (callback.best, callback.best_epoch, callback.waited, callback.finished) == (0.5, 2, 2, True)
    assert (weights(tmp_path / "model.keras")[0] == 1).all()
    assert model.compiled
    assert (tmp_path / "model.keras").stat().st_size < 2 * 4 * model.count_params() + 30_000  # no optimizer


def test_another_metric_can_choose_the_epoch(tmp_path):
    other = train(tmp_path / "run", eval_every=1, monitor="hits@10", learning_rate=0.05, average_epochs=1)
    ranked = [(row["epoch"], row["val_hits@10"], row["val_mrr"]) for row in rows(other.path)]
    epoch, best, _ = max(ranked, key=lambda row: row[1])
    assert epoch != max(ranked, key=lambda row: row[2])[0]  # or it would not be told apart
    assert evaluate(other, split="valid").metrics()["hits@10"] == best
    assert best_row(rows(other.path), "hits@10")["epoch"] == epoch


def test_training_stops_early_and_stays_stopped(tmp_path):
    train(tmp_path / "run", learning_rate=1e-30, eval_every=1, patience=1)  # nothing changes, so nothing gets better
    assert len(rows(tmp_path / "run")) == 2
    jobi_tf.resume(tmp_path / "run")
    assert len(rows(tmp_path / "run")) == 2
    jobi_tf.resume(tmp_path / "run", patience=2)
    assert len(rows(tmp_path / "run")) == 3


def test_the_first_ranking_may_come_earlier(tmp_path):
    train(tmp_path / "run", eval_first=1, eval_every=2, epochs=4)
    assert [row["epoch"] for row in rows(tmp_path / "run") if "val_mrr" in row] == [1, 3, 4]


def test_without_ranking_and_without_the_pair_head(tmp_path):
    graph = random_graph(valid=0)
    run = train(tmp_path / "run", graph, eval_every=0, epochs=2, joint=False, average_epochs=1)
    for row in rows(run.path):
        assert row.keys() == {"epoch", "loss", "triple_loss", "pair_loss"} | RATES
        assert row["loss"] == row["triple_loss"]
        assert row["pair_loss"] is None
    last = weights(run.path / "checkpoints" / "epoch-000002" / "model.keras")
    for x, y in zip(run.model.weights, last, strict=True):
        np.testing.assert_array_equal(x, y)


def test_filtered_negatives_change_the_loss(run, tmp_path):
    train(tmp_path / "run", learning_rate=0.05, epochs=1, filter_negatives=True)
    filtered, plain = rows(tmp_path / "run")[0], rows(run.path)[0]
    assert filtered["triple_loss"] < plain["triple_loss"]


def test_a_loss_that_is_not_finite_stops_with_a_word(tmp_path):
    with pytest.raises(JobiError, match=r"loss .*learning rate"):
        train(tmp_path / "run", learning_rate=1e30)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_size": 201}, "batch_size .*200 .*201"),
        ({"negatives_mode": "shared", "chunk": 20}, "batch_size .*20.* 50"),
        ({"negatives_mode": "shared", "negatives": 1}, "negatives.* 1"),
        ({"negatives_mode": "by-side", "negatives": 5}, "negatives.* 5"),
        ({"negatives_mode": "shared-by-side", "negatives": 5}, "negatives.* 5"),
        ({"negatives_mode": "shared-by-side", "chunk": 20, "negatives": 6}, "batch_size .*20.* 50"),
        ({"negatives_mode": "ours"}, "negatives_mode .*'ours'"),
        ({"p": 1.5}, r"\bp .*1.5"),
        ({"dim": 0}, "dim .*0"),
        ({"seed": 2**63}, f"seed .*{2**63}"),
        ({"model": "transh"}, "model .*'complex'.*'transh'"),
        ({"loss": "full-softmax", "batch_size": 500}, r"batch_size .*queries.* 500"),
        ({"loss": "full-softmax", "table_dtype": "bfloat16"}, "table_dtype"),
        ({"model": "transe", "table_dtype": "bfloat16"}, "table_dtype .*transe"),
        ({"dimension": 3}, "'dimension'"),
        ({"devices": "7"}, "devices .*7"),
        ({"devices": "0,0"}, "devices .*0,0"),
        ({"logical_devices": 2}, "CPU .*2"),
        ({"callbacks": keras.callbacks.EarlyStopping()}, "callbacks.*EarlyStopping"),
        ({"callbacks": [print]}, "callbacks.*print"),
        ({"callbacks": None}, "callbacks.*None"),
    ],
)
def test_settings_that_cannot_work_are_refused_and_leave_nothing(settings, words, tmp_path, run):
    with pytest.raises(UsageError, match=words):
        train(tmp_path / "run", **settings)
    assert not list(tmp_path.iterdir())


def test_a_function_that_returns_no_callbacks_is_refused(tmp_path):
    for given, words in ((None, r"callbacks.*None"), (print, r"callbacks.*print")):
        with pytest.raises(UsageError, match=words):
            train(tmp_path / str(given), callbacks=lambda training, given=given: given)


def test_triples_instead_of_a_graph_are_refused():
    with pytest.raises(UsageError, match=r"list.*Graph\.from_triples"):
        jobi_tf.train([("Bern", "capital of", "Switzerland")])


def test_no_validation_triples_are_refused(tmp_path):
    with pytest.raises(UsageError, match="validation triples"):
        train(tmp_path / "run", random_graph(valid=0))
    assert not list(tmp_path.iterdir())


def test_weights_of_triples_are_refused_against_all_entities(tmp_path):
    weighted = dataclasses.replace(GRAPH, weights={"train": np.ones(len(GRAPH.train), np.float32)})
    with pytest.raises(UsageError, match="weights"):
        jobi_tf.train(weighted, loss="full-softmax", run_dir=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_folder_with_files_is_refused_and_left_alone(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UsageError, match=tmp_path.name):
        train(tmp_path)
    with pytest.raises(UsageError, match="mine"):
        train(tmp_path / "mine")
    assert [x.name for x in tmp_path.iterdir()] == ["mine"]


def test_a_run_that_another_process_trains_is_left_to_it(run):
    for call in (lambda: jobi_tf.resume(run.path, epochs=9), lambda: train(run.path)):
        with FileLock(run.path.with_name(f".{run.path.name}.lock")), pytest.raises(JobiError, match="no other process"):
            call()
    assert len(rows(run.path)) == 6


def test_resume_refuses_other_settings(run):
    with pytest.raises(UsageError, match=r"dim .*8.* 16"):
        jobi_tf.resume(run.path, dim=16)
    with pytest.raises(UsageError, match="'dimension'"):
        jobi_tf.resume(run.path, dimension=16)
    assert jobi_tf.load_run(run.path).config.dim == 8


def test_no_fewer_epochs_than_the_best_model_may_have(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", checkpoint_every="2", eval_every=1, callbacks=[Interrupt("within an epoch", 3)])
    with pytest.raises(UsageError, match="3 epochs"):
        jobi_tf.resume(tmp_path / "run", epochs=2)
    with pytest.raises(UsageError, match="patience of at least 9 until epoch 3"):
        jobi_tf.resume(tmp_path / "run", patience=1)


def test_resume_needs_a_checkpoint(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", callbacks=[Interrupt("before its checkpoint", 0)], eval_every=0)
    with pytest.raises(DataError, match=r"checkpoint.* delete"):
        jobi_tf.resume(tmp_path / "run")
    with pytest.raises(DataError, match="checkpoint"):
        jobi_tf.load_run(tmp_path / "run")
    with pytest.raises(UsageError, match="delete"):
        train(tmp_path / "run")


def test_a_run_without_checkpoints_is_not_taken_for_an_interrupted_training(run, tmp_path):
    folder = run.save(tmp_path / "copy").path
    with pytest.raises(DataError, match=r"checkpoint.* warm_start"):
        jobi_tf.resume(folder)
    with pytest.raises(UsageError, match="has files already"):
        train(folder)


@pytest.mark.parametrize(
    ("steps", "size", "devices", "expected"),
    [(272, 1000, 1, 2), (10_884, 25, 1, 12), (10_884, 25, 2, 1), (31, 50, 1, 1), (30, 50, 1, 3), (60, 2001, 1, 1)],
)
def test_steps_per_execution(steps, size, devices, expected):
    assert steps_per_execution(steps, size, devices) == expected


class Count(keras.callbacks.Callback):
    """Adds a metric of its own, and notes what it sees."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs):
        self.seen.append("val_mrr" in logs)
        logs["mine"] = epoch


def test_callbacks_see_the_validation_and_what_they_add_is_recorded(tmp_path):
    count = Count()
    run = train(tmp_path / "run", callbacks=[count])
    assert count.seen == [False, True] * 3
    assert [row["mine"] for row in rows(run.path)] == list(range(6))
    assert run.history["mine"] == list(range(6))
    assert run.history["val_mrr"][0] is None


@pytest.fixture(scope="module")
def dropped_out(tmp_path_factory):
    settings = {"learning_rate": 0.05, "entity_dropout": 0.1}
    return train(tmp_path_factory.mktemp("runs") / "dropped-out", **settings), settings


@pytest.mark.parametrize("every", ["3", "1m"])
def test_checkpoints_every_few_epochs_or_minutes_within_an_epoch(dropped_out, tmp_path, every, monkeypatch):
    whole, settings = dropped_out
    monkeypatch.setattr("jobi_tf.training.recording.SECONDS_PER_MINUTE", 0)  # so that it is due after every step
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", **settings, checkpoint_every=every, callbacks=[Interrupt("within an epoch", 4)])
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert checkpoint.name == ("epoch-000003" if every == "3" else "epoch-000004-step-00000001")
    jobi_tf.resume(tmp_path / "run", callbacks=())
    assert_same_run(whole.path, tmp_path / "run")


def test_the_epochs_after_the_rest_of_an_interrupted_one_are_whole(tmp_path, monkeypatch):
    def stop(batch, logs):
        if batch >= 20:  # the 15 steps or so that are left are executed one by one, those of an epoch by three
            raise KeyboardInterrupt

    settings = {"batch_size": 5, "epochs": 3, "checkpoint_every": "1m"}
    whole = train(tmp_path / "whole", **settings)
    monkeypatch.setattr("jobi_tf.training.recording.SECONDS_PER_MINUTE", 0)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", **settings, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=stop)])
    jobi_tf.resume(tmp_path / "run", callbacks=())
    assert epoch_rows(whole.path) == epoch_rows(tmp_path / "run")


def test_a_training_that_cannot_fit_into_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 10**8}))
    for settings, advice in (({}, "dim"), ({"loss": "full-softmax"}, "pair_entities")):
        with pytest.raises(UsageError, match=f"memory.*{advice}"):
            train(tmp_path / "run", **settings)
    assert not list(tmp_path.iterdir())


def test_resuming_a_finished_run_without_rankings_keeps_the_mean(tmp_path):
    train(tmp_path / "run", eval_every=0, epochs=3, learning_rate=0.05)
    mean = weights(tmp_path / "run" / "model.keras")
    jobi_tf.resume(tmp_path / "run")
    for x, y in zip(weights(tmp_path / "run" / "model.keras"), mean, strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_callback_may_stop_after_the_rest_of_an_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr("jobi_tf.training.recording.SECONDS_PER_MINUTE", 0)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", checkpoint_every="1m", callbacks=[Interrupt("within an epoch", 1)])
    stop = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: setattr(stop.model, "stop_training", True))
    jobi_tf.resume(tmp_path / "run", callbacks=[stop])
    assert len(rows(tmp_path / "run")) == 2


def test_settings_of_files_beside_a_graph_are_refused(tmp_path):
    with pytest.raises(UsageError, match="weights"):
        jobi_tf.train(GRAPH, run_dir=tmp_path / "run", weights="confidence")
