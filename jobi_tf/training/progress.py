"""What a person sees of a training while it goes."""

import time

import keras
from rich.console import Console

from jobi_tf.evaluation.metrics import HITS_AT
from jobi_tf.training.bars import bars_on, duration, stderr_console
from jobi_tf.training.recording import Training

SECONDS_BETWEEN_LINES = 30
_WIDE = 115  # columns that the bar takes with both losses


class Progress(keras.callbacks.Callback):
    """Shows each epoch on a line, and those of its validation; a terminal also gets a bar for the epoch that runs.

    Elsewhere nothing but whole lines are written, one more every half minute of a long epoch.

    Args:
        training: the training that is about to begin.
        console: where to write; stderr by default.

    Example:
        >>> jobi_tf.train("world", callbacks=lambda training: [Progress(training, console), *mine])
    """

    def __init__(self, training: Training, console: Console | None = None):
        super().__init__()
        self.training = training
        self.console = console or stderr_console()
        self._bars = bars_on(self.console, beside=100, longest=40)
        self._task = self._bars.add_task("", total=training.steps, state="")

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Starts the clock and the bar."""
        self._begin = self._said = time.monotonic()
        self._bars.start()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Begins a bar anew."""
        self._epoch, self._epoch_begin = epoch, time.monotonic()
        self._bars.reset(self._task, description=self._label(), state="")

    def on_train_batch_end(self, batch: int, logs: dict) -> None:
        """Moves the bar, or writes a line when it is time to."""
        now, steps = time.monotonic(), self.training.steps
        if self.console.is_terminal:
            self._bars.update(self._task, completed=batch + 1, state=self._state(batch + 1, now, logs))
        elif now - self._said >= SECONDS_BETWEEN_LINES:
            self._say(f"{self._label()}  step {batch + 1:,}/{steps:,}  {self._state(batch + 1, now, logs)}")

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        """Writes the epoch's lines."""
        rate, seconds = logs["triples_per_second"], logs["seconds"]
        self._say(f"{self._label()}  {_losses(logs)}  {rate:>7,.0f} triples/s  {duration(seconds)}")
        if "val_mrr" in logs:
            hits = " ".join(f"{logs[f'val_hits@{k}']:.3f}" for k in HITS_AT)
            names = "/".join(map(str, HITS_AT))
            self._say(f"  validation: MRR {logs['val_mrr']:.3f}  Hits@{names} {hits}  {self._verdict(logs)}")

    def on_train_end(self, logs: dict | None = None) -> None:
        """Takes the bar away."""
        self.close()

    def close(self) -> None:
        """Takes the bar away, also after an interruption; may be called more than once."""
        self._bars.stop()

    def _label(self) -> str:
        epochs = str(self.training.config.epochs)
        return f"epoch {self._epoch + 1:>{len(epochs)}}/{epochs}"

    def _state(self, steps: int, now: float, logs: dict) -> str:
        config, seconds = self.training.config, now - self._epoch_begin
        if steps == self.training.steps and self._ranks_after(self._epoch):
            return f"ranking {len(self.training.graph.valid):,} validation triples"
        rate = self.training.triples * steps / self.training.steps / seconds
        epoch_left = seconds / steps * (self.training.steps - steps)
        epochs_done = self._epoch + steps / self.training.steps - self.training.done
        run_left = (now - self._begin) / epochs_done * (config.epochs - self.training.done - epochs_done)
        losses = _losses(logs, parts=self.console.width >= _WIDE or not self.console.is_terminal)
        return f"{rate:,.0f} triples/s  {losses}  left {duration(epoch_left)}, all ≤ {duration(run_left)}"

    def _ranks_after(self, epoch: int) -> bool:
        config = self.training.config
        return config.eval_every > 0 and ((epoch + 1) % config.eval_every == 0 or epoch + 1 == config.epochs)

    def _verdict(self, logs: dict) -> str:
        best = self.training.best  # which is called after this callback
        better = logs[best.monitor] > best.best
        return "best so far" if better else f"no better for {best.waited + 1} of {best.patience}"

    def _say(self, line: str) -> None:
        self.console.print(line, soft_wrap=True)
        self._said = time.monotonic()


def show_progress(training: Training) -> list[keras.callbacks.Callback]:
    """Returns the display of a training; what `jobi_tf.train` does by default."""
    return [Progress(training)]


def _losses(logs: dict, parts: bool = True) -> str:
    total = f"loss {logs['loss']:.3f}"
    if not parts or "pair_loss" not in logs:  # a single part would be the loss again
        return total
    return f"{total} (triple {logs['triple_loss']:.3f}, pair {logs['pair_loss']:.3f})"
