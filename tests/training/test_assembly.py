"""Every loss, scorer and option trains, from its settings to weights."""

from itertools import pairwise, product

import keras
import numpy as np
import pytest

import jobi_tf
from jobi_tf.errors import UsageError
from jobi_tf.models.jobi import JoBi
from jobi_tf.models.scorers import SCORERS
from jobi_tf.training.assembly import build_batches, build_model, completed, epoch
from jobi_tf.training.config import TrainConfig
from tests.graphs import named_graph, random_graph

GRAPH = random_graph(train=180)
QUERIES = len({(side, e, r) for h, r, t in GRAPH.train.tolist() for side, e in ((0, t), (1, h))})
FULL = {"loss": "full-softmax"}
# With all queries in a batch, since losses of other batches differ by the numbers of their answers.
ALL = FULL | {"batch_size": QUERIES}
SIDES = {"negatives_mode": "by-side", "negatives": 6}
SHARED = SIDES | {"negatives_mode": "shared-by-side"}
LOSSES = ["softmax", "full-softmax", "logistic", "margin"]
FAST = [*(("complex", loss) for loss in LOSSES), ("tucker", "full-softmax"), ("rotate", "logistic")]
SLOW = [x for x in product([x for x in SCORERS if x != "conve"], LOSSES) if x not in FAST]


def slow(**settings):
    return pytest.param(settings, marks=pytest.mark.slow)


def complete(graph=GRAPH, devices=1, **settings):
    plain = {"dataset": "tiny", "dim": 8, "batch_size": 50, "negatives": 5, "learning_rate": 0.02, "epochs": 4}
    if settings.get("loss") == "full-softmax":
        del plain["negatives"]
    return completed(TrainConfig.create(plain | settings), graph, devices)


def fit(model, config, epochs, first=0):
    steps = epoch(config, GRAPH).steps
    batches = build_batches(config, GRAPH, first * steps)
    return model.fit(batches, epochs=epochs, steps_per_epoch=steps, verbose=0).history


@pytest.mark.parametrize(("model", "loss"), [*FAST, *(pytest.param(*x, marks=pytest.mark.slow) for x in SLOW)])
def test_the_losses_of_both_heads_fall(model, loss):
    config = complete(model=model, **(ALL if loss == "full-softmax" else {"loss": loss}))
    history = fit(build_model(config, GRAPH), config, 15 if loss == "full-softmax" else 8)
    # The relations of a random graph say little about pairs: that their labels are learned is tested elsewhere.
    assert np.mean(history["triple_loss"][-3:]) < 0.99 * history["triple_loss"][0]
    assert np.mean(history["pair_loss"][-3:]) < 1.01 * history["pair_loss"][0]


@pytest.mark.parametrize(
    "settings",
    [
        {"n3": 0.01, "n3_pair": 0.01, "l2": 0.01},
        {"entity_dropout": 0.1, "relation_dropout": 0.1},
        {"label_smoothing": 0.1},
        slow(relation_prediction=0.5),
        ALL | {"reciprocal": True, "relation_prediction": 2.0, "model": "rescal"},
        {"optimizer": "adagrad", "learning_rate": None},
        slow(schedule="cosine"),
        slow(schedule="exponential"),
        ALL | {"reciprocal": True, "n3": 0.01, "entity_dropout": 0.1, "optimizer": "adagrad"},
        slow(**ALL, joint=False, label_smoothing=0.1),
        {"loss": "logistic", "adversarial_temperature": 0.5, "negatives_mode": "shared", "negatives": 6},
        slow(**SIDES, reciprocal=True, relation_prediction=0.5, n3=0.01, entity_dropout=0.1),
        slow(**SIDES, loss="margin"),
        SHARED | {"reciprocal": True, "relation_prediction": 0.5, "n3": 0.01, "entity_dropout": 0.1},
        SHARED | {"loss": "logistic", "model": "tucker", "optimizer": "row-adagrad"},
    ],
)
def test_with_each_option_the_loss_falls(settings):
    config = complete(**settings)
    losses = fit(build_model(config, GRAPH), config, 4)["loss"]
    assert all(b < a for a, b in pairwise(losses))


@pytest.mark.parametrize(
    "settings",
    [
        FULL | {"reciprocal": True, "entity_dropout": 0.2, "n3": 0.1, "schedule": "cosine", "model": "tucker"},
        slow(relation_dropout=0.2, optimizer="adagrad", l2=0.1, schedule="exponential", model="rotate"),
        slow(loss="logistic", adversarial_temperature=1.0, label_smoothing=0.1, relation_prediction=0.5),
        SIDES | {"reciprocal": True, "filter_negatives": True, "optimizer": "row-adagrad"},
        slow(**SHARED, reciprocal=True, filter_negatives=True, optimizer="adagrad"),
        FULL | {"model": "conve", "reciprocal": True, "joint": False, "dim": 9},
    ],
)
def test_a_saved_training_goes_on_exactly(settings, tmp_path):
    config = complete(**settings)
    whole, broken = (build_model(config, GRAPH) for _ in range(2))
    fit(whole, config, 2)
    fit(broken, config, 1)
    broken.save(tmp_path / "model.keras")
    broken = jobi_tf.load_model(tmp_path / "model.keras")
    fit(broken, config, 1, first=1)
    for a, b in zip(
        whole.weights + whole.optimizer.variables, broken.weights + broken.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("loss", ["softmax", "full-softmax"])
def test_a_step_is_traced_once(loss, monkeypatch):
    traced, call = [], JoBi.call
    monkeypatch.setattr(JoBi, "call", lambda *args, **options: traced.append(args) or call(*args, **options))
    config = complete(loss=loss)
    fit(build_model(config, GRAPH), config, 1)
    assert len(traced) == 1


def test_full_softmax_learns_a_rule():
    """Relation 0 leads from each entity to the next one; half of the triples of relation 1 tell the same."""
    rng = np.random.default_rng(0)
    heads = np.arange(30)
    first, second = (np.stack([heads, np.full(30, r), (heads + 1) % 30], 1) for r in (0, 1))
    order = rng.permutation(30)
    train = np.concatenate([first, second[order[:20]]]).astype(np.int32)
    graph = named_graph({"train": train, "valid": second[order[20:]].astype(np.int32), "test": train[:1]}, 30, 2)
    config = complete(graph, **FULL, batch_size=None, epochs=60, dim=16)
    model = build_model(config, graph)
    steps = epoch(config, graph).steps
    history = model.fit(build_batches(config, graph), epochs=60, steps_per_epoch=steps, verbose=0).history
    assert history["triple_loss"][-1] < 0.05
    for side, column in ((0, 0), (1, 2)):
        best = model.scores(graph.valid, side).numpy().argmax(1)
        assert (best == graph.valid[:, column]).mean() >= 0.8


def test_the_optimizer_and_its_learning_rates():
    def rate(step, **settings):
        model = build_model(complete(**settings), GRAPH)
        model.optimizer.iterations.assign(step)
        return float(model.optimizer.learning_rate), type(model.optimizer).__name__

    steps = epoch(complete(), GRAPH).steps * 4
    assert rate(0) == (pytest.approx(0.02), "LazyAdam")
    assert rate(steps, schedule="constant", optimizer="adagrad") == (pytest.approx(0.02), "LazyAdagrad")
    assert [rate(x, schedule="cosine")[0] for x in (0, steps // 2, steps)] == pytest.approx([0.02, 0.01, 0], abs=1e-7)
    rise = [rate(x, schedule="cosine", warmup_epochs=2)[0] for x in (0, steps // 4, steps // 2, 3 * steps // 4, steps)]
    assert rise == pytest.approx([0, 0.01, 0.02, 0.01, 0], abs=1e-7)
    found = [rate(x, schedule="exponential")[0] for x in (0, steps // 2, steps)]
    assert found == pytest.approx([0.02, 0.002, 0.0002])


def test_defaults_that_hang_on_others():
    def default(name, **settings):
        return getattr(completed(TrainConfig.create({"dataset": "x"} | settings), GRAPH), name)

    assert [default("margin", loss=x) for x in ("softmax", "full-softmax", "margin", "logistic")] == [None, None, 1, 0]
    assert default("margin", loss="logistic", model="rotate") == 6
    assert default("margin", loss="logistic", model="rotate", margin=0.0) == 0
    assert default("learning_rate", optimizer="adagrad") == default("learning_rate", optimizer="row-adagrad") == 0.1
    assert (default("learning_rate"), default("learning_rate", negatives_mode="shared")) == (0.0008, 0.0012)
    assert default("batch_size") == default("batch_size", **FULL) == 50
    assert default("batch_size", negatives_mode="shared", chunk=7) == 49
    config = completed(TrainConfig.create({"dataset": "x", "loss": "margin"}), GRAPH)
    assert completed(config, GRAPH) == config


def test_the_losses_that_settings_name():
    def losses(**settings):
        return build_model(complete(**settings), GRAPH).loss

    assert isinstance(losses()["pair"], keras.losses.BinaryCrossentropy)
    assert losses(**FULL)["pair"].get_config()["margin"] == 0
    assert losses(model="transe")["pair"].get_config()["margin"] == 6
    assert losses(model="transe", loss="logistic", margin=2.0)["pair"].get_config()["margin"] == 2
    logistic = losses(loss="logistic", margin=2.0, adversarial_temperature=0.5, label_smoothing=0.1)["triple"]
    assert {
        "margin": 2.0,
        "adversarial_temperature": 0.5,
        "label_smoothing": 0.1,
    }.items() <= logistic.get_config().items()


def test_an_epoch_of_queries_stands_for_the_triples_of_training():
    assert epoch(complete(**ALL), GRAPH).triples == len(GRAPH.train)
    found = epoch(complete(**FULL), GRAPH)
    assert found.steps == QUERIES // 50
    assert found.triples == round(len(GRAPH.train) * found.steps * 50 / QUERIES)
    assert epoch(complete(), GRAPH).triples == 150


def test_settings_that_cannot_work_together_are_refused():
    with pytest.raises(UsageError, match="negatives_mode"):
        complete(**FULL, negatives_mode="shared")
    with pytest.raises(UsageError, match=r"batch_size .*queries.* 5,000"):
        complete(**FULL, batch_size=5000)
    with pytest.raises(UsageError, match=r"200 training triples.*chunks of 100, got 180"):
        complete(negatives_mode="shared", chunk=100, batch_size=None, devices=2)
