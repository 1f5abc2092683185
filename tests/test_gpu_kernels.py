"""TensorFlow has a GPU kernel for every operation of training and ranking, which can be looked up without a GPU."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels

import jobi_tf
from jobi_tf.models import products
from jobi_tf.models.scorers import SCORERS
from tests.test_own_program import FORMS, batches, compiled

OPTIMIZERS = {
    "lazy-adam": jobi_tf.LazyAdam,
    "lazy-adagrad": jobi_tf.LazyAdagrad,
    "row-adagrad": jobi_tf.RowAdagrad,
    "adam": keras.optimizers.Adam,
}
# Inputs and outputs of functions, and the calls of functions, which the runtime places wherever their bodies are.
STRUCTURE = {"Placeholder", "_Arg", "_Retval", "PartitionedCall", "StatefulPartitionedCall", "StatelessIf", "While"}


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    """What asks for a GPU is told that there is one."""
    for module in (jobi_tf.compiled, jobi_tf.optimizers, products):
        monkeypatch.setattr(module, "on_gpu", lambda: True)


def operations(function, *arguments):
    """Every operation of the traced function, and of the functions that it calls."""
    graph = tf.function(function, autograph=False).get_concrete_function(*arguments).graph.as_graph_def()
    bodies = [graph.node, *(body.node_def for body in graph.library.function)]
    return [node for node in itertools.chain(*bodies) if node.op not in STRUCTURE]


@functools.cache
def gpu_kernels(operation):
    """The types by attribute for which each kernel for GPUs, or for all devices, is registered."""
    return [
        {x.name: set(x.allowed_values.list.type) for x in kernel.constraint if x.allowed_values.list.type}
        for kernel in kernels.get_registered_kernels_for_op(operation).kernel
        if kernel.device_type in ("GPU", "DEFAULT")
    ]


def has_gpu_kernel(node):
    """Whether there is a kernel whose types are those of the operation."""
    return any(
        all(set(node.attr[name].list.type or [node.attr[name].type]) <= types for name, types in kernel.items())
        for kernel in gpu_kernels(node.op)
    )


def without_gpu_kernel(function, *arguments):
    found = operations(function, *arguments)
    assert len(found) > 20
    return {
        (node.op, *(tf.as_dtype(x.type).name for x in node.attr.values() if x.type))
        for node in found
        if not has_gpu_kernel(node)
    }


def test_an_operation_without_one_is_found():

    def function(x):
        for _ in range(20):
            x += 1
        return tf.math.bincount(x) + tf.strings.to_number(tf.strings.as_string(x), tf.int32)

    assert {name for name, *_ in without_gpu_kernel(function, tf.constant([1]))} >= {"AsString", "StringToNumber"}


STEPS = [
    pytest.param(*step, marks=[] if "lazy-adam" in step or "own" in step else pytest.mark.slow)
    for step in itertools.product(FORMS, OPTIMIZERS)
]


@pytest.mark.parametrize(("form", "optimizer"), STEPS)
def test_a_training_step(form, optimizer):
    options = {"regularizers": ["n3", "l2", "relation_prediction"], "entity_dropout": 0.1, "relation_dropout": 0.1}
    model = compiled(OPTIMIZERS[optimizer](0.01), form, **options)
    assert not without_gpu_kernel(model.train_step, next(iter(batches(form))))


@pytest.mark.parametrize("name", [x for x in OPTIMIZERS if x != "adam"])
def test_a_training_step_with_a_table_of_16_bits(name):
    model = compiled(OPTIMIZERS[name](0.01), table_dtype="bfloat16")
    assert not without_gpu_kernel(model.train_step, next(iter(batches())))


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("side", [0, 1])
def test_a_block_of_ranking(scorer, side):
    model = jobi_tf.JoBi(30, 4, 9, scorer, reciprocal=scorer == "conve")
    triples = np.zeros([2, 3], np.int64)

    def rank(triples):
        scores = model.scores(triples, side)
        return scores > scores[:, :1]

    assert not without_gpu_kernel(rank, tf.constant(triples))
