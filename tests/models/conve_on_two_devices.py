"""Trains ConvE on one of two logical CPUs and on both; prints the differences. Argument: an empty folder."""

import json
import sys
from pathlib import Path

import keras

import jobi_tf
from jobi_tf.models.scorers import conve
from tests.graphs import random_graph

# Each device drops out by its own draws.
conve.FEATURE_DROPOUT = conve.HIDDEN_DROPOUT = 0.0
folder, graph = Path(sys.argv[1]), random_graph(train=180)
settings = {"model": "conve", "loss": "full-softmax", "reciprocal": True, "joint": False, "dim": 9, "batch_size": 50}


class Watch(keras.callbacks.Callback):
    """Keeps how far apart the devices' copies of the weights are."""

    def on_train_end(self, logs=None):
        copies = [[x.numpy() for x in w.value.values] for w in self.model.weights]
        self.gap = max(float(abs(a - b).max()) for a, b in copies)


def train(name: str, **changes):
    options = {"epochs": 2, "eval_every": 0, "learning_rate": 0.003, "logical_devices": 2, "callbacks": ()}
    return jobi_tf.train(graph, run_dir=folder / name, **settings | options | changes).model


def gap(first, second) -> float:
    return max(float(abs(a.numpy() - b.numpy()).max()) for a, b in zip(first.weights, second.weights, strict=True))


watch = Watch()
one, both = train("one", devices="0"), train("both", callbacks=[watch])
start = jobi_tf.JoBi(graph.num_entities, graph.num_relations, 9, "conve", joint=False, reciprocal=True)
print(
    json.dumps(
        {"copies": watch.gap, "runs": gap(one, both), "moved": gap(one.heads[0].net.dense, start.heads[0].net.dense)}
    )
)
