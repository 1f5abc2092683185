"""Training with parameter servers: the loop of the chief and its checkpoints, which Keras' `fit` does not support.

The chief schedules blocks of steps, each of which any worker computes. A worker makes the batches by itself, receives
the rows that they touch from the servers, and sends back the gradients of these rows, with which the servers update
them. No worker waits for another one.
"""

import ctypes
import math
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jobi_tf.data.batches import steps_per_epoch
from jobi_tf.data.graph import Graph
from jobi_tf.data.shards import Shards
from jobi_tf.errors import UsageError
from jobi_tf.models.jobi import JoBi
from jobi_tf.training.assembly import build_batches, losses_of
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.recording import Checkpoint, Training
from jobi_tf.training.storage import read_weights, write_weights
from jobi_tf.workers import parts_of

STEPS_OF_A_BLOCK = 10  # that a worker computes before it reports to the chief
BLOCKS_OF_A_WORKER = 2  # that are scheduled at a time: one is computed while another one waits
LARGEST_GRAPH = 2**30  # bytes in memory that are sent to the workers with the step; TensorFlow fails at twice as many
BYTES_OF_A_PAIR = 12  # of a relation and an entity seen with it


def check_size(graph: Graph) -> None:
    """Raises a `UsageError` for a graph that is too large to be sent to the workers."""
    triples = 0 if isinstance(graph.train, Shards) else 12 * len(graph.train)
    pairs = BYTES_OF_A_PAIR * (2 * len(graph.train) if graph.seen is None else len(graph.seen[1]))
    if triples + pairs > LARGEST_GRAPH:
        most = f"at most {LARGEST_GRAPH / 2**30:.0f} GB of triples with the strategy parameter-server"
        advice = "`jobi-tf data prepare --shards` leaves them in files"
        raise UsageError(f"expected {most}, got {(triples + pairs) / 2**30:.1f} GB in {graph.name}: {advice}")


def steps_of_a_block(graph: Graph, batch_size: int, parts: int) -> int:
    """Returns how many steps are scheduled together: those of a window of shards, which a worker has to read for one.

    They are fewer in a small graph, so that an epoch has at least `parts` blocks and no worker is idle.
    """
    if not isinstance(graph.train, Shards):
        return STEPS_OF_A_BLOCK
    window = graph.train.block * graph.train.window // batch_size
    return max(STEPS_OF_A_BLOCK, min(window, math.ceil(steps_per_epoch(graph, batch_size) / parts)))


class Steps:
    """Schedules the steps of a training by `completed` settings.

    `names` are those of the losses, `block` is the number of steps to schedule together, and `most_in_flight` that of
    the blocks to schedule before waiting for the first one.
    """

    def __init__(self, model: JoBi, config: TrainConfig, graph: Graph):
        self._model, self._config, self._graph = model, config, graph
        self._losses = losses_of(config)
        self.names = ["loss", *(f"{x}_loss" for x in self._losses), *(x.name for x in model.regularizers)]
        self._parts = [part for x in model.trainable_variables for part in parts_of(x)]
        self._strategy = model.distribute_strategy
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        # Keeps the coordinator alive: its destructor, at the end of the process, would wait forever for a worker that
        # was killed and is not back yet (TensorFlow 2.21).
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._coordinator))
        cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()
        self.most_in_flight = BLOCKS_OF_A_WORKER * cluster.num_tasks("worker")
        self.block = steps_of_a_block(graph, config.batch_size or 1, self.most_in_flight)
        scalar = tf.TensorSpec([], tf.int64)
        self._steps = tf.function(self._compute, input_signature=[scalar, scalar], autograph=False)

    def schedule(self, first: int, count: int) -> tf.distribute.coordinator.RemoteValue:
        """Schedules the steps from `first` on, counted from the beginning of the training.

        Returns:
            The sums of their losses, float32 [losses], once a worker has computed them.
        """
        arguments = tf.constant(first, tf.int64), tf.constant(count, tf.int64)
        return self._coordinator.schedule(self._steps, arguments)

    def _compute(self, first: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        """Computes some steps in a worker: the sums of their losses, float32 [losses]."""
        batches = iter(build_batches(self._config, self._graph, first).take(count))

        def body(step: tf.Tensor, sums: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return step + 1, sums + self._strategy.run(self._step, args=(next(batches),))

        start = tf.constant(0, tf.int64), tf.zeros(len(self.names))
        return tf.while_loop(lambda step, _: step < count, body, start, parallel_iterations=1)[1]

    def _step(self, batch: Any) -> tf.Tensor:
        inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(batch)
        with tf.GradientTape() as tape:
            scores = self._model(inputs, training=True)
            each = {x: loss(labels[x], scores[x], weights and weights[x]) for x, (loss, _) in self._losses.items()}
            penalties = self._model.losses
            total = tf.add_n([*(self._losses[x][1] * loss for x, loss in each.items()), *penalties])
        self._model.optimizer.apply(tape.gradient(total, self._parts), self._parts)
        return tf.stack([total, *each.values(), *penalties])


class ServersCheckpoint(Checkpoint):
    """Writes the weights and what the optimizer keeps as a checkpoint of TensorFlow.

    Servers write their parts of a table, as one tensor: any number of servers can restore it. `state` has the sums of
    the losses of an epoch that was interrupted, and the number of its steps.

    Args: as `Checkpoint`.
    """

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Does nothing."""

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Does nothing: other steps are still in flight."""

    def _save_weights(self, folder: Path) -> None:
        write_weights(self.model, folder, **_optimizer_state(self.model))


def restore(model: JoBi, checkpoint: Path) -> None:
    """Restores the weights of a compiled model, and what its optimizer keeps."""
    read_weights(model, checkpoint, **_optimizer_state(model))


def _optimizer_state(model: JoBi) -> dict[str, Any]:
    slots = []
    for every in model.optimizer.slots:
        left = deque(every)
        for variable in model.trainable_variables:
            parts = [left.popleft().value for _ in parts_of(variable)]
            slots.append(parts[0] if len(parts) == 1 else type(variable.value)(parts))
    return {"slots": slots, "iterations": model.optimizer.iterations.value}


def fit(training: Training, callbacks: Sequence[keras.callbacks.Callback]) -> None:
    """Trains as Keras' `fit`, with callbacks of which the last one is a `ServersCheckpoint`."""
    model, steps, epochs = training.model, training.steps, training.config.epochs
    checkpoint = callbacks[-1]
    assert isinstance(checkpoint, ServersCheckpoint)
    computed = Steps(model, training.config, training.graph)
    every = keras.callbacks.CallbackList(list(callbacks), model=model, epochs=epochs, steps=steps)
    first, sums, logs = training.first_step, np.array(checkpoint.state or [0.0] * len(computed.names)), {}
    model.stop_training = False
    every.on_train_begin()
    for epoch in range(training.done, epochs if not training.best.finished else 0):
        every.on_epoch_begin(epoch)
        in_flight: deque[tuple[tf.distribute.coordinator.RemoteValue, int]] = deque()
        scheduled = done = first
        while done < steps:
            waits = checkpoint.is_due or model.stop_training
            while scheduled < steps and len(in_flight) < computed.most_in_flight and not waits:
                count = min(computed.block, steps - scheduled)
                in_flight.append((computed.schedule(epoch * steps + scheduled, count), scheduled + count))
                scheduled += count
            if not in_flight:
                if model.stop_training:
                    break
                checkpoint.write(epoch, done, sums.tolist())
                continue
            block, done = in_flight.popleft()
            sums = sums + np.asarray(block.get())
            logs = dict(zip(computed.names, (sums / done).tolist(), strict=True))
            every.on_train_batch_end(done - first - 1, logs)
        every.on_epoch_end(epoch, logs)
        if model.stop_training:
            break
        first, sums = 0, np.zeros_like(sums)
    every.on_train_end(logs)
