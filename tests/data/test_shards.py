import shutil
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.data.batches import training_batches
from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import KnownAnswers, Occurrences
from jobi_tf.data.shards import Shards, ShardWriter, blocks
from jobi_tf.datasets import reading
from jobi_tf.datasets.writing import write_shards, write_text
from jobi_tf.errors import DataError, JobiError, UsageError
from jobi_tf.training.servers import steps_of_a_block
from tests.graphs import named_graph, random_graph

TRIPLES = np.arange(3 * 203, dtype=np.int32).reshape(-1, 3)


def written(folder, triples=TRIPLES, files=3, block=8, window=4):
    writer = ShardWriter(folder, files, block, window)
    for part in np.array_split(triples, 7):
        writer.write(part)
    return writer.finish()


def with_shards(shards):
    return named_graph({"train": shards, "valid": TRIPLES[:1], "test": TRIPLES[:1]}, TRIPLES.size, TRIPLES.size)


def streamed(graph, count, first_step=0, seed=0):
    batches = training_batches(graph, 20, negatives=2, seed=seed, first_step=first_step)
    return [inputs["triples"].numpy() for inputs, _ in batches.take(count)]


@pytest.fixture
def graph(tmp_path):
    """A graph with 203 training triples that are all different, in 26 blocks, the last one of 3 triples."""
    return with_shards(written(tmp_path))


@pytest.mark.parametrize(("window", "steps"), [(1, 10), (20, 51), (100, 51)])
def test_workers_of_servers_share_an_epoch_of_shards(tmp_path, window, steps):
    graph = with_shards(written(tmp_path, block=8, window=window))
    assert steps_of_a_block(graph, 1, parts=4) == min(max(10, 8 * window), steps)
    assert steps_of_a_block(random_graph(), 1, parts=4) == 10  # from memory


@pytest.mark.parametrize("files", [1, 3, 40, 10**6])  # more than a process may have open
@pytest.mark.parametrize("count", [5, 8, 203])
def test_what_is_written_is_read(tmp_path, files, count):
    shards = written(tmp_path, TRIPLES[:count], files)
    assert len(shards) == count
    used = min(files, -(-count // 8))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"train-{i:05d}-of-{used:05d}" for i in range(used)]
    assert len(shards.files) == used
    assert all(x % 8 == 0 for x in shards.counts[:-1])
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 12 * count
    np.testing.assert_array_equal(np.sort(shards[:], 0), TRIPLES[:count])
    np.testing.assert_array_equal(np.concatenate([*blocks(shards, 3)]), shards)
    assert shards.shape == (count, 3)
    np.testing.assert_array_equal([*shards], shards)


def test_an_epoch_has_every_triple_once_but_those_that_fill_no_batch(graph):
    steps = 203 // 20
    first, second = (np.concatenate(streamed(graph, steps, i * steps)) for i in range(2))
    for epoch in (first, second):
        assert len(np.unique(epoch[:, 0])) == steps * 20
    assert (first != second).any(1).mean() > 0.9
    left_out = [set(TRIPLES[:, 0]) - set(epoch[:, 0]) for epoch in (first, second)]
    assert left_out[0] != left_out[1]
    rows = graph.train[:, 0].tolist()
    block = np.array([rows.index(head) // 8 for head in first[11:43, 0]])  # of a window, after a short one
    assert len(np.unique(block)) == 4
    assert (np.diff(block) != 0).sum() > 8


def test_a_stream_says_that_it_has_no_end(graph):
    """Keras' `fit` would never return."""
    assert training_batches(graph, 20, negatives=2).cardinality() == tf.data.INFINITE_CARDINALITY


@pytest.mark.parametrize("count", [131, 147, 203])
def test_no_triple_is_left_out_of_most_epochs(tmp_path, count):
    graph, steps, epochs = with_shards(written(tmp_path, TRIPLES[:count])), count // 20, 30
    heads = np.concatenate(streamed(graph, steps * epochs))[:, 0]
    trained = np.unique(heads, return_counts=True)[1]
    assert len(trained) == count
    assert trained.min() > epochs / 2


def test_the_stream_goes_on_at_any_step(graph):
    whole = streamed(graph, 25)
    for step in (1, 3, 9, 10, 17):
        np.testing.assert_array_equal(streamed(graph, 25 - step, step), whole[step:])
    assert (np.concatenate(streamed(graph, 25, seed=1)) != np.concatenate(whole)).any(1).mean() > 0.9
    first = tf.function(
        lambda step: next(iter(training_batches(graph, 20, negatives=2, first_step=step)))[0]["triples"]
    )
    for step in (1, 17):  # as a tensor
        np.testing.assert_array_equal(first(tf.constant(step, tf.int64)), whole[step])


@pytest.mark.parametrize("count", [5, 8, 30, 33])
def test_a_graph_of_few_blocks(tmp_path, count):
    shards = written(tmp_path, TRIPLES[:count], 2)
    graph = with_shards(shards)
    (batch,) = [inputs["triples"].numpy() for inputs, _ in training_batches(graph, count, negatives=2).take(1)]
    np.testing.assert_array_equal(np.sort(batch, 0), TRIPLES[:count])


@pytest.mark.parametrize("size", [10, 12 * 8, 12 * 203])
def test_a_shard_of_another_size_is_damaged(graph, size):
    path = graph.train.paths()[1]
    with open(path, "rb+") as file:
        file.truncate(size)
    with pytest.raises(DataError, match=path):
        next(graph.train.blocks())
    with pytest.raises(DataError, match=path):
        training_batches(graph, 20, negatives=2)


def test_shards_that_are_missing_or_of_another_graph_are_refused(tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        random_graph(seed=seed).save(tmp_path / name)
    run = write_shards(tmp_path / "a", tmp_path / "shards", 2)
    run.save(tmp_path / "run")
    (tmp_path / "shards").rename(tmp_path / "moved")
    with pytest.raises(DataError, match=r"shards/train-00000.*nothing there"):
        KnownAnswers.of_graph(Graph.open(tmp_path / "run"), ("train",), run.valid)
    (tmp_path / "moved").rename(tmp_path / "shards")
    fewer = replace(run, splits={**run.splits, "valid": run.valid[:3]})
    fewer.save(tmp_path / "fewer")
    assert len(Graph.open(tmp_path / "fewer").valid) == 3
    shutil.rmtree(tmp_path / "shards")
    write_shards(tmp_path / "b", tmp_path / "shards", 2)
    with pytest.raises(DataError, match=r"shards, found those of another graph"):
        Graph.open(tmp_path / "run")


def test_the_place_in_a_stream_of_shards_can_be_saved(graph, tmp_path):
    batches = iter(training_batches(graph, 20, negatives=2))
    next(batches)
    path = tf.train.Checkpoint(batches=batches).write(str(tmp_path / "place"))
    expected = next(batches)[0]["triples"]
    other = iter(training_batches(graph, 20, negatives=2))
    tf.train.Checkpoint(batches=other).read(path)
    np.testing.assert_array_equal(next(other)[0]["triples"], expected)


def test_negatives_that_are_triples_of_shards_are_ignored(graph):
    """Each relation has one head and one tail, so that biased negatives are the triple itself."""
    ((_, labels),) = training_batches(graph, 203, negatives=4, p=1.0, filter_negatives=True).take(1)
    assert (labels["triple"].numpy()[:, 1:] == -1).all()


@pytest.mark.parametrize("in_text", [True, False])
def test_a_graph_in_shards_is_the_same_graph(tmp_path, monkeypatch, in_text):
    monkeypatch.setattr(reading, "_PART", 16)
    graph = random_graph()
    write_text(graph, tmp_path / "text")
    source = tmp_path / "text"
    expected = jobi_tf.load_graph(source)
    if not in_text:
        expected.save(tmp_path / "prepared")
        source = tmp_path / "prepared"
    found = write_shards(source, tmp_path / "shards", 4)
    assert isinstance(found.train, Shards)
    found = jobi_tf.load_graph(tmp_path / "shards")
    assert found.fingerprint == expected.fingerprint
    assert found.entities.names == expected.entities.names
    assert sorted(found.train[:].tolist()) == sorted(expected.train.tolist())
    for name in ("valid", "test"):
        np.testing.assert_array_equal(found.split(name), expected.split(name))
    np.testing.assert_array_equal(found.seen_in_training, expected.seen_in_training)
    np.testing.assert_array_equal(Occurrences.of_graph(found).keys(), Occurrences.of_graph(expected).keys())
    known = [KnownAnswers.of_graph(x, ("train", "valid"), x.valid) for x in (found, expected)]
    np.testing.assert_array_equal(known[0].keys, known[1].keys)
    np.testing.assert_array_equal(known[0].answers.entities, known[1].answers.entities)
    found.save(tmp_path / "copy")
    assert Graph.open(tmp_path / "copy").fingerprint == found.fingerprint
    assert not [*(tmp_path / "copy").glob("train-*")]
    assert Graph.open(tmp_path / "copy").train[:].tolist() == found.train[:].tolist()
    with pytest.raises(UsageError):
        write_shards(source, tmp_path / "shards", 4)


def test_a_run_on_shards_resumes(tmp_path):
    random_graph(train=180).save(tmp_path / "prepared")
    write_shards(tmp_path / "prepared", tmp_path / "shards", 4)
    options = {"dim": 4, "batch_size": 20, "negatives": 4, "eval_every": 0, "tensorboard": "none", "callbacks": ()}
    options |= {"dataset": tmp_path / "shards", "negatives_mode": "shared-by-side"}
    whole = jobi_tf.train(**options, epochs=2, run_dir=tmp_path / "whole")
    jobi_tf.train(**options, epochs=1, run_dir=tmp_path / "broken")
    resumed = jobi_tf.resume(tmp_path / "broken", epochs=2, callbacks=())
    for a, b in zip(whole.model.weights, resumed.model.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert jobi_tf.evaluate(whole.model, whole.graph).metrics()["mrr"] > 0


def test_a_graph_of_another_file_system(tmp_path):
    random_graph().save(tmp_path / "prepared")
    local = write_shards(tmp_path / "prepared", tmp_path / "shards", 3)
    for file in (tmp_path / "shards").iterdir():
        tf.io.gfile.copy(str(file), f"ram://bucket/graph/{file.name}")
    for url in ("ram://bucket/graph", "ram://bucket/graph/"):
        remote = jobi_tf.load_graph(url)
        assert remote.fingerprint == local.fingerprint
        assert remote.train.paths()[0].startswith("ram://bucket/graph/train-")
        np.testing.assert_array_equal(streamed(remote, 3), streamed(local, 3))
    with pytest.raises(JobiError, match="ram://nothing"):
        jobi_tf.load_graph("ram://nothing")


def test_a_graph_of_another_file_system_that_was_changed(tmp_path):
    url = "ram://bucket/changed"
    for seed in range(2):
        write_text(random_graph(seed=seed), tmp_path / f"text{seed}")
        local = write_shards(tmp_path / f"text{seed}", tmp_path / f"shards{seed}", 1)
        for file in (tmp_path / f"shards{seed}").iterdir():
            if seed:  # what is in memory would keep the end of a longer file
                tf.io.gfile.remove(f"{url}/{file.name}")
            tf.io.gfile.copy(str(file), f"{url}/{file.name}")
        assert jobi_tf.load_graph(url).fingerprint == local.fingerprint
    for text in ("{}", "[]", "no JSON"):
        tf.io.gfile.remove(f"{url}/graph.json")
        with tf.io.gfile.GFile(f"{url}/graph.json", "w") as file:
            file.write(text)
        with pytest.raises(JobiError, match=url):
            jobi_tf.load_graph(url)


def test_triples_with_weights_are_refused(tmp_path):
    rows = [("a", "r", "b"), ("b", "r", "c")]
    Graph.from_triples(rows, weights=[1.0, 2.0]).save(tmp_path / "graph")
    with pytest.raises(UsageError, match="weights"):
        write_shards(tmp_path / "graph", tmp_path / "out", 2)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="files"):
        write_shards("world", tmp_path / "out", 0)
