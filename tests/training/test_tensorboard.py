import shlex
import sys
from pathlib import Path

import keras
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

import jobi_tf
from tests.graphs import random_graph

SETTINGS = {
    "tensorboard": "all",
    "dim": 4,
    "epochs": 4,
    "eval_every": 2,
    "patience": 9,
    "negatives": 4,
    "callbacks": (),
}


def read(path: Path) -> EventAccumulator:
    return EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0}).Reload()


def scalars(path: Path) -> dict[str, list[int]]:
    events = read(path)
    tags = [tag for tag, x in events.summary_metadata.items() if x.plugin_data.plugin_name == "scalars"]
    return {tag: [x.step for x in events.Tensors(tag)] for tag in tags}


@pytest.fixture(scope="module")
def graph() -> jobi_tf.Graph:
    return random_graph()


class Mine(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs):
        logs["mine"] = 1.0


@pytest.mark.parametrize(
    "more",
    [
        {"callbacks": [Mine()]},
        pytest.param({"loss": "full-softmax"}, marks=pytest.mark.slow),
        {"negatives_mode": "shared", "chunk": 5, "n3": 0.1},
    ],
)
def test_a_run_has_every_part(graph, tmp_path, more):
    settings = {name: value for name, value in SETTINGS.items() if name != "negatives" or "loss" not in more}
    run = jobi_tf.train(graph, run_dir=str(tmp_path / "run"), **settings | more)
    logs = run.path / "logs"
    found = scalars(logs)
    assert found["loss/total"] == found["loss/pair"] == found["training/learning rate"] == [1, 2, 3, 4]
    assert found.get("other/mine") == ([1, 2, 3, 4] if "callbacks" in more else None)
    assert found["validation/MRR"] == found["validation by side/MRR, heads"] == [2, 4]
    rows = [row for row in run.history["val_mrr"] if row is not None]
    assert found["best epoch/MRR"] == ([2, 4] if rows[1] > rows[0] else [2])
    assert {tag.split("/")[0] for tag in found} >= {
        "validation by category",
        "norms of embeddings",
        "norms of gradients",
        "AUC of the pair head",
        "loss of a valid sample",
    }
    assert {tag for tag in found if tag.startswith("norms of gradients")} == {
        f"norms of gradients/{name}" for name in ("entities", "relations, triple", "relations, pair")
    }
    assert ("negatives/share that are training triples" in found) == ("loss" not in more)
    plugins = {x.plugin_data.plugin_name for x in read(logs).summary_metadata.values()}
    assert plugins >= {"hparams", "text", "histograms", "custom_scalars", "images"}
    assert read(logs).Graph().node
    names = (logs / "entities.tsv").read_text().splitlines()
    assert names[0].startswith("name\t")
    assert len(names) == 1 + graph.num_entities


def test_a_chunk_may_have_more_triples_than_the_sample(tmp_path):
    settings = SETTINGS | {"negatives_mode": "shared", "chunk": 250, "batch_size": 250, "epochs": 1}
    run = jobi_tf.train(random_graph(train=250), run_dir=str(tmp_path / "run"), **settings)
    assert "loss of a train sample/triple" in scalars(run.path / "logs")


def test_no_epoch_appears_twice_after_resuming(graph, tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 3:  # the logs have the third epoch, the last checkpoint is of the second one
                raise KeyboardInterrupt

    settings = {**SETTINGS, "tensorboard": "scalars", "callbacks": [Stop()], "checkpoint_every": "2"}
    with pytest.raises(KeyboardInterrupt):
        jobi_tf.train(graph, run_dir=str(tmp_path / "run"), **settings)
    assert scalars(tmp_path / "run" / "logs")["loss/total"] == [1, 2, 3]
    jobi_tf.resume(tmp_path / "run", callbacks=())
    assert scalars(tmp_path / "run" / "logs")["loss/total"] == [1, 2, 3, 4]


def test_a_histogram_counts_some_of_many_numbers(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(jobi_tf.training.tensorboard, "MOST_NUMBERS", 50)
    settings = SETTINGS | {"tensorboard": "histograms", "epochs": 1, "eval_every": 1}
    events = read(jobi_tf.train(graph, run_dir=str(tmp_path / "run"), **settings).path / "logs")
    for tag in ("embeddings/entities", "scores of a valid sample/negatives"):
        (histogram,) = events.Tensors(tag)
        counts = tf.make_ndarray(histogram.tensor_proto)[:, 2]
        assert 25 < counts.sum() <= 50


def test_the_table_of_settings_has_a_row_for_each_folder_and_all_columns(graph, tmp_path):
    columns = []
    for joint in (True, False):
        settings = SETTINGS | {"tensorboard": "hparams", "epochs": 1, "joint": joint}
        found = read(jobi_tf.train(graph, run_dir=str(tmp_path / str(joint)), **settings).path / "logs")
        start, table = (
            plugin_data_pb2.HParamsPluginData.FromString(found.summary_metadata[f"_hparams_/{x}"].plugin_data.content)
            for x in ("session_start_info", "experiment")
        )
        # TensorBoard then takes the folder, whatever it is called by now.
        assert not start.session_start_info.group_name
        columns.append({x.name: x.differs for x in table.experiment.hparam_infos})
    assert columns[0] == columns[1]
    assert columns[0]["joint"]
    assert not columns[0]["alpha"]


def test_parts_can_be_left_out(graph, tmp_path):
    text = jobi_tf.train(graph, run_dir=str(tmp_path / "text"), **SETTINGS | {"tensorboard": "text"})
    assert {x.plugin_data.plugin_name for x in read(text.path / "logs").summary_metadata.values()} == {"text"}
    (environment,) = read(text.path / "logs").Tensors("environment")
    rows = environment.tensor_proto.string_val[0].decode().splitlines()
    assert f"| command | {shlex.join(sys.argv)} |" in rows
    assert f"| keras | {keras.version()} |" in rows
    with pytest.raises(jobi_tf.errors.UsageError, match="movies"):
        jobi_tf.train(graph, **SETTINGS | {"tensorboard": "movies"})


@pytest.mark.parametrize("steps", ["2:4", "11:11", "9:99"])
def test_the_profiler_records_the_chosen_steps(graph, tmp_path, steps):
    """Some of several steps that are computed together, too."""
    settings = SETTINGS | {"tensorboard": "none", "epochs": 1, "batch_size": 10, "eval_every": 0}
    del settings["patience"]
    run = jobi_tf.train(graph, run_dir=str(tmp_path / "run"), profile=steps, **settings)
    assert list((run.path / "logs" / "plugins" / "profile").glob("*/*"))


def test_a_split_may_have_fewer_queries_than_triples(tmp_path):
    block = [(f"h{i}", "r", f"t{j}") for i in range(6) for j in range(6)]
    graph = jobi_tf.Graph.from_triples([(h, "s", t) for h, _, t in block] + [("h0", "r", "t0")], block[1:], block[:1])
    settings = {name: x for name, x in SETTINGS.items() if name != "negatives"} | {"epochs": 1, "eval_every": 1}
    run = jobi_tf.train(graph, run_dir=str(tmp_path / "run"), loss="full-softmax", **settings)
    assert "loss of a valid sample/triple" in scalars(run.path / "logs")
