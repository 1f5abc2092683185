"""Callbacks that write a run folder: the best model, the metrics and the checkpoints."""

import csv
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jobi_tf.data.graph import Graph
from jobi_tf.errors import UsageError
from jobi_tf.evaluation.metrics import best_row
from jobi_tf.files import written_beside
from jobi_tf.models.jobi import JoBi
from jobi_tf.training.callbacks import AverageWeights, ValidationRanking
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.estimate import Memory, memory
from jobi_tf.training.run_folder import RunFolder
from jobi_tf.training.storage import save_bare_model, save_model
from jobi_tf.workers import by_chief_alone, decided_by_chief, has_workers, number_of_servers

SECONDS_PER_MINUTE = 60
MEAN = "mean.npz"  # in a checkpoint


class KeepBest(keras.callbacks.Callback):
    """Saves the model, without its optimizer, when a metric is better than before; stops if it does not get better.

    `monitor` is in `logs`, such as `val_mrr`, and the greater the better; epochs without it do not count. `rows` are
    the logs of earlier epochs of a resumed training, with `epoch`, from 1.
    """

    def __init__(self, path: Path, monitor: str, patience: int, rows: Sequence[dict[str, Any]] = ()):
        super().__init__()
        self.path, self.monitor, self.patience = path, monitor, patience
        best = best_row(rows, monitor.removeprefix("val_"))
        self.best: float = best[monitor] if best else -math.inf
        self.best_epoch: int = best["epoch"] if best else 0
        self.waited = sum(monitor in row and row["epoch"] > self.best_epoch for row in rows)

    @property
    def finished(self) -> bool:
        """Whether patience is exhausted."""
        return self.waited >= self.patience

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        """Saves or waits."""
        if self.monitor not in logs:
            return
        if logs[self.monitor] > self.best:
            self.best, self.best_epoch, self.waited = logs[self.monitor], epoch + 1, 0
            by_chief_alone(self.model.distribute_strategy, lambda: save_bare_model(self.model, self.path))
            return
        self.waited += 1
        if self.finished:
            self.model.stop_training = True


class MetricsRecord(keras.callbacks.Callback):
    """Writes the metrics of each epoch, after the rows of earlier ones, to `metrics.jsonl` and `metrics.csv`."""

    def __init__(self, folder: RunFolder, rows: list[dict[str, Any]]):
        super().__init__()
        self.folder = folder
        self.rows = rows

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        """Adds a row."""
        # A plain model has no pair loss; its rows have the key nevertheless.
        first = {"epoch": epoch + 1, **dict.fromkeys(("loss", "triple_loss", "pair_loss"))}
        self.rows.append(first | {name: float(value) for name, value in logs.items()})
        with written_beside(self.folder.metrics) as beside:
            beside.write_text("".join(json.dumps(row) + "\n" for row in self.rows), encoding="utf-8")
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        path = self.folder.path / "metrics.csv"
        with written_beside(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(self.rows)


class Checkpoint(keras.callbacks.Callback):
    """Writes the model with its optimizer, so that training can be resumed; keeps the last checkpoint.

    With several workers the chief writes it, and its clock decides when. The last epoch always has one. `state` are
    values of the running metrics with which the first epoch goes on.
    """

    def __init__(self, training: "Training", state: Sequence[float] | None = None):
        super().__init__()
        self.training, self._first_step, self.state = training, training.first_step, state
        every = training.config.checkpoint_every
        self.minutes = float(every.removesuffix("m")) if every.endswith("m") else None
        self.every = None if self.minutes else int(every)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Starts the clock."""
        self._written = time.monotonic()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Restores the running metrics of an epoch that was interrupted."""
        self._epoch, self._done = epoch, self._first_step
        self._first_step = 0
        if self.state:
            for variable, value in zip(self.model.metrics_variables, self.state, strict=True):
                variable.assign(value)
        self.state = None

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Writes a checkpoint within the epoch, if it is due."""
        step = self._done + batch + 1
        if step < self.training.steps and self.is_due:  # the metrics are what all workers have summed up
            self.write(self._epoch, step, [float(keras.ops.convert_to_numpy(x)) for x in self.model.metrics_variables])

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Writes a checkpoint, if it is due."""
        last = self.model.stop_training or epoch + 1 == self.params["epochs"]
        if last or (self.every and (epoch + 1) % self.every == 0) or self.is_due:
            self.write(epoch + 1, 0)

    @property
    def is_due(self) -> bool:
        """Whether the minutes between checkpoints are over."""
        if self.minutes is None:
            return False
        seconds = time.monotonic() - self._written
        return decided_by_chief(self.training.strategy, seconds >= SECONDS_PER_MINUTE * self.minutes)

    def write(self, epoch: int, step: int, metrics: Sequence[float] = ()) -> None:
        """Writes a checkpoint after some epochs and, within the next one, some steps with their running metrics."""
        state: dict[str, Any] = {"epoch": epoch, "step": step} | ({"metrics": list(metrics)} if step else {})
        by_chief_alone(self.training.strategy, lambda: self._save(self.training.folder.checkpoint(epoch, step), state))
        self._written = time.monotonic()

    def _save(self, target: Path, state: dict[str, Any]) -> None:
        older = [folder for folder in self.training.folder.checkpoints() if folder != target]
        target.parent.mkdir(exist_ok=True)
        with written_beside(target) as beside:
            beside.mkdir()
            self._save_weights(beside)
            (beside / "state.json").write_text(json.dumps(state), encoding="utf-8")
        for folder in older:
            shutil.rmtree(folder)

    def _save_weights(self, folder: Path) -> None:
        average = self.training.average
        with average.paused() if average else nullcontext():
            save_model(self.model, folder / "model.keras")
            if average:
                np.savez(folder / MEAN, *(x.astype(np.float32, copy=False) for x in average.other or ()))


@dataclass(frozen=True)
class Training:
    """A training that is about to begin, for the callbacks that display it and that write its files."""

    folder: RunFolder
    config: TrainConfig  # with the batch size
    graph: Graph
    model: JoBi  # compiled
    steps: int  # of an epoch
    triples: int  # training triples of an epoch
    done: int  # epochs done before
    first_step: int  # steps of the first epoch that were done before
    ranking: ValidationRanking | None  # None if validation triples are never ranked
    best: KeepBest
    average: AverageWeights | None
    copied: Mapping[str, int]  # entity embeddings that were copied from each run or file to start from

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """The distribution strategy."""
        return self.model.distribute_strategy

    @property
    def memory(self) -> Memory:
        """Estimated memory of the training."""
        return memory(self.config, self.graph, number_of_servers(self.strategy), has_workers(self.strategy))


Callbacks = Sequence[keras.callbacks.Callback] | Callable[[Training], Sequence[keras.callbacks.Callback]]


def check_callbacks(callbacks: object, or_function: bool = True) -> None:
    """Raises a `UsageError` unless this is a list of Keras callbacks, or a function where one is allowed."""
    listed = isinstance(callbacks, Sequence) and all(isinstance(x, keras.callbacks.Callback) for x in callbacks)
    if not (listed or (or_function and callable(callbacks))):
        raise UsageError(f"expected a list of Keras callbacks or a function that returns one, got {callbacks!r}")
