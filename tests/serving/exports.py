"""Models to serve: an export of a tiny run, and a SavedModel with signatures that an export does not have."""

import shutil
from pathlib import Path

import tensorflow as tf

import jobi_tf
from jobi_tf.export import export_run
from jobi_tf.training.run import Run
from tests.graphs import random_graph

ENTITIES = 30  # `entity 0`, `entity 1`, …
RELATIONS = 4  # `relation 0`, …


def tiny_run(folder: Path) -> Run:
    jobi_tf.train(random_graph(ENTITIES, RELATIONS), run_dir=folder, dim=4, batch_size=50, negatives=5, epochs=1)
    return jobi_tf.load_run(folder)


def tiny_export(run: Run, folder: Path) -> None:
    """Version 1, and version 2 whose scores are twice as high."""
    relations = run.model.heads[0].relations.table
    export_run(run, folder)
    relations.assign(relations * 2)
    export_run(run, folder, warmup=False)
    relations.assign(relations / 2)


def add_version(exports: Path, version: int, folder: Path, number: int | None = None) -> None:
    """Copies a version of an export into a folder, in one step."""
    number = version if number is None else number
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"beside-{number}"
    shutil.copytree(exports / str(version), beside)
    beside.rename(folder / str(number))


class Odd(tf.Module):
    """Inputs and outputs of other types and shapes, and the number of rows that are computed together."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def count(self, x):
        return {"x": x, "rows": tf.fill(tf.shape(x), tf.size(x))}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.float32, name="decimals"),
            tf.TensorSpec([None], tf.int64, name="integers"),
            tf.TensorSpec([None], tf.bool, name="truths"),
            tf.TensorSpec([None], tf.string, name="texts"),
        ]
    )
    def echo(self, decimals, integers, truths, texts):
        outputs = {"decimals": decimals, "integers": integers, "truths": truths, "text_bytes": texts}
        return {name: tf.identity(value) for name, value in outputs.items()}


def odd_export(folder: Path) -> None:
    odd = Odd()
    tf.saved_model.save(odd, str(folder / "1"), signatures={"serving_default": odd.echo, "count": odd.count})
