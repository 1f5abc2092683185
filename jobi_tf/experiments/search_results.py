"""What a search has found: its folder, its trials, and the files made of them."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobi_tf.evaluation.metrics import BETTER_IF_HIGHER, METRICS
from jobi_tf.experiments.spaces import Space
from jobi_tf.files import written_beside
from jobi_tf.training.run_folder import RunFolder

if TYPE_CHECKING:
    import optuna

STATES = ("complete", "pruned", "failed", "running")


@dataclass(frozen=True)
class SearchFolder:
    """The files of a search, by name.

    `space.yaml`, `search.db` (Optuna's storage), `trials/0000` … (run folders), `trials.csv`, `best.yaml` and
    `search.png`.
    """

    path: Path

    @property
    def space(self) -> Path:
        """The space, in full."""
        return self.path / "space.yaml"

    @property
    def database(self) -> Path:
        """Every trial, as Optuna keeps it."""
        return self.path / "search.db"

    @property
    def table(self) -> Path:
        """One row a trial."""
        return self.path / "trials.csv"

    @property
    def best(self) -> Path:
        """Settings of the best trial, for `jobi-tf train --config`."""
        return self.path / "best.yaml"

    @property
    def plot(self) -> Path:
        """History, importances and parallel coordinates."""
        return self.path / "search.png"

    def trial(self, number: int) -> RunFolder:
        """Returns the run folder of a trial."""
        return RunFolder(self.path / "trials" / f"{number:04d}")

    def log(self, number: int) -> Path:
        """Returns the file for what the process of a trial says; it stays if the trial fails."""
        return self.path / "trials" / f"{number:04d}.log"


@dataclass(frozen=True)
class Trial:
    """A trial.

    Args:
        number: its number, from 0.
        state: one of `STATES`.
        params: the settings that varied.
        value: the metric that chooses: at the epoch that the run keeps; of a pruned trial, at its last ranking.
        metrics: all validation metrics of the epoch that the run keeps.
        best_epoch: that epoch.
        epochs: the epochs that were trained.
        seconds: what training took, without rankings.
        reason: why it failed.
    """

    number: int
    state: str
    params: dict[str, Any]
    value: float | None = None
    metrics: dict[str, float] | None = None
    best_epoch: int | None = None
    epochs: int | None = None
    seconds: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Results:
    """The trials of a search.

    Args:
        space: what was searched.
        folder: its files.
        trials: the trials, by number.
    """

    space: Space
    folder: SearchFolder
    trials: tuple[Trial, ...]

    def ranked(self) -> list[Trial]:
        """Returns the complete trials, the best first; of equal ones, the earlier."""
        complete = [trial for trial in self.trials if trial.state == "complete"]
        return sorted(complete, key=lambda trial: (-(trial.value or 0), trial.number))

    def count(self, state: str) -> int:
        """Returns the number of trials in a state."""
        return sum(trial.state == state for trial in self.trials)

    def write(self) -> None:
        """Writes `trials.csv`, and `best.yaml` once a trial is complete."""
        names = [parameter.name for parameter in self.space.parameters]
        with written_beside(self.folder.table) as beside, beside.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["trial", "state", "value", *BETTER_IF_HIGHER, *_COLUMNS, *names, "run", "reason"])
            writer.writerows(self._row(trial, names) for trial in self.trials)
        if best := self.ranked()[:1]:
            self._write_best(best[0])

    def _row(self, trial: Trial, names: Sequence[str]) -> list[Any]:
        metrics = trial.metrics or {}
        run = self.folder.trial(trial.number).path.relative_to(self.folder.path)
        return [
            *(trial.number, trial.state, trial.value),
            *(metrics.get(name) for name in BETTER_IF_HIGHER),
            *(getattr(trial, name) for name in _COLUMNS),
            # As `best.yaml` and messages have them: a setting that did not vary in this trial has its fixed value.
            *(trial.params.get(name, self.space.settings.get(name)) for name in names),
            *(run, trial.reason),
        ]

    def _write_best(self, trial: Trial) -> None:
        folder = self.folder.trial(trial.number)
        with written_beside(self.folder.best) as beside:
            folder.read_config().write(beside)
            head = (
                f"# trial {trial.number}, the best of {len(self.trials)} by validation {METRICS[self.space.metric]}: "
            )
            text = beside.read_text(encoding="utf-8")
            beside.write_text(f"{head}{trial.value:.4f}\n{text}", encoding="utf-8")


_COLUMNS = ("best_epoch", "epochs", "seconds")


def results_of(study: "optuna.study.Study", space: Space, folder: SearchFolder) -> Results:
    """Returns the trials that Optuna has, without doubles and those that have not begun."""
    states = dict(zip(("COMPLETE", "PRUNED", "FAIL", "RUNNING"), STATES, strict=True))
    trials = []
    for frozen in study.get_trials(deepcopy=False):
        state = states.get(frozen.state.name)
        if state is not None and "double_of" not in frozen.user_attrs:
            kept = {**frozen.user_attrs.get("so_far", {}), "reason": frozen.user_attrs.get("reason")}
            trials.append(Trial(frozen.number, state, space.rounded(frozen.params), frozen.value, **kept))
    return Results(space, folder, tuple(trials))
