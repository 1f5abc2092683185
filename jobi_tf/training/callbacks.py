"""Keras callbacks for any program that trains a `JoBi` model."""

import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import keras
import numpy as np
import tensorflow as tf

from jobi_tf.data.graph import Graph, check_is_graph
from jobi_tf.data.occurrences import SIDES, KnownAnswers
from jobi_tf.errors import JobiError, UsageError, check_at_least
from jobi_tf.evaluation.ranker import check_graph, ranker_for
from jobi_tf.evaluation.ranks import Ranks, rank_metrics
from jobi_tf.optimizers import rounded

_ROWS_OF_A_BLOCK = 2**12  # of weights and their mean, which are exchanged: several copies of a block are in memory


class ValidationRanking(keras.callbacks.Callback):
    """Ranks validation triples and adds `val_mrr`, `val_hits@1`, `val_hits@3`, `val_hits@10` and `val_mean_rank` to
    `logs`.

    Later callbacks in the list, such as Keras' `EarlyStopping("val_mrr", mode="max")`, see these metrics. Ranks are
    filtered with the training and validation triples only, so that nothing is chosen by looking at test triples.
    Keras' `CSVLogger`, whose columns are the metrics of the first epoch, records them only if this epoch is ranked.

    Args:
        graph: the graph.
        every: number of epochs between rankings; the last epoch is always ranked.
        epochs: the last epoch; None: that of `fit`.
        first: the first epoch to rank, counted from 1; None: `every`.

    Attributes:
        due: whether the current epoch ends with a ranking.
        ranks: the ranks of heads and of tails in the last ranking.

    Raises:
        UsageError: `every` or `first` is below 1, or the graph has no validation triples.

    Example:
        >>> model.fit(batches, callbacks=[jobi_tf.ValidationRanking(graph, every=5)], ...)
    """

    def __init__(self, graph: Graph, every: int = 5, epochs: int | None = None, first: int | None = None):
        super().__init__()
        check_at_least(1, every=every, first=every if first is None else first)
        check_is_graph(graph)
        if not len(graph.valid):
            raise UsageError(f"expected validation triples in the graph {graph.name}, got none")
        self.graph = graph
        self.every = every
        self.epochs = epochs
        self.first = first or every
        self.ranks: list[Ranks] = []

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Collects the known answers."""
        check_graph(self.model, self.graph)
        known = KnownAnswers.of_graph(self.graph, ("train", "valid"), self.graph.valid)
        with self.model.distribute_strategy.scope():
            self._ranker = ranker_for(self.model, known)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Turns off warnings of Keras' callbacks that metrics are missing, in epochs without a ranking."""
        since, last = epoch + 1 - self.first, self.epochs or self.params["epochs"]
        self.due = (since >= 0 and since % self.every == 0) or epoch + 1 == last
        # With a ranking the metrics are missing only for callbacks that stand before this one.
        action: Literal["default", "ignore"] = "default" if self.due else "ignore"
        warnings.filterwarnings(action, r".*`?val_(mrr|hits@\d+|mean_rank)`?.* (which is not )?available")

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        """Ranks, if it is due."""
        diverged = self.model.stop_training and not math.isfinite(logs.get("loss", 0))  # by TerminateOnNaN
        if self.due and not diverged:
            valid = np.asarray(self.graph.valid)
            self.ranks = [self._ranker.rank(valid, side) for side in range(len(SIDES))]
            metrics = rank_metrics(Ranks.concatenate(self.ranks).ranks())
            logs.update({f"val_{name}": value for name, value in metrics.items()})


class AverageWeights(keras.callbacks.Callback):
    """Sets the model to the mean of the weights after the last epochs, at the end of each epoch.

    Later callbacks in the list, such as `ValidationRanking`, see the mean, and the model keeps it after `fit`. Training
    itself does not change: the next epoch starts from the last weights. After epoch k the mean moves by a share of
    1 / min(k, `epochs`) towards the weights. A second copy of the weights is in memory: the mean, or the last weights
    while the model has the mean.
    Another call of `fit` with the same callback continues from the last weights. If you assign other weights to the
    model in between, use a new callback.

    Args:
        epochs: approximate number of epochs in the mean, at least 2.

    Attributes:
        other: the mean of each weight, or the last weights while the model has the mean; None before the end of the
            first epoch.
        count: number of epochs that have ended.

    Raises:
        UsageError: `epochs` is below 2.

    Example:
        >>> model.fit(batches, callbacks=[jobi_tf.AverageWeights(3), jobi_tf.ValidationRanking(graph)], ...)

    Reference: Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization, UAI 2018.
    """

    def __init__(self, epochs: int):
        super().__init__()
        check_at_least(2, epochs=epochs)
        self.epochs = epochs
        self.count = 0
        self.other: list[np.ndarray] | None = None
        self._has_mean = False  # the model

    def set_model(self, model: keras.Model) -> None:
        """Begins again with another model."""
        if self.model is not None and self.model is not model:
            self.count, self.other, self._has_mean = 0, None, False
        super().set_model(model)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Gives the model the weights of its training."""
        self.give(mean=False)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Gives the model the mean."""
        if "val_mrr" in (logs or {}):
            advice = "put it before, so that the mean is ranked"
            warnings.warn(f"AverageWeights comes after ValidationRanking: {advice}", stacklevel=2)
        self.count += 1
        if self.other is None:
            self.other = [np.zeros(x.shape, tf.as_dtype(x.dtype).as_numpy_dtype) for x in self.model.weights]
        self._exchange(1 / min(self.count, self.epochs))

    def give(self, mean: bool) -> None:
        """Gives the model the mean, or the weights of its training, unless it has them."""
        if self.other is not None and self._has_mean != mean:
            self._exchange()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Gives the model the weights of its training while the block runs."""
        mean = self._has_mean
        self.give(mean=False)
        try:
            yield
        finally:
            self.give(mean)

    def _exchange(self, share: float = 0.0) -> None:
        """Moves `other` that share of the way to the weights of the model, then exchanges both, block by block."""
        for variable, other in zip(self.model.weights, self.other or (), strict=True):
            if not tf.as_dtype(variable.dtype).is_floating:  # a number of draws
                continue
            if not variable.shape:
                before = variable.numpy()
                variable.assign(other + share * (before - other))
                other[...] = before
                continue
            copies = self.model.distribute_strategy.experimental_local_results(variable.value)
            for first in range(0, len(other), _ROWS_OF_A_BLOCK):
                block = other[first : first + _ROWS_OF_A_BLOCK]
                places = tf.range(first, first + len(block))
                rows = tf.gather(copies[0], places)
                mean, trained = (tf.cast(x, tf.float32) for x in (block, rows))
                mean += share * (trained - mean)
                new = rounded(mean, trained + self.count) if rows.dtype == tf.bfloat16 else mean
                for copy in copies:
                    copy.scatter_update(tf.IndexedSlices(new, places))
                block[...] = rows
        self._has_mean = not self._has_mean


class StopOnNaN(keras.callbacks.Callback):
    """Stops training with a `JobiError` as soon as the loss is not finite."""

    def on_train_batch_end(self, batch: int, logs: dict) -> None:
        """Checks the running mean of the loss."""
        if not math.isfinite(logs["loss"]):
            step = f"step {batch + 1} of the epoch"
            raise JobiError(f"training stopped: the loss is {logs['loss']} in {step}; try a lower learning rate")


class Throughput(keras.callbacks.Callback):
    """Adds `seconds` and `triples_per_second` of an epoch's training steps to `logs`, the `learning_rate` at its end,
    and `triple_loss` if it is missing.
    """

    def __init__(self, triples_per_step: float):
        super().__init__()
        self.triples_per_step = triples_per_step

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Starts the clock."""
        self._start, self._steps = time.perf_counter(), 0

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Counts the steps."""
        self._steps = batch + 1

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        """Stops the clock."""
        seconds = time.perf_counter() - self._start
        # Keras names the loss of an output only if there are several.
        logs.setdefault("triple_loss", logs["loss"] - sum(logs[x.name] for x in self.model.regularizers))
        logs["learning_rate"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        logs.update(triples_per_second=self._steps * self.triples_per_step / seconds, seconds=seconds)
