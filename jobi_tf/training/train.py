"""Training of a model, from settings to a run folder."""

import json
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from jobi_tf.data.graph import Graph
from jobi_tf.errors import DataError, UsageError
from jobi_tf.models.jobi import JoBi
from jobi_tf.training.assembly import (
    build_batches,
    build_losses,
    build_model,
    completed,
    epoch,
    shared_by,
    steps_at_once,
)
from jobi_tf.training.callbacks import (
    Callbacks,
    Checkpoint,
    EarlyStopping,
    MetricsRecord,
    StopOnNaN,
    Throughput,
    Training,
    ValidationRanking,
    save_bare_model,
)
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.devices import strategy_for
from jobi_tf.training.memory import keep_memory
from jobi_tf.training.progress import show_progress
from jobi_tf.training.run import Run, load_model, load_run
from jobi_tf.training.run_folder import RunFolder, describe_environment

MAY_CHANGE_ON_RESUME = {"epochs", "patience", "devices", "logical_devices"}


def train(
    dataset: str | Graph | None = None,
    *,
    config: TrainConfig | None = None,
    callbacks: Callbacks = show_progress,
    **settings: Any,
) -> Run:
    """Trains a model and returns its run, with the weights that were best on the validation split.

    Args:
        dataset: name of a data set, path of a folder or file of triples, or a graph at hand.
        config: settings; without it, `settings` make them.
        callbacks: Keras callbacks to add, or a function that makes them, given the training that is about to begin.
            Without it a progress display; `()` for none.
        **settings: fields of `TrainConfig`; they win over `config`.

    Raises:
        UsageError: a setting is unknown or out of range, or the run folder is not empty.
        DataError: the data cannot be used.
        JobiError: the loss became NaN or infinite.

    Example:
        >>> run = jobi_tf.train("umls", joint=True, p=0.3, epochs=20, run_dir="runs/umls")
        >>> run.tails("steroid", "affects", k=3)
    """
    keep_memory()
    graph = dataset if isinstance(dataset, Graph) else None
    if dataset is not None:
        settings["dataset"] = graph.name if graph else dataset
    config = TrainConfig.create((config.model_dump(exclude_unset=True) if config else {}) | settings)
    if graph is None:
        graph = config.load_graph()
    config = completed(config, graph)
    if config.eval_every and not len(graph.valid):
        raise UsageError(f"expected validation triples in {graph.name}, found none: train without by eval_every 0")
    folder = RunFolder(Path(config.run_dir) if config.run_dir else _new_run_dir(graph.name))
    if folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
        raise UsageError(f"expected a new or empty folder for the run, {folder.path} holds files already")
    strategy = _shared_evenly(config, strategy_for(config.devices, config.logical_devices))
    with strategy.scope():
        model = build_model(config, graph)
    folder.path.mkdir(parents=True, exist_ok=True)
    graph.save(folder.graph)
    folder.write_config(config)
    environment = json.dumps(describe_environment(), indent=1) + "\n"
    (folder.path / "environment.json").write_text(environment, encoding="utf-8")
    return _fit(folder, config, graph, model, strategy, callbacks, {"epoch": 0})


def resume(run_dir: str | Path, callbacks: Callbacks = show_progress, **changes: Any) -> Run:
    """Goes on with a run from its last checkpoint, to the same end as if it had not been interrupted.

    Args:
        run_dir: folder of the run.
        callbacks: as for `train`.
        **changes: new values of `epochs`, `patience`, `devices` or `logical_devices`.

    Raises:
        UsageError: another setting was to be changed.
        DataError: `run_dir` is no run, or has no checkpoint yet.
    """
    keep_memory()
    folder = RunFolder(Path(run_dir))
    config = folder.read_config()
    before, config = config, config.replace(**changes)
    for name in changes:
        if name not in MAY_CHANGE_ON_RESUME and getattr(config, name) != getattr(before, name):
            raise UsageError(
                f"expected the settings of {folder.path}, where {name} is {getattr(before, name)}, "
                f"got {getattr(config, name)}; resuming may only change {', '.join(sorted(MAY_CHANGE_ON_RESUME))}"
            )
    if config.schedule != "constant" and config.epochs != before.epochs:
        raise UsageError(
            f"expected the {before.epochs} epochs of {folder.path}, over which its learning rate falls "
            f"({config.schedule}), got {config.epochs}"
        )
    graph = folder.open_graph()
    checkpoints = folder.checkpoints()
    if not checkpoints:
        raise DataError(f"expected a checkpoint in {folder.path}, found none: its first epoch never ended, train anew")
    state = folder.read_state(checkpoints[-1])
    if config.epochs < state["epoch"]:
        raise UsageError(
            f"expected {state['epoch']} epochs at least, which {folder.path} has done, got {config.epochs}"
        )
    config = completed(config, graph)
    strategy = _shared_evenly(config, strategy_for(config.devices, config.logical_devices))
    with strategy.scope():
        model = load_model(checkpoints[-1] / "model.keras", compile=True)
        build_losses(model)
    folder.write_config(config)
    return _fit(folder, config, graph, model, strategy, callbacks, state)


def _fit(
    folder: RunFolder,
    config: TrainConfig,
    graph: Graph,
    model: JoBi,
    strategy: tf.distribute.Strategy,
    callbacks: Callbacks,
    state: dict[str, Any],
) -> Run:
    of_epoch = epoch(config, graph)
    steps = of_epoch.steps
    done = state.pop("epoch")
    finished = state.pop("finished", False) and state["waited"] >= config.patience
    batches = build_batches(config, graph, first_step=done * steps)
    stopping = EarlyStopping(folder, config, state or None)
    training = Training(folder, config, graph, model, strategy, steps, of_epoch.triples, done, stopping)
    rows = [row for row in folder.read_metrics() if row["epoch"] <= done]
    every = [
        StopOnNaN(),
        Throughput(of_epoch.triples),
        *([ValidationRanking(graph, config.eval_every, config.epochs)] if config.eval_every else []),
        stopping,
        MetricsRecord(folder, rows),
        keras.callbacks.TensorBoard(folder.logs, write_graph=False),
        *(callbacks(training) if callable(callbacks) else callbacks),
        Checkpoint(folder, stopping),  # last: it vouches for everything that the others wrote of the epoch
    ]
    if not finished and done < config.epochs:
        with strategy.scope():
            model.steps_per_execution = steps_at_once(steps, config.batch_size or 0, strategy.num_replicas_in_sync)
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


def _shared_evenly(config: TrainConfig, strategy: tf.distribute.Strategy) -> tf.distribute.Strategy:
    devices, whole = strategy.num_replicas_in_sync, shared_by(config) or 1
    if (config.batch_size or 0) % (devices * whole):
        of_chunks = f", in chunks of {whole}," if whole > 1 else ","
        raise UsageError(
            f"expected a batch size that {devices} devices can share evenly{of_chunks} got {config.batch_size}"
        )
    return strategy


def _new_run_dir(dataset: str) -> Path:
    return Path("runs") / f"{dataset}-{time.strftime('%Y%m%d-%H%M%S')}"
