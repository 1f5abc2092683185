import os
import subprocess
import sys

import keras
import numpy as np
import pytest

import jobi_tf


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    model = jobi_tf.JoBi(5, 2, 3, joint=False)
    model.compile(optimizer=jobi_tf.LazyAdam(0.01), loss={"triple": jobi_tf.SampledSoftmax()})
    model.save(path)
    return path, model.score(np.array([[0, 1, 2]])).numpy().item()


def in_a_fresh_process(program):
    environment = {**os.environ, "KERAS_BACKEND": keras.backend.backend()}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout


@pytest.mark.processes
def test_a_fresh_process_loads_a_compiled_model(saved):
    path, score = saved
    program = f"""
import keras, jobi_tf
from jobi_tf import JoBi
for load in (keras.saving.load_model, keras.models.load_model, jobi_tf.load_model):
    model = load({str(path)!r})
    print(type(model) is JoBi, type(model.optimizer).__name__, float(model.score([[0, 1, 2]])[0]) == {score!r})
"""
    assert in_a_fresh_process(program).split() == ["True", "LazyAdam", "True"] * 3


@pytest.mark.processes
@pytest.mark.parametrize("name", ["Scorer", "N3", "SampledSoftmax"])
def test_any_name_can_be_the_first_that_is_used(name):
    in_a_fresh_process(f"import jobi_tf\njobi_tf.{name}\nassert jobi_tf.JoBi(5, 2, 3).scorer")
