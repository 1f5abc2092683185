"""Trains on one of several logical CPUs and on all, by `compile` and `fit` alone; prints the differences."""

import json

import numpy as np
import tensorflow as tf

import jobi_tf
from jobi_tf.errors import UsageError
from tests.test_own_program import batches, compiled


def main(form: str, count: int) -> None:
    """Runs a form of a batch with a row-sparse and with a stock optimizer."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(count)], tf.distribute.ReductionToOneDevice())
    options = {"regularizers": [jobi_tf.N3(0.1), jobi_tf.L2(0.01), "relation_prediction"]}
    found = {}
    for name in ("lazy", "lazy of 16 bits", "adam"):
        optimizer = (lambda: "adam") if name == "adam" else (lambda: jobi_tf.LazyAdam(0.01))
        rounded = name == "lazy of 16 bits"
        if rounded and form == "queries":  # which need a float32 table
            continue
        options["table_dtype"] = "bfloat16" if rounded else "float32"
        one = compiled(optimizer(), form, **options)
        with strategy.scope():
            both = compiled(optimizer(), form, **options)
        start = one.entities.table.numpy().astype(float)
        steps = {"steps_per_epoch": 20, "verbose": 0}
        # Devices share a batch equally, shared negatives by whole chunks.
        stream = batches(form, batch_size=40, **({"chunk": 5} if form.startswith("shared") else {}))
        losses = [model.fit(stream, **steps).history["loss"][0] for model in (one, both)]
        # A last bit that differs changes how numbers are rounded: then only the copies of the devices are equal.
        equal = [[*x.value.values, *([] if rounded else [y])] for x, y in zip(both.weights, one.weights, strict=True)]
        gaps = [np.ptp([x.numpy().astype(float) for x in every], 0).max() for every in equal]
        moved = abs(one.entities.table.numpy() - start).max()
        found[name] = {
            "gap": float(max(gaps)),
            "moved": float(moved) * (10 if name == "adam" else 1),  # Keras' learning rate is a tenth
            "loss": float(abs(np.diff(losses)[0])),
        }
    with strategy.scope():
        odd = compiled()
    try:
        odd.fit(batches(batch_size=25), steps_per_epoch=1, verbose=0)
    except UsageError as error:
        found["odd"] = str(error)
    try:
        with strategy.scope():
            whole = compiled(compile_options={"jit_compile": True})
        whole.fit(batches(batch_size=20), steps_per_epoch=1, verbose=0)
    except UsageError as error:
        found["jit"] = str(error)
    print(json.dumps(found))
