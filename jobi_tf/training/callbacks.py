"""What happens between epochs: ranking, early stopping, checkpoints, records."""

import csv
import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import SIDES, KnownAnswers
from jobi_tf.errors import JobiError
from jobi_tf.evaluation.ranker import Ranker
from jobi_tf.evaluation.ranks import Ranks, rank_metrics
from jobi_tf.files import written_beside
from jobi_tf.models.jobi import JoBi
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.run_folder import RunFolder


class Throughput(keras.callbacks.Callback):
    """Adds `triples_per_second` and `seconds` of the epoch's training to its metrics, and a `triple_loss` always."""

    def __init__(self, triples_an_epoch: int):
        super().__init__()
        self.triples_an_epoch = triples_an_epoch

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Starts the clock."""
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        """Stops it."""
        seconds = time.perf_counter() - self._start
        # Keras names the loss of an output only where there are several.
        further = logs.get("penalty", 0) + self.model.relation_prediction * logs.get("relation_loss", 0)
        logs.setdefault("triple_loss", logs["loss"] - further)
        logs.update(triples_per_second=self.triples_an_epoch / seconds, seconds=seconds)


class StopOnNaN(keras.callbacks.Callback):
    """Ends training with an error as soon as the loss is not finite."""

    def on_train_batch_end(self, batch: int, logs: dict) -> None:
        """Looks at the running mean of the loss."""
        if not math.isfinite(logs["loss"]):
            raise JobiError(
                f"the loss became {logs['loss']} by step {batch + 1} of the epoch: training stopped; "
                "expected finite numbers, try a lower learning rate"
            )


class ValidationRanking(keras.callbacks.Callback):
    """Ranks the validation split, filtered with train and valid, and adds `val_mrr`, `val_hits@10` … to the metrics.

    Args:
        graph: the graph.
        every: epochs between rankings.
        epochs: the last epoch, which is always ranked.
    """

    def __init__(self, graph: Graph, every: int, epochs: int):
        super().__init__()
        self.graph = graph
        self.every = every
        self.epochs = epochs

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Collects the known answers."""
        known = KnownAnswers.of_graph(self.graph, ("train", "valid"), self.graph.valid)
        self._ranker = Ranker(self.model, known)

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        """Ranks, where it is time to."""
        if (epoch + 1) % self.every == 0 or epoch + 1 == self.epochs:
            ranks = [self._ranker.rank(self.graph.valid, side) for side in range(len(SIDES))]
            metrics = rank_metrics(Ranks.concatenate(ranks).ranks())
            logs.update({f"val_{name}": value for name, value in metrics.items()})


class EarlyStopping(keras.callbacks.Callback):
    """Keeps the model with the best validation metric in the run folder, and stops when it gets no better.

    `state` goes into each checkpoint, so that a resumed run decides as an uninterrupted one.

    Args:
        folder: the run folder.
        config: the settings, of which `monitor` is the metric and `patience` the rankings without a better one to stop
            after.
        state: `best`, `best_epoch` and `waited` of a checkpoint.
    """

    def __init__(self, folder: RunFolder, config: TrainConfig, state: dict[str, Any] | None = None):
        super().__init__()
        self.folder = folder
        self.monitor, self.patience = f"val_{config.monitor}", config.patience
        self.state: dict[str, Any] = state or {"best": -math.inf, "best_epoch": 0, "waited": 0}

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        """Decides, where the epoch was ranked."""
        if self.monitor not in logs:
            return
        if logs[self.monitor] > self.state["best"]:
            self.state = {"best": logs[self.monitor], "best_epoch": epoch + 1, "waited": 0}
            save_bare_model(self.model, self.folder.model)
            return
        self.state = self.state | {"waited": self.state["waited"] + 1}
        self.model.stop_training = self.state["waited"] >= self.patience


class Checkpoint(keras.callbacks.Callback):
    """Keeps what resuming needs after each epoch: the model with its optimizer, and the state of early stopping."""

    def __init__(self, folder: RunFolder, stopping: EarlyStopping):
        super().__init__()
        self.folder = folder
        self.stopping = stopping

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        """Writes the new checkpoint, then removes the older ones."""
        older = self.folder.checkpoints()
        state = {"epoch": epoch + 1, "finished": self.model.stop_training, **self.stopping.state}
        target = self.folder.checkpoint(epoch + 1)
        target.parent.mkdir(exist_ok=True)
        with written_beside(target) as beside:
            beside.mkdir()
            self.model.save(beside / "model.keras")
            (beside / "state.json").write_text(json.dumps(state), encoding="utf-8")
        for folder in older:
            shutil.rmtree(folder)


class MetricsRecord(keras.callbacks.Callback):
    """Writes the metrics of each epoch to `metrics.jsonl`, and all of them to `metrics.csv`.

    Args:
        folder: the run folder.
        rows: metrics of the epochs before this process.
    """

    def __init__(self, folder: RunFolder, rows: list[dict[str, Any]]):
        super().__init__()
        self.folder = folder
        self.rows = rows

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        """Adds a row."""
        # A plain model has no pair loss; its rows have the key all the same.
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


@dataclass(frozen=True)
class Training:
    """A training that is about to begin, for callbacks that tell about it.

    Args:
        folder: the run folder.
        config: the settings, the batch size among them.
        graph: the graph.
        model: the compiled model.
        strategy: what distributes it over devices.
        steps: steps an epoch.
        triples: training triples that an epoch stands for.
        done: epochs done before.
        stopping: early stopping; its `state` holds the best epoch.
    """

    folder: RunFolder
    config: TrainConfig
    graph: Graph
    model: JoBi
    strategy: tf.distribute.Strategy
    steps: int
    triples: int
    done: int
    stopping: EarlyStopping


Callbacks = Sequence[keras.callbacks.Callback] | Callable[[Training], Sequence[keras.callbacks.Callback]]


def save_bare_model(model: JoBi, path: Path) -> None:
    """Writes the model as `.keras`, complete or not at all, without the optimizer's moments (twice its size)."""
    bare = JoBi.from_config(model.get_config())
    for target, source in zip(bare.weights, model.weights, strict=True):
        target.assign(source.numpy())
    with written_beside(path) as beside:
        bare.save(beside)
