"""Optuna's part of a search: what to try next, what to end early, and what is kept of it."""

import warnings
from typing import Any

import optuna
import sqlalchemy.engine
from optuna.trial import TrialState

from jobi_tf.errors import DataError, UsageError
from jobi_tf.experiments.search_results import SearchFolder
from jobi_tf.experiments.spaces import Pruning, Space

NAME = "search"
# So many proposals in a row that were tried before, and the search has come to its end.
MOST_DOUBLES = 20
_STEPS_OF_SEED = 1_000_003


class Study:
    """The trials of a search in a SQLite file.

    Nothing but the file is remembered: the sampler is made anew for each trial, with a seed of its own, so that a
    search that was killed proposes what it would have proposed.

    Args:
        space: what is searched.
        folder: where.
        fingerprint: that of the graph.

    Raises:
        UsageError: the search was begun on another graph.
        DataError: the file is damaged.
    """

    def __init__(self, space: Space, folder: SearchFolder, fingerprint: str):
        self.space = space
        self.folder = folder
        self._points = list(space.points())[: space.trials] if space.sampler == "grid" else None
        url = sqlalchemy.engine.URL.create("sqlite", database=str(folder.database))
        try:
            storage = optuna.storages.RDBStorage(url.render_as_string(hide_password=False))
            self.optuna = optuna.create_study(
                study_name=NAME,
                storage=storage,
                direction="maximize",
                load_if_exists=True,
                pruner=_pruner(space.pruning),
            )
        except sqlalchemy.exc.DatabaseError as error:
            raise DataError(f"expected the trials of a search in {folder.database}, got: {error.orig}") from None
        before = self.optuna.user_attrs.get("graph", fingerprint)
        if before != fingerprint:
            raise UsageError(
                f"expected the data that the search in {folder.path} began with, {space.settings['dataset']} "
                "has changed: choose another folder by --out"
            )
        self.optuna.set_user_attr("graph", fingerprint)

    def ask(self) -> int | None:
        """Begins a trial and returns its number; None if none is left."""
        if self._points is not None:
            return self._ask_grid()
        for _ in range(MOST_DOUBLES):
            if len(self._counted()) >= (self.space.trials or 0):
                return None
            self._seed_sampler(len(self._every()))
            if self._settle(trial := self.optuna.ask()):
                return trial.number
        return None

    def unfinished(self) -> list[int]:
        """Returns the numbers of trials that were running when the search was ended."""
        running = [trial.number for trial in self._every() if trial.state == TrialState.RUNNING]
        return [number for number in running if self._settle(self._open(number))]

    def params(self, number: int) -> dict[str, Any]:
        """Returns the settings that vary in a trial."""
        return self.space.rounded(self._frozen(number).params)

    def report(self, number: int, epoch: int, value: float, last: bool) -> bool:
        """Keeps the metric of a ranking, and returns whether the trial should end early; not after the `last` epoch."""
        trial = self._open(number)
        if epoch not in self._frozen(number).intermediate_values:  # a trial that goes on may repeat an epoch
            trial.report(value, epoch)
        stop = not last and bool(trial.should_prune())  # NumPy has a bool of its own
        if stop:
            trial.set_user_attr("pruned", True)
        return stop

    def is_pruned(self, number: int) -> bool:
        """Tells whether it was decided that a trial ends early."""
        return self._frozen(number).user_attrs.get("pruned", False)

    def note(self, number: int, so_far: dict[str, Any]) -> None:
        """Keeps what a trial has come to: `metrics`, `best_epoch`, `epochs` and `seconds`."""
        self._open(number).set_user_attr("so_far", so_far)

    def count_crash(self, number: int) -> int:
        """Counts that the process of a trial was killed, and returns how often that was."""
        crashes = self._frozen(number).user_attrs.get("crashes", 0) + 1
        self._open(number).set_user_attr("crashes", crashes)
        return crashes

    def tell(self, number: int) -> None:
        """Ends a trial; its value is the metric of the epoch that the run keeps."""
        if self.is_pruned(number):
            self.optuna.tell(number, state=TrialState.PRUNED)
        else:
            self.optuna.tell(number, self._frozen(number).user_attrs["so_far"]["metrics"][self.space.metric])

    def tell_failed(self, number: int, reason: str) -> None:
        """Ends a trial that has no result."""
        self._open(number).set_user_attr("reason", reason)
        self.optuna.tell(number, state=TrialState.FAIL)

    def _ask_grid(self) -> int | None:
        assert self._points is not None
        every = self._every()
        if not any(trial.state == TrialState.WAITING for trial in every):
            begun = {trial.user_attrs["point"] for trial in every}
            left = [i for i in range(len(self._points)) if i not in begun]
            if not left:
                return None
            self.optuna.enqueue_trial(self._points[left[0]], user_attrs={"point": left[0]})
        self._seed_sampler(0)
        trial = self.optuna.ask()
        self._suggest(trial)
        return trial.number

    def _settle(self, trial: optuna.trial.Trial) -> bool:
        """Chooses the settings of a trial; returns whether they are new. Does nothing the second time."""
        params = self._suggest(trial)
        if self._points is not None:
            return True
        for other in self._counted():
            if other.number < trial.number and self.space.rounded(other.params) == params:
                trial.set_user_attr("double_of", other.number)
                self.optuna.tell(trial, state=TrialState.FAIL)
                return False
        return True

    def _suggest(self, trial: optuna.trial.Trial) -> dict[str, Any]:
        params: dict[str, Any] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of ranges whose end is no multiple of the step, which is as good
            for parameter in sorted(self.space.parameters, key=lambda p: bool(p.when)):
                if self.space.active(parameter, params):
                    params[parameter.name] = parameter.suggest(trial)
        return params

    def _seed_sampler(self, number: int) -> None:
        seed = (self.space.seed * _STEPS_OF_SEED + number) % 2**32
        samplers = optuna.samplers
        self.optuna.sampler = (
            samplers.TPESampler(seed=seed) if self.space.sampler == "tpe" else samplers.RandomSampler(seed=seed)
        )

    def _open(self, number: int) -> optuna.trial.Trial:
        # Optuna has no other way to go on with a trial that a process left behind.
        self._seed_sampler(number)
        return optuna.trial.Trial(self.optuna, self._frozen(number)._trial_id)

    def _every(self) -> list[optuna.trial.FrozenTrial]:
        return self.optuna.get_trials(deepcopy=False)

    def _counted(self) -> list[optuna.trial.FrozenTrial]:
        return [trial for trial in self._every() if "double_of" not in trial.user_attrs]

    def _frozen(self, number: int) -> optuna.trial.FrozenTrial:
        return self._every()[number]


def _pruner(pruning: Pruning) -> optuna.pruners.BasePruner:
    if pruning.method == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=pruning.startup, n_warmup_steps=pruning.warmup)
    if pruning.method == "halving":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=pruning.first, reduction_factor=pruning.factor)
    return optuna.pruners.NopPruner()
