import json

import numpy as np
import pytest
import tensorflow as tf

from jobi_tf.datasets.writing import write_shards
from jobi_tf.errors import UsageError
from jobi_tf.training.assembly import build_model, completed
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.estimate import memory, step
from jobi_tf.training.plan import graph_of_size, plan
from tests.graphs import random_graph

SIZES = 1_900_000, 3_247, 19_300_000


def planned(available, devices=1, **settings):
    config = TrainConfig.create({"dataset": "plan", "dim": 100, **settings})
    return plan(config, graph_of_size(*SIZES), devices, available, calibrate=False)


@pytest.mark.parametrize("name", ["adam", "adagrad", "row-adagrad"])
@pytest.mark.parametrize("model", ["complex", "transe", "rescal", "tucker", "complex of 16 bits"])
def test_the_tables_take_what_the_model_and_its_optimizer_have(name, model):
    graph = random_graph(train=180)
    dtype = {"table_dtype": "bfloat16"} if "16" in model else {}
    settings = {"dataset": "x", "dim": 6, "optimizer": name, "model": model.split()[0], **dtype}
    config = completed(TrainConfig.create(settings), graph)
    made = build_model(config, graph)
    sizes = [
        [np.prod(x.shape) * tf.as_dtype(x.dtype).size for x in y] for y in (made.weights, made.optimizer.variables)
    ]
    estimated = memory(config, graph)
    assert estimated.embeddings == sum(sizes[0])
    # The core of TuckER has a number for each of its rows, and rows of 16 bits have one of 32: the estimate is less.
    assert estimated.optimizer == pytest.approx(sum(sizes[1][2:]), abs=4 * graph.num_entities if dtype else 48)


def test_the_memory_of_a_split_cpu_and_of_few_triples_in_shards(tmp_path):
    graph = random_graph(train=180)
    config = completed(TrainConfig(dataset="x"), graph)
    one, two = (memory(config.replace(logical_devices=count), graph) for count in (1, 2))
    assert (two.embeddings, two.optimizer) == (2 * one.embeddings, 2 * one.optimizer)
    worker = memory(config, graph, workers=True)
    assert worker.start == 2 * worker.embeddings
    assert worker.total == one.total + max(0, worker.start - max(one.batch, one.ranking))
    graph.save(tmp_path / "graph")
    assert memory(config, write_shards(tmp_path / "graph", tmp_path / "shards", 2)).graph < 2**20


def test_a_step_touches_the_distinct_rows_of_a_batch():
    config = planned(2**40).settings
    touched = {size: step(config, graph_of_size(size, 237, 272_115)).rows for size in (100, 14_541, 1_900_000)}
    random = np.random.default_rng(0)
    for size, rows in touched.items():
        drawn = len(np.unique(random.integers(0, size, 52_000)))
        assert rows == pytest.approx(drawn, rel=0.01)


def test_the_strategy_follows_from_the_memory():
    enough, less, little = planned(16 * 2**30), planned(5.5 * 2**30), planned(2**30)
    assert (enough.strategy, enough.settings.optimizer) == ("one", "adam")
    last = planned(enough.memory.total - 1).settings
    assert (last.average_epochs, last.optimizer, last.table_dtype) == (1, "adam", "float32")
    assert (less.strategy, less.settings.optimizer, less.settings.table_dtype) == ("one", "adam", "bfloat16")
    assert less.memory.total <= 5.5 * 2**30 < enough.memory.total
    rows, both = planned(3.4 * 2**30, dim=25), planned(4 * 2**30)
    distances = planned(6 * 2**30, model="rotate")
    assert [x.settings.optimizer for x in (rows, both, distances)] == ["row-adagrad"] * 3
    assert [x.settings.table_dtype for x in (rows, both, distances)] == ["float32", "bfloat16", "float32"]
    assert (rows.settings.learning_rate, enough.settings.learning_rate) == (0.1, 0.0008)
    assert little.strategy == "parameter-server"
    advised = ["--shards" in "".join(planned(x * 2**30).advice) for x in (1, 2.5)]  # the chief needs 3 GB of 1, of 2.5
    assert advised == [False, True]
    four = planned(16 * 2**30, devices=4)
    assert (four.strategy, four.settings.batch_size, four.steps) == ("mirrored", 1000, enough.steps)
    assert four.step.rows < enough.step.rows
    assert enough.epoch_seconds is None


def test_a_given_learning_rate_stays_and_servers_take_tables_of_32_bits():
    smaller, servers = planned(4 * 2**30, learning_rate=0.5), planned(2**30, table_dtype="bfloat16")
    assert (smaller.settings.optimizer, smaller.settings.learning_rate) == ("row-adagrad", 0.5)
    assert (servers.strategy, servers.settings.table_dtype, servers.memory.average) == (
        "parameter-server",
        "float32",
        0,
    )


def test_a_plan_with_all_entities_counts_the_network_of_queries():
    settings = {"dataset": "plan", "loss": "full-softmax", "reciprocal": True, "dim": 20}
    graph = graph_of_size(500, 5, 1000, seed=0)
    net, plain = (
        plan(TrainConfig.create(settings | {"model": model}), graph, 1, 2**40, calibrate=model == "conve")
        for model in ("conve", "distmult")
    )
    params = build_model(net.settings, graph).count_params()
    assert net.memory.embeddings == pytest.approx(4 * params, rel=0.001)
    assert net.memory.average == net.memory.embeddings
    assert 1 < net.steps <= 2 * 1000 / net.settings.batch_size
    assert net.step_seconds > 0
    assert net.step.operations > plain.step.operations + 6 * 2 * net.settings.batch_size * 8 * 2 * 32 * 20
    assert net.memory.batch > plain.memory.batch
    with pytest.raises(UsageError, match="batch_size"):
        plan(TrainConfig.create(settings), graph_of_size(10**6, 5, 1000, seed=0), 1, 2**30)


def test_the_command(call):
    printed = call("plan", "--dataset", "world", "--dim", "8", "--memory", "4", "--json").stdout
    found = json.loads(printed)
    assert found["step_seconds"] > 0
    assert found["epoch_seconds"] == pytest.approx(found["steps"] * found["step_seconds"])
    assert found["memory"]["total"] < 4 * 2**30
    assert found["strategy"] == "one"
    two = json.loads(call("plan", "--dataset", "world", "--devices", 2, "--no-calibrate", "--json").stdout)
    assert two["strategy"] == "mirrored"
    sizes = ("--entities", "100", "--relations", "5", "--triples", "5000")
    assert "2147483647" in call("plan", "--entities", 2**31, *sizes[2:], status=2).stderr
    assert "row-adagrad" in call("plan", *sizes, "--optimizer", "row-adagrad", "--no-calibrate").stdout
