"""The folder of a search, and what it has found so far."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobi_tf.errors import MissingExtraError
from jobi_tf.evaluation.metrics import BETTER_IF_HIGHER, METRICS
from jobi_tf.files import written_beside
from jobi_tf.training.run_folder import RunFolder
from jobi_tf.tuning.spaces import Space

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

_SUMMARY = ("best_epoch", "epochs", "seconds")


@dataclass(frozen=True)
class SearchFolder:
    """The files of a search: `space.yaml`, `search.db` (Optuna's storage), `trials/0000` … (run folders), `trials.csv`,
    `best.yaml` and pictures.
    """

    path: Path

    @property
    def space(self) -> Path:
        """The space."""
        return self.path / "space.yaml"

    @property
    def database(self) -> Path:
        """Every trial, as Optuna keeps it."""
        return self.path / "search.db"

    @property
    def best(self) -> Path:
        """Settings of the best trial, for `jobi-tf train --config`."""
        return self.path / "best.yaml"

    def trial(self, trial: "FrozenTrial") -> RunFolder:
        """Returns the run folder of a trial: a retried one goes on in the folder of the first try."""
        return RunFolder(self.path / "trials" / f"{number(trial):04d}")


def number(trial: "FrozenTrial") -> int:
    """Returns the number of a trial; of a retry, that of the first try."""
    from optuna.storages import RetryHeartbeatStaleTrialCallback

    first = RetryHeartbeatStaleTrialCallback.retried_trial_number(trial)
    return trial.number if first is None else first


@dataclass(frozen=True)
class Results:
    """The trials of a search, from Optuna's study.

    `trials` are without those that were retried or only repeat the parameters of another. The user attributes of one
    are `metrics` (of its best epoch), `best_epoch`, `epochs`, `seconds`, and `reason` if it failed.
    """

    space: Space
    folder: SearchFolder
    study: "optuna.Study"
    trials: "tuple[FrozenTrial, ...]"

    def ranked(self) -> "list[FrozenTrial]":
        """Returns the complete trials, the best first; of equal ones, the earlier."""
        complete = [trial for trial in self.trials if trial.state.name == "COMPLETE"]
        return sorted(complete, key=lambda trial: (-(trial.value or 0), number(trial)))

    def count(self, state: str) -> int:
        """Returns the number of trials in one of Optuna's states, such as `COMPLETE`."""
        return sum(trial.state.name == state for trial in self.trials)

    def params(self, trial: "FrozenTrial") -> dict[str, Any]:
        """Returns the settings that varied in a trial."""
        return self.space.rounded(trial.params)

    def write(self) -> None:
        """Writes `trials.csv`, and `best.yaml` once a trial is complete."""
        names = [*self.space.search]
        path = self.folder.path / "trials.csv"
        with written_beside(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["trial", "state", "value", *BETTER_IF_HIGHER, *_SUMMARY, *names, "run", "reason"])
            writer.writerows(self._row(trial, names) for trial in self.trials)
        for trial in self.ranked()[:1]:
            config = self.space.config(self.params(trial))  # its run folder may be on another machine
            by = f"validation {METRICS[self.space.metric]}: {trial.value:.4f}"
            with written_beside(self.folder.best) as beside:
                config.write(beside)
                settings = beside.read_text(encoding="utf-8")
                title = f"# trial {number(trial)}, the best of {len(self.trials)} by {by}"
                beside.write_text(f"{title}\n{settings}", encoding="utf-8")

    def draw(self) -> list[Path]:
        """Draws the history, the importance of each setting and the trials as parallel coordinates, as PNG.

        Returns:
            The files; none before two trials are complete.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        try:
            import matplotlib as mpl
        except ImportError:
            raise MissingExtraError("drawing a search needs matplotlib: pip install 'jobi-tf[plot]'") from None
        from optuna.importance import PedAnovaImportanceEvaluator
        from optuna.visualization import matplotlib as plots

        mpl.use("agg")
        values = {trial.value for trial in self.ranked()}
        if len(values) < 2:
            return []
        target = f"validation {METRICS[self.space.metric]}"
        axes = {
            "history": plots.plot_optimization_history(self.study, target_name=target),
            "parallel": plots.plot_parallel_coordinate(self.study, target_name=target),
            "importances": plots.plot_param_importances(self.study, evaluator=PedAnovaImportanceEvaluator()),
        }
        paths = []
        for name, axis in axes.items():
            figure = axis.get_figure(root=True)
            assert figure is not None
            paths.append(self.folder.path / f"{name}.png")
            with written_beside(paths[-1]) as beside:
                figure.savefig(beside, dpi=120, bbox_inches="tight", format="png")
        return paths

    def _row(self, trial: "FrozenTrial", names: Sequence[str]) -> list[Any]:
        found, params = trial.user_attrs, self.params(trial)
        metrics = found.get("metrics", {})
        return [
            *(number(trial), trial.state.name.lower(), trial.value),
            *(metrics.get(name) for name in BETTER_IF_HIGHER),
            *(found.get(name) for name in _SUMMARY),
            # A setting that does not vary in this trial has its fixed value.
            *(params.get(name, self.space.settings.get(name)) for name in names),
            *(self.folder.trial(trial).path.relative_to(self.folder.path), found.get("reason")),
        ]
