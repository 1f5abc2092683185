"""Training of a model, from settings to a run folder."""

import json
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from jobi_tf.data.graph import Graph
from jobi_tf.data.negatives import NegativeSampler
from jobi_tf.data.occurrences import Occurrences
from jobi_tf.data.pipeline import default_batch_size, steps_per_epoch, training_batches
from jobi_tf.datasets import load_graph
from jobi_tf.errors import DataError, UsageError
from jobi_tf.losses import SampledSoftmax
from jobi_tf.models.jobi import JoBi
from jobi_tf.optimizers import LazyAdam
from jobi_tf.training.callbacks import (
    Checkpoint,
    EarlyStopping,
    MetricsRecord,
    StopOnNaN,
    Throughput,
    ValidationRanking,
    save_bare_model,
)
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.devices import strategy_for
from jobi_tf.training.run import Run, load_run
from jobi_tf.training.run_folder import RunFolder, describe_environment

MAY_CHANGE_ON_RESUME = {"epochs", "patience", "devices", "logical_devices"}


def train(
    dataset: str | Graph | None = None,
    *,
    config: TrainConfig | None = None,
    callbacks: list[keras.callbacks.Callback] | None = None,
    **settings: Any,
) -> Run:
    """Trains a model and returns its run, with the weights that were best on the validation split.

    Args:
        dataset: name of a data set, path of a folder or file of triples, or a graph at hand.
        config: settings; without it, `settings` make them.
        callbacks: Keras callbacks to add, such as a progress display.
        **settings: fields of `TrainConfig`; they win over `config`.

    Raises:
        UsageError: a setting is unknown or out of range, or the run folder is not empty.
        DataError: the data cannot be used.
        JobiError: the loss became NaN or infinite.

    Example:
        >>> run = jobi_tf.train("umls", joint=True, p=0.3, epochs=20, run_dir="runs/umls")
        >>> run.tails("steroid", "affects", k=3)
    """
    graph = dataset if isinstance(dataset, Graph) else None
    if dataset is not None:
        settings["dataset"] = graph.name if graph else dataset
    config = TrainConfig.create((config.model_dump(exclude_unset=True) if config else {}) | settings)
    if graph is None:
        graph = load_graph(
            config.dataset,
            split=config.split,
            columns=config.columns.split(",") if config.columns else None,
            header=config.header,
            seed=config.seed,
        )
    batch_size = config.batch_size or default_batch_size(len(graph.train))
    steps_per_epoch(len(graph.train), batch_size)  # refuses before a folder is made
    config = config.replace(batch_size=batch_size)
    if config.eval_every and not len(graph.valid):
        raise UsageError(f"expected validation triples in {graph.name}, found none: train without by eval_every 0")
    folder = RunFolder(Path(config.run_dir) if config.run_dir else _new_run_dir(graph.name))
    if folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
        raise UsageError(f"expected a new or empty folder for the run, {folder.path} holds files already")
    strategy = strategy_for(config.devices, config.logical_devices)
    folder.path.mkdir(parents=True, exist_ok=True)
    graph.save(folder.graph)
    config.write(folder.config)
    environment = json.dumps(describe_environment(), indent=1) + "\n"
    (folder.path / "environment.json").write_text(environment, encoding="utf-8")
    with strategy.scope():
        model = JoBi(graph.num_entities, graph.num_relations, config.dim, config.model, config.joint, config.seed)
        compile_model(model, config)
    return _fit(folder, config, graph, model, strategy, callbacks or [], {"epoch": 0})


def resume(run_dir: str | Path, callbacks: list[keras.callbacks.Callback] | None = None, **changes: Any) -> Run:
    """Goes on with a run from its last checkpoint, to the same end as if it had not been interrupted.

    Args:
        run_dir: folder of the run.
        callbacks: as for `train`.
        **changes: new values of `epochs`, `patience`, `devices` or `logical_devices`.

    Raises:
        UsageError: another setting was to be changed.
        DataError: `run_dir` is no run, or has no checkpoint yet.
    """
    folder = RunFolder(Path(run_dir))
    config = folder.read_config()
    for name, value in changes.items():
        if name not in MAY_CHANGE_ON_RESUME and value != getattr(config, name):
            raise UsageError(
                f"expected the settings of {folder.path}, where {name} is {getattr(config, name)}, got {value}; "
                f"resuming may only change {', '.join(sorted(MAY_CHANGE_ON_RESUME))}"
            )
    config = config.replace(**changes)
    graph = Graph.open(folder.graph)
    checkpoints = folder.checkpoints()
    if not checkpoints:
        raise DataError(f"expected a checkpoint in {folder.path}, found none: its first epoch never ended, train anew")
    state = json.loads((checkpoints[-1] / "state.json").read_text(encoding="utf-8"))
    strategy = strategy_for(config.devices, config.logical_devices)
    with strategy.scope():
        model = keras.saving.load_model(checkpoints[-1] / "model.keras")
    config.write(folder.config)
    return _fit(folder, config, graph, model, strategy, callbacks or [], state)


def compile_model(model: JoBi, config: TrainConfig) -> None:
    """Compiles a model with the losses of the paper and the row-sparse Adam; call it inside the strategy's scope."""
    losses: dict[str, keras.losses.Loss] = {"triple": SampledSoftmax()}
    if config.joint:
        losses["pair"] = keras.losses.BinaryCrossentropy(from_logits=True)
    weights = {"triple": 1.0, "pair": config.alpha}
    # jit_compile: XLA is off on CPUs and under a strategy anyway; off everywhere, results do not hang on the machine.
    model.compile(
        optimizer=LazyAdam(config.learning_rate),
        loss=losses,
        loss_weights={name: weights[name] for name in losses},
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)


def _fit(
    folder: RunFolder,
    config: TrainConfig,
    graph: Graph,
    model: JoBi,
    strategy: tf.distribute.Strategy,
    callbacks: list[keras.callbacks.Callback],
    state: dict[str, Any],
) -> Run:
    batch_size, replicas = config.batch_size or default_batch_size(len(graph.train)), strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise UsageError(f"expected a batch size that {replicas} devices can share evenly, got {batch_size}")
    steps = steps_per_epoch(len(graph.train), batch_size)
    done = state.pop("epoch")
    finished = state.pop("finished", False) and state["waited"] >= config.patience
    occurrences = Occurrences.from_triples(graph.train, graph.num_entities, graph.num_relations)
    filtered = graph.train if config.filter_negatives else None
    sampler = NegativeSampler(occurrences, config.negatives, config.p, filtered)
    batches = training_batches(graph.train, sampler, batch_size, config.joint, config.seed, done * steps)
    stopping = EarlyStopping(folder, config.patience, state or None)
    rows = [row for row in folder.read_metrics() if row["epoch"] <= done]
    every = [
        StopOnNaN(),
        Throughput(steps * batch_size),
        *([ValidationRanking(graph, config.eval_every, config.epochs)] if config.eval_every else []),
        stopping,
        MetricsRecord(folder, rows),
        keras.callbacks.TensorBoard(folder.logs, write_graph=False),
        *callbacks,
        Checkpoint(folder, stopping),  # last: it vouches for everything that the others wrote of the epoch
    ]
    if not finished and done < config.epochs:
        with strategy.scope():
            model.fit(
                batches,
                epochs=config.epochs,
                initial_epoch=done,
                steps_per_epoch=steps,
                callbacks=every,
                verbose=0,
                shuffle=False,
            )
    if not config.eval_every:
        save_bare_model(model, folder.model)
    return load_run(folder.path)


def _new_run_dir(dataset: str) -> Path:
    return Path("runs") / f"{dataset}-{time.strftime('%Y%m%d-%H%M%S')}"
