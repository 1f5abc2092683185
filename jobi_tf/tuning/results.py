"""What a search has found so far, and the files that show it."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState

from jobi_tf.errors import needs
from jobi_tf.evaluation.metrics import BETTER_IF_HIGHER, METRICS
from jobi_tf.files import written_beside
from jobi_tf.training.run_folder import RunFolder
from jobi_tf.tuning.spaces import Space

# Files of a search, beside `trials.csv`, pictures and run folders.
SPACE, DATABASE, BEST = "space.yaml", "search.db", "best.yaml"
_SUMMARY = ("best_epoch", "epochs", "seconds")


def number(trial: FrozenTrial) -> int:
    """Returns the number of a trial; of a retry, that of the first try."""
    first = RetryHeartbeatStaleTrialCallback.retried_trial_number(trial)
    return trial.number if first is None else first


def last_tries(study: optuna.Study) -> dict[int, FrozenTrial]:
    """Returns the last try of each trial, by the number of the first one."""
    return {number(trial): trial for trial in study.get_trials(deepcopy=False)}


def run_folder(path: Path, trial: FrozenTrial) -> RunFolder:
    """Returns the run folder of a trial of a search: a retried one goes on in the folder of the first try."""
    return RunFolder(path / "trials" / f"{number(trial):04d}")


@dataclass(frozen=True)
class Results:
    """The trials of a search, from Optuna's study.

    The user attributes of a trial are `metrics` (of its best epoch), `best_epoch`, `epochs`, `seconds`, and `reason` if
    it failed.
    """

    space: Space
    path: Path
    study: optuna.Study
    trials: tuple[FrozenTrial, ...]  # begun, without retried ones and those that repeat another trial

    @classmethod
    def of(cls, study: optuna.Study, space: Space, path: Path) -> "Results":
        """Reads the trials of a study."""
        trials = [trial for _, trial in sorted(last_tries(study).items()) if "same_as" not in trial.user_attrs]
        begun = [trial for trial in trials if trial.state != TrialState.WAITING]
        return cls(space, path, study, tuple(begun))

    def ranked(self) -> list[FrozenTrial]:
        """Returns the complete trials, the best first; of equal ones, the earlier."""
        complete = [trial for trial in self.trials if trial.state == TrialState.COMPLETE]
        return sorted(complete, key=lambda trial: (-(trial.value or 0), number(trial)))

    def count(self, state: str) -> int:
        """Returns the number of trials in one of Optuna's states, such as `COMPLETE`."""
        return sum(trial.state.name == state for trial in self.trials)

    def params(self, trial: FrozenTrial) -> dict[str, Any]:
        """Returns the settings that varied in a trial."""
        return self.space.rounded(trial.params)

    def write(self) -> None:
        """Writes `trials.csv`, and `best.yaml` once a trial is complete."""
        columns = ["trial", "state", "value", *BETTER_IF_HIGHER, *_SUMMARY, *self.space.search, "run", "reason"]
        path = self.path / "trials.csv"
        with written_beside(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([columns, *map(self._row, self.trials)])
        for trial in self.ranked()[:1]:
            config = self.space.config(self.params(trial))  # its run folder may be on another machine
            by = f"validation {METRICS[self.space.metric]}: {trial.value:.4f}"
            with written_beside(self.path / BEST) as beside:
                config.write(beside)
                settings = beside.read_text(encoding="utf-8")
                title = f"# trial {number(trial)}, the best of {len(self.trials)} by {by}"
                beside.write_text(f"{title}\n{settings}", encoding="utf-8")

    def _row(self, trial: FrozenTrial) -> list[Any]:
        found, params = trial.user_attrs, self.params(trial)
        metrics = found.get("metrics", {})
        return [
            *(number(trial), trial.state.name.lower(), trial.value),
            *(metrics.get(name) for name in BETTER_IF_HIGHER),
            *(found.get(name) for name in _SUMMARY),
            # A setting that does not vary in this trial has its fixed value.
            *(params.get(name, self.space.settings.get(name)) for name in self.space.search),
            *(run_folder(self.path, trial).path.relative_to(self.path), found.get("reason")),
        ]

    def draw(self) -> list[Path]:
        """Draws Optuna's pictures as PNG, and returns the files; none before two trials have other values."""
        with needs("drawing a search needs matplotlib", "plot"):
            import matplotlib as mpl
        from optuna.importance import PedAnovaImportanceEvaluator
        from optuna.visualization import matplotlib as plots

        mpl.use("agg")
        from matplotlib.pyplot import close

        if len({trial.value for trial in self.ranked()}) < 2:
            return []
        target = f"validation {METRICS[self.space.metric]}"
        axes = {
            "history": plots.plot_optimization_history(self.study, target_name=target),
            "parallel": plots.plot_parallel_coordinate(self.study, target_name=target),
            "importances": plots.plot_param_importances(
                self.study, evaluator=PedAnovaImportanceEvaluator(), target_name=target
            ),
        }
        files = [self.path / f"{name}.png" for name in axes]
        for file, axis in zip(files, axes.values(), strict=True):
            figure = axis.get_figure(root=True)
            assert figure is not None
            if file.stem == "parallel":
                figure.set_size_inches(max(8, 1.8 * len(self.space.search)), 6)
                axis.collections[0].set_cmap("viridis_r")  # Optuna's begins at white, on light grey
                bar = figure.axes[1]
                bar.set_position(bar.get_position().translated(0.1, 0))  # clear of the ticks of the last setting
            with written_beside(file) as beside:
                figure.savefig(beside, dpi=120, bbox_inches="tight", format="png")
            close(figure)
        return files
