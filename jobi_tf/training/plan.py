"""What a training of some size takes on some devices, and which strategy and settings suit it."""

import math
import time
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.errors import UsageError
from jobi_tf.models import scorers
from jobi_tf.training.assembly import build_batches, build_model, completed, epoch, steps_per_execution
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.estimate import BYTES_PER_TRIPLE, RUNTIME, Memory, Step, check_memory, memory, step

# Bytes of the tables and of a batch that steps are timed on: more than caches hold, and soon initialised.
LARGEST_TABLES = 2**30
LARGEST_SAMPLE = 500_000  # triples
CALIBRATION_SECONDS = 3.0
SERVER_SHARE = 1.4  # of its part of the tables that a server takes, as measured
EXECUTIONS = 10  # that are timed together; the first ones are traced and compiled


@dataclass(frozen=True)
class Plan:
    """What a training takes, and how to run it.

    Times are those of devices like the one of this machine, without ranking, checkpoints, logs and the exchange of
    gradients.
    """

    settings: TrainConfig  # that the estimates are for, as `completed` with those that `advice` changes
    memory: Memory  # of each device
    step: Step  # of one device, with its share of the batch
    steps: int  # of an epoch
    step_seconds: float | None  # None if it was not measured
    strategy: str  # `one`, `mirrored` or `parameter-server`
    advice: list[str]  # sentences on the choice

    @property
    def epoch_seconds(self) -> float | None:
        """Seconds of an epoch, or None."""
        return None if self.step_seconds is None else self.steps * self.step_seconds


def graph_of_size(entities: int, relations: int, triples: int, seed: int | None = None) -> Graph:
    """Returns a graph with random training triples; without a seed all are (0, 0, 0), which takes no memory.

    A plan of full-softmax needs random ones, as its steps are counted in distinct queries: about two for each triple.
    """
    names = Vocabulary(range(entities), "entity"), Vocabulary(range(relations), "relation")  # type: ignore[arg-type]
    train = np.broadcast_to(np.zeros(3, np.int32), (triples, 3))
    if seed is not None:
        train = np.random.default_rng(seed).integers(0, (entities, relations, entities), train.shape, np.int32)
    return Graph("plan", *names, {"train": train, "valid": train[:0], "test": train[:0]})


def plan(config: TrainConfig, graph: Graph, devices: int, available: int, calibrate: bool = True) -> Plan:
    """Chooses a strategy for some devices with `available` bytes each, and estimates what the training takes.

    The graph may be one of `graph_of_size`. With `calibrate`, steps are timed on this machine for some seconds.

    Raises:
        UsageError: the settings contradict each other, or fit into no device and no server.
    """
    whole = completed(config, graph, devices)
    strategy, changes, advice = _choose(_share(whole, devices), graph, devices, available)
    whole = completed(config.replace(**changes), graph, devices)
    share = _share(whole, devices)
    seconds = step_seconds(share, graph) if calibrate else None
    needed, done = memory(share, graph), step(share, graph)
    return Plan(whole, needed, done, epoch(whole, graph).steps, seconds, strategy, advice)


def _share(config: TrainConfig, devices: int) -> TrainConfig:
    return config.replace(batch_size=(config.batch_size or 0) // devices)


def _choose(config: TrainConfig, graph: Graph, devices: int, available: int) -> tuple[str, dict[str, Any], list[str]]:
    """Returns the strategy, settings to change for it, and why."""
    strategy, gigabytes = "mirrored" if devices > 1 else "one", f"{available / 2**30:.1f} GB"
    where = f"each of {devices} devices" if devices > 1 else "one device"
    needed = memory(config, graph)
    if needed.total <= available:
        return strategy, {}, [f"{config.optimizer} fits into the {gigabytes} of {where}."]
    advice = [f"{config.optimizer} takes {needed.total / 2**30:.1f} GB, more than the {gigabytes} of {where}."]
    full = config.full_softmax
    half: dict[str, Any] = {} if full or scorers.get(config.model).distance else {"table_dtype": "bfloat16"}
    last: dict[str, Any] = {"average_epochs": 1}
    rows: dict[str, Any] = {"optimizer": "row-adagrad"}
    tried = [config]
    for changes in (last, last | half, last | rows, last | half | rows):
        if (smaller := config.replace(**changes)) in tried:
            continue
        tried.append(smaller)
        total = memory(smaller, graph).total
        names = " and ".join(f"{name} {value}" for name, value in changes.items())
        advice.append(f"With {names} it takes {total / 2**30:.1f} GB.")
        if total <= available:
            return strategy, changes, advice
    if full:  # which parameter servers do not have
        check_memory(tried[-1], graph, available=available)
    changes = dict(last)
    if config.table_dtype != "float32":  # which servers need
        changes["table_dtype"] = "float32"
    config = config.replace(**changes)
    needed = memory(config, graph)
    tables, room = needed.embeddings + needed.optimizer, available - RUNTIME
    if room <= 0:
        raise UsageError(f"expected more memory than the {RUNTIME / 2**30:.1f} GB of TensorFlow, got {gigabytes}")
    servers = math.ceil(SERVER_SHARE * tables / room)
    chief = memory(config, graph, servers).total
    fits = f"The tables fit into the memory of {servers} parameter servers or more"
    too_much = ", which is too much" * (chief > available)
    advice.append(f"{fits}; the chief takes {chief / 2**30:.1f} GB{too_much}.")
    if available < chief <= available + BYTES_PER_TRIPLE * len(graph.train):
        advice.append("Shards (`jobi-tf data prepare --shards`) leave the training triples in files.")
    return "parameter-server", changes, advice


def step_seconds(config: TrainConfig, graph: Graph) -> float:
    """Times steps of random triples on this machine, with as many entities as `LARGEST_TABLES` has room for.

    The measured time is multiplied by the bytes that a step moves with all entities, divided by those that it moves
    here: among more entities, fewer candidates are equal. `completed` settings have the batch of one device.
    """
    needed = memory(config, graph)
    share = min(1.0, LARGEST_TABLES / (needed.embeddings + needed.optimizer + needed.batch))
    triples = min(len(graph.train), max(config.batch_size or 0, LARGEST_SAMPLE))
    small = graph_of_size(max(1, round(graph.num_entities * share)), graph.num_relations, triples, config.seed)
    model = build_model(config, small)
    model.steps_per_execution = steps_per_execution(epoch(config, graph).steps, config.batch_size or 0)
    steps, ends = EXECUTIONS * model.steps_per_execution, []

    def note(epoch: int, logs: dict) -> None:
        ends.append(time.perf_counter())
        model.stop_training = len(ends) > 2 and ends[-1] - ends[0] > CALIBRATION_SECONDS

    model.fit(
        build_batches(config, small),
        epochs=10**6,
        steps_per_epoch=steps,  # the stream is endless
        callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=note)],
        verbose=0,
    )
    return float(np.median(np.diff(ends))) / steps * step(config, graph).bytes / step(config, small).bytes
