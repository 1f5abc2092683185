"""What a person sees of a search while it goes."""

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from jobi_tf.evaluation.metrics import METRICS
from jobi_tf.experiments.search_results import Results, Trial
from jobi_tf.training.bars import bars_on, duration, stderr_console


class SearchProgress:
    """Shows each trial on a line when it has ended; a terminal also gets a bar, with the best so far.

    Args:
        console: where to write; stderr by default.
    """

    def __init__(self, console: Console | None = None):
        self.console = console or stderr_console()
        self._bars = bars_on(self.console, beside=90, longest=30)
        self._running: dict[int, str] = {}
        self._best = ""

    def begun(self, results: Results) -> None:
        """Says what was done before, and starts the bar."""
        space, done = results.space, _done(results)
        self._total = len(list(space.points())) if space.sampler == "grid" else (space.trials or 0)
        self._total = min(self._total, space.trials or self._total)
        self._done, self._done_before, self._begin = done, done, time.monotonic()
        self._say(f"search    {space.sampler}, {self._total} trials, by validation {METRICS[space.metric]}")
        self._say(f"folder    {results.folder.path}")
        if results.trials:
            self._say(f"going on  {done} trials done before, {results.count('running')} were running")
        self._note_best(results)
        self._task = self._bars.add_task("", total=self._total, state="")
        self._bars.start()
        self._update()

    def trial_begun(self, number: int, params: Mapping[str, Any]) -> None:
        """Shows that a trial is running."""
        self._running[number] = "starting"
        self._update()

    def epoch(self, number: int, epoch: int, epochs: int) -> None:
        """Shows the epoch of a trial."""
        self._running[number] = f"{epoch}/{epochs}"
        self._update()

    def trial_ended(self, number: int, results: Results) -> None:
        """Writes a line about a trial."""
        self._running.pop(number, None)
        self._done = _done(results)
        trial = next(trial for trial in results.trials if trial.number == number)
        self._note_best(results)
        best = results.ranked()[:1] == [trial]
        self._say(
            f"{self._done:>{len(str(self._total))}}/{self._total}  {describe(trial, results)}"
            f"{'  best so far' if best else ''}"
        )
        self._update()

    def close(self) -> None:
        """Takes the bar away, also after an interruption; may be called more than once."""
        self._bars.stop()

    def _note_best(self, results: Results) -> None:
        if best := results.ranked()[:1]:
            self._best = f"best {best[0].value:.4f} (trial {best[0].number})"

    def _update(self) -> None:
        left = ""
        if done := self._done - self._done_before:
            left = f"  left ≈ {duration((time.monotonic() - self._begin) / done * (self._total - self._done))}"
        running = ", ".join(f"{number}: {state}" for number, state in sorted(self._running.items()))
        state = f"{self._best}{left}  trial {running}" if running else self._best
        self._bars.update(self._task, description=f"{self._done}/{self._total}", completed=self._done, state=state)

    def _say(self, line: str) -> None:
        self.console.print(line, soft_wrap=True)


def describe(trial: Trial, results: Results) -> str:
    """Returns a trial on one line: how it ended and its settings."""
    settings = "  ".join(f"{name} {format_value(value)}" for name, value in trial.params.items())
    took = "" if trial.seconds is None else f"  {duration(trial.seconds)}"
    if trial.state == "failed":
        return f"trial {trial.number}  failed: {trial.reason}  ({settings})"
    pruned = f"pruned at epoch {trial.epochs}  " if trial.state == "pruned" and trial.epochs else ""
    value = f"{METRICS[results.space.metric]} {trial.value:.4f}"
    return f"trial {trial.number}  {pruned}{value}{took}  {settings}"


def format_value(value: Any) -> str:
    """Returns a setting with at most four digits that count."""
    return f"{value:.4g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _done(results: Results) -> int:
    return len(results.trials) - results.count("running")
