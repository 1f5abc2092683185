"""The progress display of a training."""

import time

import keras
from rich.console import Console

from jobi_tf.console import Bar, duration
from jobi_tf.evaluation.metrics import HITS_AT
from jobi_tf.training.recording import Training
from jobi_tf.workers import is_chief

_WIDE = 115  # columns that the bar takes with both losses


class Progress(keras.callbacks.Callback):
    """Writes a line for each epoch and one for its validation; on a terminal also a bar for the current epoch.

    Example:
        >>> jobi_tf.train("world", callbacks=lambda training: [Progress(training, console), *mine])
    """

    def __init__(self, training: Training, console: Console | None = None):
        super().__init__()
        self.training = training
        self.bar = Bar(training.triples, "triples", console=console, beside=72)
        self._begin: tuple[float, float] | None = None  # the time and the epochs trained after the first step

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Starts the bar; again after the rest of an epoch that was interrupted."""
        self.bar.__enter__()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Begins the bar of an epoch."""
        self._epoch, training = epoch, self.training
        self._first = training.first_step if epoch == training.done else 0  # of an epoch that was interrupted
        self.bar.reset(self._label(), self._first / training.steps * training.triples)

    def on_train_batch_end(self, batch: int, logs: dict) -> None:
        """Moves the bar."""
        training, config = self.training, self.training.config
        part = (self._first + batch + 1) / training.steps
        state = ""
        if part == 1 and training.ranking and training.ranking.due:
            state = f"ranking {len(training.graph.valid):,} validation triples"
        now, trained = time.monotonic(), self._epoch + part
        self._begin = self._begin or (now, trained)  # the first step also compiles
        begin, before = self._begin
        note = _losses(logs, parts=self.bar.console.width >= _WIDE or not self.bar.console.is_terminal)
        if trained > before and config.epochs > self._epoch + 1:
            note += f"  all ≤ {duration((now - begin) / (trained - before) * (config.epochs - trained))}"
        self.bar.show(part * training.triples, note, state)

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        """Writes the lines of the epoch."""
        rate, seconds = logs["triples_per_second"], logs["seconds"]
        self.bar.print(f"{self._label()}  {_losses(logs)}  {rate:>7,.0f} triples/s  {duration(seconds)}")
        if "val_mrr" in logs:
            hits = " ".join(f"{logs[f'val_hits@{k}']:.3f}" for k in HITS_AT)
            names = "/".join(map(str, HITS_AT))
            best = self.training.best  # which is called after this callback
            verdict = f"no better for {best.waited + 1} of {best.patience}"
            verdict = "best so far" if logs[best.monitor] > best.best else verdict
            self.bar.print(f"  validation: MRR {logs['val_mrr']:.3f}  Hits@{names} {hits}  {verdict}")

    def on_train_end(self, logs: dict | None = None) -> None:
        """Removes the bar."""
        self.bar.close()

    def _label(self) -> str:
        epochs = str(self.training.config.epochs)
        return f"epoch {self._epoch + 1:>{len(epochs)}}/{epochs}"


def show_progress(training: Training) -> list[keras.callbacks.Callback]:
    """Returns the display of a training, in one of several workers; what `jobi_tf.train` does by default."""
    return [Progress(training)] if is_chief(training.strategy) else []


def _losses(logs: dict, parts: bool = True) -> str:
    total = f"loss {logs['loss']:.3f}"
    if not parts or "pair_loss" not in logs:  # a single part would be the loss again
        return total
    return f"{total} (triple {logs['triple_loss']:.3f}, pair {logs['pair_loss']:.3f})"
