"""Training of a model, from settings to a run folder."""

import os
import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.shards import check_files
from jobi_tf.data.soft_labels import SoftLabels
from jobi_tf.errors import DataError, UsageError, damaged
from jobi_tf.files import check_new, remove_abandoned, run_lock
from jobi_tf.models.jobi import JoBi
from jobi_tf.training import servers
from jobi_tf.training.assembly import (
    build_losses,
    build_model,
    completed,
    distributed_batches,
    epoch,
    steps_per_execution,
)
from jobi_tf.training.callbacks import AverageWeights, StopOnNaN, Throughput, ValidationRanking
from jobi_tf.training.config import AUTO, TrainConfig, with_recipe
from jobi_tf.training.devices import Cluster, training_strategy, with_servers, workers_needed
from jobi_tf.training.estimate import check_memory
from jobi_tf.training.progress import show_progress
from jobi_tf.training.recording import MEAN, Callbacks, Checkpoint, KeepBest, MetricsRecord, Training, check_callbacks
from jobi_tf.training.run import Run, load_run, read_model
from jobi_tf.training.run_folder import RunFolder, run_path
from jobi_tf.training.storage import load_model, read_weights, save_bare_model
from jobi_tf.training.vectors import use_entity_vectors, warm_start
from jobi_tf.workers import by_chief_alone, decided_by_chief, has_servers, has_workers, is_chief, number_of_servers

MAY_CHANGE_ON_RESUME = {
    *("epochs", "patience", "checkpoint_every", "tensorboard", "profile"),
    *("strategy", "devices", "logical_devices"),
}


def train(
    dataset: str | Graph | None = None,
    *,
    config: TrainConfig | None = None,
    callbacks: Callbacks = show_progress,
    **settings: Any,
) -> Run:
    """Trains a model and returns its run, with the weights that were best on the validation split.

    The settings of a `recipe` replace the defaults. The recipe `auto` compares a few settings on the validation split
    and trains with the best of them, within `minutes`.

    If `TF_CONFIG` names several workers, all call this function with the same arguments and a shared run folder, which
    the first worker, the chief, writes. If it also names parameter servers, the function only returns in the chief; the
    processes of workers and servers end after the chief.

    Args:
        dataset: name of a data set, path of a folder or file of triples, or a graph.
        config: all settings.
        callbacks: Keras callbacks to add, or a function of the training, called before it starts, that returns them.
            They see the validation metrics, and the values that they add to `logs` are recorded. By default a progress
            display; `()` for none.
        **settings: fields of `TrainConfig`, which take precedence over `config`.

    Raises:
        UsageError: a setting is unknown, out of range or without effect; `dataset`, `config` or `callbacks` has a wrong
            type; the run folder is not empty; or the training does not fit into memory.
        DataError: the data cannot be used.
        JobiError: the loss became NaN or infinite, or another worker has ended.

    Example:
        >>> run = jobi_tf.train("umls", joint=True, p=0.3, epochs=20, run_dir="runs/umls")
        >>> run.tails("steroid", "affects", k=3)
    """
    check_callbacks(callbacks)
    if not isinstance(dataset, str | os.PathLike | Graph | None):
        kind = type(dataset).__name__
        raise UsageError(f"expected a name, a path or a graph to train on, got {kind}: see Graph.from_triples")
    if not isinstance(config, TrainConfig | None):
        raise UsageError(f"expected a TrainConfig as config, got {config!r}")
    graph = dataset if isinstance(dataset, Graph) else None
    if graph and (given := [x for x in ("split", "columns", "header", "weights") if settings.get(x) is not None]):
        raise UsageError(f"{given[0]} applies to files of triples only, got a graph")
    if dataset is not None:
        settings["dataset"] = graph.name if graph else dataset
    config = TrainConfig.create((config.model_dump(exclude_unset=True) if config else {}) | settings)
    if config.recipe == AUTO:
        from jobi_tf.training.auto import train_auto  # which imports this module

        return train_auto(config, graph, callbacks)
    with_recipe(config).check()
    # Again, since on servers some settings of a recipe have no effect, and others are wrong.
    config = with_recipe(with_servers(config))
    config.check()
    if graph is None:
        graph = config.load_graph()
    return train_as_configured(config, graph, callbacks)


def _lock_of_chief(folder: RunFolder) -> AbstractContextManager[None]:
    """Returns the lock of the folder, which the chief of several workers holds for all."""
    cluster = Cluster.of_environment()
    return nullcontext() if cluster and not cluster.has_chief_here else run_lock(folder.path)


def new_run_folder(config: TrainConfig, graph: Graph) -> RunFolder:
    """Returns the folder for a new run.

    Raises:
        UsageError: it has files already.
        JobiError: another process trains into it.
    """
    default = Path("runs") / f"{graph.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = RunFolder(Path(config.run_dir) if config.run_dir else default)
    if folder.config.exists():
        with _lock_of_chief(folder):  # raises if that run is still trained
            if folder.stored_model() is None:
                reason = "has a training that ended before its first checkpoint; delete the folder"
                raise UsageError(f"expected a new or empty folder, but {folder.path} {reason}")
    check_new(folder.path.absolute())
    return folder


def train_as_configured(
    config: TrainConfig, graph: Graph, callbacks: Callbacks, labels: SoftLabels | None = None
) -> Run:
    """Trains with the given settings, whatever their recipe, and the defaults; otherwise as `train`.

    `labels` are soft labels to learn from, which are written to the run folder.
    """
    if config.eval_every and not len(graph.valid):
        raise UsageError(f"expected validation triples in {graph.name}, got none: set eval_every to 0")
    # These raise before there is a folder.
    if config.warm_start and not run_path(config.warm_start).exists():
        raise UsageError(f"expected warm_start to be the folder of a run, but {config.warm_start} does not exist")
    for name in ("entity_vectors", "soft_labels"):
        if (file := getattr(config, name)) is not None and not Path(file).exists():
            raise UsageError(f"expected {name} to be a file, but {file} does not exist")
    if config.soft_labels is not None:
        SoftLabels.load(config.soft_labels, graph)
        config = config.replace(soft_labels=os.path.abspath(config.soft_labels))  # to be resumed from another folder
    check_files(graph.train)
    folder = new_run_folder(config, graph)
    if labels is not None:
        config = config.replace(soft_labels=str(folder.soft_labels.absolute()))
    strategy = training_strategy(config)
    config = completed(config, graph, strategy.num_replicas_in_sync)
    check_memory(config, graph, number_of_servers(strategy), has_workers(strategy))
    if has_servers(strategy):
        servers.check_size(graph)
    with workers_needed(strategy, folder.path), strategy.scope():
        model = build_model(config, graph)
        copied = {}
        if config.warm_start:
            copied[config.warm_start] = warm_start(model, graph, load_run(config.warm_start))
        if config.entity_vectors:
            copied[config.entity_vectors] = use_entity_vectors(model, graph, Path(config.entity_vectors))
    with _lock_of_chief(folder):
        if is_chief(strategy):
            folder.begin(config, graph)
            if labels is not None:
                labels.save(folder.soft_labels)
        return _fit(folder, config, graph, model, callbacks, {"epoch": 0, "step": 0}, copied)


def resume(run_dir: str | Path, callbacks: Callbacks = show_progress, **changes: Any) -> Run:
    """Resumes a run from its last checkpoint, with the same result as without the interruption.

    Args:
        run_dir: folder of the run.
        callbacks: as for `train`.
        **changes: new values of `epochs`, `patience`, `checkpoint_every`, `strategy`, `devices`, `logical_devices`,
            `tensorboard` or `profile`.

    Raises:
        UsageError: another setting was given, or `callbacks` has a wrong type.
        DataError: `run_dir` is not a run, or has no checkpoint yet.
        JobiError: another process still trains the run.
    """
    check_callbacks(callbacks)
    folder = RunFolder(Path(run_dir))
    before = folder.read_config()
    with _lock_of_chief(folder):
        return _resume(folder, before, callbacks, changes)


def _resume(folder: RunFolder, before: TrainConfig, callbacks: Callbacks, changes: dict[str, Any]) -> Run:
    cluster, servers_before = Cluster.of_environment(), before.strategy == "parameter-server"
    if servers_before != bool(cluster and cluster.cluster.ps):
        expected = f"{'' if servers_before else 'no '}parameter servers in TF_CONFIG to resume {folder.path}"
        reason = "a run with servers cannot be resumed without them, nor one without them with servers"
        raise UsageError(f"expected {expected}: {reason}")
    # In a worker that starts again this does not return. Only the chief may list checkpoints, while none are written.
    config = with_servers(before.replace(**changes | {"run_dir": str(folder.path)}))
    checkpoints = folder.checkpoints()
    if not checkpoints:
        advice = "delete the folder and start a new training"
        if folder.stored_model() is not None:  # as in the folder of a merged run
            advice = "to begin a new training with its model, use warm_start"
        raise DataError(f"expected a checkpoint in {folder.path}, got none: {advice}")
    for name in changes:
        if name not in MAY_CHANGE_ON_RESUME and getattr(config, name) != getattr(before, name):
            values = f"{name} {getattr(before, name)} as in {folder.path}, got {getattr(config, name)}"
            raise UsageError(f"expected {values}: resuming can only change {', '.join(sorted(MAY_CHANGE_ON_RESUME))}")
    if config.schedule != "constant" and config.epochs != before.epochs:
        reason = f"over which its learning rate falls ({config.schedule})"
        raise UsageError(f"expected the {before.epochs} epochs of {folder.path}, {reason}, got {config.epochs}")
    graph = Graph.open(folder.graph)
    check_files(graph.train)
    state = folder.read_state(checkpoints[-1])
    # The best model may be of an epoch after the checkpoint, which then has to be computed again.
    trained = max([state["epoch"], *(row["epoch"] for row in folder.read_metrics())])
    if config.epochs < trained:
        raise UsageError(f"expected at least the {trained} epochs that {folder.path} has, got {config.epochs}")
    if trained > state["epoch"] and config.patience < before.patience:
        expected = f"{before.patience} until epoch {trained} of {folder.path}, got {config.patience}"
        reason = f"the epochs after {state['epoch']}, which the last checkpoint has, are computed again"
        raise UsageError(f"expected a patience of at least {expected}: {reason}")
    strategy = training_strategy(config)
    config = completed(config, graph, strategy.num_replicas_in_sync)
    with workers_needed(strategy, folder.path), strategy.scope():
        if has_servers(strategy):
            model = build_model(config, graph)
            servers.restore(model, checkpoints[-1])
        else:
            model = load_model(checkpoints[-1] / "model.keras", compile=True)
            build_losses(model)
    if is_chief(strategy):
        remove_abandoned(folder.path)
        folder.write_config(config)
    return _fit(folder, config, graph, model, callbacks, state, {})


def _fit(
    folder: RunFolder,
    config: TrainConfig,
    graph: Graph,
    model: JoBi,
    callbacks: Callbacks,
    state: dict[str, Any],
    copied: dict[str, int],
) -> Run:
    strategy = model.distribute_strategy
    by_servers = has_servers(strategy)
    rows = [row for row in folder.read_metrics() if row["epoch"] <= state["epoch"]]
    path = folder.sharded_model if by_servers else folder.model
    best = KeepBest(path, f"val_{config.monitor}", config.patience, rows)
    ranking = None
    if config.eval_every:
        ranking = ValidationRanking(graph, config.eval_every, config.epochs, config.eval_first)
    average = None
    if config.average_epochs > 1 and not by_servers:
        average = AverageWeights(config.average_epochs)
        if state["epoch"]:
            path_of_mean = folder.checkpoints()[-1] / MEAN
            with damaged("the mean of the weights of a run", path_of_mean), np.load(path_of_mean) as arrays:
                average.count, average.other = state["epoch"], list(arrays.values())
    done = state["epoch"], state["step"]
    training = Training(folder, config, graph, model, *epoch(config, graph), *done, ranking, best, average, copied)
    if callable(callbacks):
        callbacks = callbacks(training)
        check_callbacks(callbacks, or_function=False)
    every: list[keras.callbacks.Callback] = [
        StopOnNaN(),
        Throughput(training.triples / training.steps),
        *(x for x in (average, ranking) if x),
        *callbacks,
        best,
    ]
    if is_chief(strategy):
        every.append(MetricsRecord(folder, rows))
    if config.tensorboard != "none" or config.profile:
        from jobi_tf.training.tensorboard import TensorBoard  # takes a third of a second

        every.append(TensorBoard(training))
    # Last, since a checkpoint stands for all that the others wrote.
    every.append((servers.ServersCheckpoint if by_servers else Checkpoint)(training, state.get("metrics")))
    with workers_needed(strategy, folder.path):
        (servers.fit if by_servers else _fit_by_keras)(training, every)
    if not config.eval_every:
        if average:
            average.set_model(model)  # where no epoch was left to fit
            average.give(mean=True)
        by_chief_alone(strategy, lambda: save_bare_model(model, path))
    with workers_needed(strategy, folder.path):
        decided_by_chief(strategy, True)  # waits for the files of the chief

    def on_servers() -> JoBi:  # which may have no room for another model
        read_weights(model, path)
        return model

    best_model = on_servers if by_servers else partial(read_model, folder, config, graph)
    return Run(folder.path, config, graph, best_model)


def _fit_by_keras(training: Training, callbacks: list[keras.callbacks.Callback]) -> None:
    model, config, strategy, done = training.model, training.config, training.strategy, training.done
    # The rest of an epoch that was interrupted is shorter, and so is fitted by itself.
    parts = [(done, done + 1, training.steps - training.first_step)] if training.first_step else []
    parts.append((done + len(parts), config.epochs, training.steps))
    for first, last, steps in parts:
        if training.best.finished or model.stop_training or first >= last:
            break
        first_step = (first + 1) * training.steps - steps
        with strategy.scope():
            devices = strategy.num_replicas_in_sync
            model.steps_per_execution = steps_per_execution(steps, config.batch_size or 0, devices)
            model.make_train_function(force=True)  # the one of the part before has another number of steps
            model.fit(
                distributed_batches(config, training.graph, strategy, first_step),
                epochs=last,
                initial_epoch=first,
                steps_per_epoch=steps,
                callbacks=callbacks,
                verbose=0,
            )
