"""Trains and ranks on one of two logical CPUs and on both; prints the differences. Argument: an empty folder."""

import contextlib
import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import jobi_tf
from jobi_tf.data.occurrences import KnownAnswers
from jobi_tf.errors import UsageError
from jobi_tf.evaluation.ranker import Ranker
from jobi_tf.models.scorers import conve
from jobi_tf.training.devices import strategy_for
from tests.graphs import random_graph
from tests.processes import epoch_rows

folder, graph = Path(sys.argv[1]), random_graph(test=101)
settings = {"dim": 8, "batch_size": 20, "epochs": 2, "eval_every": 1, "learning_rate": 0.01, "tensorboard": "none"}
sampled = {"negatives": 5}


def train(name: str, **changes):
    changes = ({} if "loss" in changes else sampled) | changes
    run = jobi_tf.train(graph, run_dir=folder / name, logical_devices=2, **settings | changes)
    return run, epoch_rows(run.path)


def gap(first, second) -> float:
    pairs = zip(first.model.weights, second.model.weights, strict=True)
    return max(float(abs(a.numpy() - b.numpy()).max()) for a, b in pairs)


class Watch(tf.keras.callbacks.Callback):
    """Keeps what fit saw: the number of replicas, and how far apart their copies of the tables are."""

    def on_train_end(self, logs=None):
        self.replicas = tf.distribute.get_strategy().num_replicas_in_sync
        copies = [[x.numpy() for x in w.value.values] for w in self.model.weights]
        self.gap = max(float(abs(a - b).max()) for a, b in copies)


class Interrupt(tf.keras.callbacks.Callback):
    """Ends the second epoch before its checkpoint."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


watch = Watch()
one, one_rows = train("one", devices="0")
both, both_rows = train("both", callbacks=[watch], tensorboard="all")
with contextlib.suppress(KeyboardInterrupt):
    train("broken", callbacks=[Interrupt()])
resumed = jobi_tf.resume(folder / "broken")
alone = jobi_tf.JoBi(graph.num_entities, graph.num_relations, 8)

try:
    train("odd", batch_size=25)
    refused = ""
except UsageError as error:
    refused = str(error)

rows_only = {"optimizer": "row-adagrad"}
by_row = [train(f"by-row-{devices}", devices=devices, **rows_only)[0] for devices in ("0", "0,1")]
try:
    train("odd", batch_size=15, negatives_mode="shared", chunk=5)
    refused_chunks = ""
except UsageError as error:
    refused_chunks = str(error)

# Batch normalisation over both devices; each would drop out by its own draws.
conve.FEATURE_DROPOUT = conve.HIDDEN_DROPOUT = 0.0
normalised = {"model": "conve", "loss": "full-softmax", "reciprocal": True, "joint": False, "dim": 9, "batch_size": 50}
of_all = [train(f"conve-{devices}", devices=devices, **normalised)[0] for devices in ("0", "0,1")]

known = KnownAnswers.of_graph(graph, ["train", "valid", "test"])
strategy = strategy_for(logical_devices=2)
with strategy.scope():
    mirrored = jobi_tf.JoBi(graph.num_entities, graph.num_relations, 8)
    shared = mirrored.candidates()
    ranker = Ranker(mirrored, known, memory_budget=4 * graph.num_entities * 7)  # 101 is no multiple of 2 times 7
ranks = [(Ranker(alone, known).rank(graph.test, side), ranker.rank(graph.test, side)) for side in (0, 1)]

print(
    json.dumps(
        {
            "replicas": watch.replicas,
            "candidates_equal": np.array_equal(shared, alone.candidates()),
            "gap_between_replicas": watch.gap,
            "weights": gap(one, both),
            "resumed": gap(both, resumed),
            "moved": float(abs(one.model.entities.table.numpy() - alone.entities.table.numpy()).max()),
            "rows": [one_rows, both_rows],
            "by_row": gap(*by_row),
            "conve": gap(*of_all),
            "refused": refused,
            "refused_chunks": refused_chunks,
            "odd": (folder / "odd").exists(),
            "ranks_equal": all(
                np.array_equal(a.greater, b.greater) and np.array_equal(a.equal, b.equal) for a, b in ranks
            ),
            "ranks": len(ranks[0][1].greater),
        }
    )
)  # fmt: skip
