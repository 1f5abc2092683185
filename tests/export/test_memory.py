"""A request needs a bounded amount of memory, whatever the number of entities."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import jobi_tf
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.export import export_run

ENTITIES = 300_000  # all scores of 1,024 queries would take 1.2 GB
MOST = 256  # MB
PEAK = """
import re, sys
import tensorflow as tf

def megabytes(key):
    return int(re.search(rf"{key}:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

predict = tf.saved_model.load(sys.argv[1]).signatures[sys.argv[2]]
key = next(iter(predict.structured_input_signature[1].keys() & {"head", "tail"}))
for rows in (1, 1024):
    before = megabytes("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
    predict(**{key: tf.constant(["1"] * rows)}, relation=tf.constant(["0"] * rows), k=tf.constant([100] * rows))
print(megabytes("VmHWM") - before)
"""


@pytest.fixture(scope="module")
def large(run, tmp_path_factory):
    entities = Vocabulary([str(i) for i in range(ENTITIES)], "entity")
    relations = Vocabulary(["0", "1"], "relation")
    splits = {"train": np.array([[i, 0, i + 1] for i in range(1000)], np.int32), "valid": run.graph.valid[:0]}
    graph = dataclasses.replace(
        run.graph, entities=entities, relations=relations, splits={**splits, "test": splits["valid"]}
    )
    model = jobi_tf.JoBi(ENTITIES, 2, dim=25)
    larger = jobi_tf.Run(run.path, run.config, graph, model)
    return export_run(larger, tmp_path_factory.mktemp("large"), warmup=False).path


@pytest.mark.slow
@pytest.mark.parametrize("signature", ["predict_tails", "predict_new_heads"])
def test_the_peak_of_a_large_request(large, signature):
    done = subprocess.run([sys.executable, "-c", PEAK, large, signature], capture_output=True, text=True, check=True)
    assert 0 < float(done.stdout) < MOST
