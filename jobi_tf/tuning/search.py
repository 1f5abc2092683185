"""Searches for good settings: Optuna proposes them, processes of their own train them, the validation split judges."""

import hashlib
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
import wrapt
from optuna.storages import RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState

from jobi_tf.errors import DataError, JobiError, UsageError, without_passwords
from jobi_tf.files import check_new, run_lock, written_beside
from jobi_tf.jobs import Epoch, JobError, JobKilledError, Jobs, JobStoppedError, train_or_resume
from jobi_tf.training.config import read_settings
from jobi_tf.training.run_folder import run_summary
from jobi_tf.tuning.results import DATABASE, SPACE, Results, last_tries, number, run_folder
from jobi_tf.tuning.spaces import Space

warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
# Of Optuna's plots of parameters that have one value in all trials, or a value in few trials.
warnings.filterwarnings("ignore", "Attempting to set identical low and high ylims")
warnings.filterwarnings("ignore", "Some regimes for parameter")

HEARTBEAT, GRACE = 10, 30  # seconds
SECONDS_FOR_SQLITE = 60  # to wait for other processes that write
MOST_CRASHES = 2
MOST_FAILURES = 5
RETRY = RetryHeartbeatStaleTrialCallback(inherit_intermediate_values=True)
STORAGE_ERRORS = (optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError)
OnEvent = Callable[[int, Epoch | Results | None], None]


def search(
    space: Space,
    out: str | Path,
    jobs: int = 1,
    storage: str | None = None,
    on_event: OnEvent = lambda trial, event: None,
) -> Results:
    """Searches, or continues the search of a folder, and returns its trials.

    A search may be stopped in any way, and several processes or machines may work on one storage: a trial whose process
    has gone is retried by another with the same settings, from its last checkpoint if that is there.

    `jobs` trials at a time, each in its own process, share the cores. `storage` is the URL of a database for Optuna,
    whose study has the name of the folder `out`; by default it is a file in the folder. `on_event` is called with the
    number of a trial and None when it begins, each of its epochs, and the results when it has ended.

    Raises:
        UsageError: the space is invalid, or the folder or the storage is of another search.
        DataError: the data or the files of the search cannot be read.
        JobiError: no trial is complete, or something failed that is no fault of a trial.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space.check()
    path = Path(out)
    graph = space.config({}).load_graph()
    if not len(graph.valid):
        raise UsageError(f"expected validation triples in {graph.name}, by which trials are compared, got none")
    # A process that begins in the same folder at the same time would make the same tables.
    with run_lock(path, SECONDS_FOR_SQLITE):
        if not any((path / name).is_file() for name in (SPACE, DATABASE)):
            check_new(path.absolute())
        if (path / SPACE).is_file():
            _check_same(space, read_settings(path / SPACE), path)
        if not storage:
            path.mkdir(parents=True, exist_ok=True)
        data = graph.fingerprint + "".join(hashlib.sha256(x.tobytes()).hexdigest() for x in graph.weights.values())
        study = open_study(space, path, data, storage)
        path.mkdir(parents=True, exist_ok=True)
        with written_beside(path / SPACE) as beside:
            space.write(beside)

    @wrapt.synchronized
    def report(trial: int, event: Epoch | Results | None) -> None:
        on_event(trial, event)

    # An interruption reaches this thread and ends the processes; the other one then notes which trials to retry.
    with ThreadPoolExecutor(1) as pool, Jobs(jobs) as processes:
        try:
            pool.submit(_Search(space, path, study, processes, report).run).result()
        except Exception as error:
            if not (cause := _storage_error(error)):
                raise
            sentence = f"cannot use Optuna's storage in {storage or path / DATABASE}: {_reason(cause)}"
            raise JobiError(f"{without_passwords(sentence)}; the same command continues the search") from None
    results = Results.of(study, space, path)
    results.write()
    if not results.ranked():
        reasons = [trial.user_attrs["reason"] for trial in results.trials if "reason" in trial.user_attrs]
        raise JobiError(f"no trial is complete: {reasons[-1] if reasons else 'all were pruned'}")
    return results


def open_study(space: Space, path: Path, fingerprint: str, storage: str | None = None) -> optuna.Study:
    """Creates or opens Optuna's study, which must be of this space and graph; the points of a grid are enqueued."""
    database = sqlalchemy.URL.create("sqlite", database=str(path / DATABASE)).render_as_string()
    try:
        study = optuna.create_study(
            study_name=path.absolute().name if storage else "search",
            storage=_Storage(
                storage or database,
                engine_kwargs={} if storage else {"connect_args": {"timeout": SECONDS_FOR_SQLITE}},
                heartbeat_interval=HEARTBEAT,
                grace_period=GRACE,
                heartbeat_stale_trial_callback=RETRY,
            ),
            direction="maximize",
            load_if_exists=True,
            pruner=space.prune.pruner(space.config({}).eval_every),
        )
    # A RuntimeError is of a storage of another version of Optuna, a TypeError of the encoding SQL_ASCII.
    except (*STORAGE_ERRORS, ImportError, RuntimeError, TypeError) as error:
        kind = UsageError if storage else DataError
        sentence = f"expected Optuna's storage in {storage or path / DATABASE}: {_reason(error)}"
        raise kind(without_passwords(sentence)) from None
    # Another seed after an interruption, or the first proposals would be repeated.
    seed = space.seed + len(study.get_trials(deepcopy=False))
    samplers = optuna.samplers
    study.sampler = samplers.TPESampler(seed=seed) if space.sampler == "tpe" else samplers.RandomSampler(seed=seed)
    if study.user_attrs.get("graph", fingerprint) != fingerprint:
        raise UsageError(
            f"expected the data that the search in {path} began with, but {space.settings['dataset']} has "
            "changed: choose another folder by --out"
        )
    _check_same(space, study.user_attrs.get("space", space.as_mapping()), path, dataset=False)
    study.set_user_attr("graph", fingerprint)
    study.set_user_attr("space", space.as_mapping())
    if space.sampler == "grid":
        for _, point in zip(range(space.size), space.points(), strict=False):
            study.enqueue_trial(point, skip_if_exists=True)
    return study


class _Storage(optuna.storages.RDBStorage):
    def record_heartbeat(self, trial_id: int) -> None:
        """Records a heartbeat if it can: an error would end Optuna's thread of heartbeats with a traceback."""
        with suppress(*STORAGE_ERRORS):
            super().record_heartbeat(trial_id)


def _storage_error(error: BaseException | None) -> BaseException | None:
    """Returns the error of the storage behind an error, as Optuna raises others while it handles one; None if none."""
    while error and not isinstance(error, STORAGE_ERRORS):
        error = error.__cause__ or error.__context__
    return error


def _reason(error: BaseException) -> str:
    """Returns why the storage cannot be used, on one line."""
    cause = error.__cause__ or error
    if isinstance(cause, ModuleNotFoundError):
        command = ": pip install 'psycopg[binary]'" if cause.name == "psycopg" else ""
        return f"it needs the package {cause.name}{command}"
    encoding = "; a PostgreSQL database needs the encoding UTF8" if isinstance(cause, TypeError) else ""
    return " ".join(str(getattr(cause, "orig", None) or cause).split()) + encoding


@dataclass
class _Search:
    """What the jobs of one process do."""

    space: Space
    path: Path
    study: optuna.Study
    jobs: Jobs
    on_event: OnEvent
    crashes: Counter[int] = field(default_factory=Counter)
    error: JobiError | None = None

    def run(self) -> None:
        """Goes on until all trials of the study have ended, also those of other processes."""
        while not self.jobs.stopped:
            fail_stale_trials(self.study)
            self._recover()
            if (left := self._left()) > 0:
                # A machine that was suspended finds its trials taken over by others.
                with suppress(optuna.exceptions.UpdateFinishedTrialError):
                    self.study.optimize(
                        self._objective,
                        n_trials=left,
                        n_jobs=min(left, self.jobs.count),
                        catch=JobiError,
                        callbacks=[self._after_trial],
                    )
            elif any(trial.state == TrialState.RUNNING for trial in last_tries(self.study).values()):
                time.sleep(1)  # another process trains it, or has gone
            else:
                return
            if self.error:
                raise self.error

    def _left(self) -> int:
        return self.space.size - sum(trial.state != TrialState.WAITING for trial in last_tries(self.study).values())

    def _recover(self) -> None:
        """Retries trials whose process was killed before their first heartbeat, or before it had retried them."""
        before = datetime.now() - timedelta(seconds=GRACE)
        for trial in last_tries(self.study).values():
            # Set when a trial begins to train, long after its first heartbeat; a retry has that of the try before.
            begun = trial.user_attrs.get("begun") == trial.number
            if trial.state == TrialState.RUNNING and not begun and (trial.datetime_start or before) < before:
                with suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):  # another process was faster
                    RETRY(self.study, self.study.tell(trial.number, state=TrialState.FAIL))
            elif trial.state == TrialState.FAIL and trial.user_attrs.get("retry"):
                RETRY(self.study, trial)

    def _objective(self, trial: Trial) -> float:
        params = self.space.suggest(trial)
        for other in self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            if other.params == trial.params:
                trial.set_user_attr("same_as", other.number)
                assert other.value is not None
                return other.value
        frozen = self.study.get_trials(deepcopy=False)[trial.number]
        first, folder = number(frozen), run_folder(self.path, frozen)
        config = self.space.config(params, run_dir=str(folder.path))
        for name, value in {"begun": trial.number, "retry": False, "pruned": False}.items():
            trial.set_user_attr(name, value)
        self.on_event(first, None)
        try:
            log = folder.path.with_suffix(".log")
            self.jobs.run(train_or_resume, config, log=log, on_epoch=partial(self._report, trial, first))
        except JobiError as error:
            self._note_failure(trial, first, error)
            raise
        for name, value in run_summary(folder).items():
            trial.set_user_attr(name, value)
        if trial.user_attrs.get("pruned"):
            raise optuna.TrialPruned
        return trial.user_attrs["metrics"][self.space.metric]

    def _report(self, trial: Trial, first: int, event: Epoch) -> bool:
        """Reports the metric of a ranking; returns whether the trial should end early."""
        self.on_event(first, event)
        value = event.logs.get(f"val_{self.space.metric}")
        if value is None:
            return False
        if event.epoch not in self.study.get_trials(deepcopy=False)[trial.number].intermediate_values:
            trial.report(value, event.epoch)  # a trial that is retried may repeat an epoch
        if event.epoch == event.epochs or not trial.should_prune():  # after its last epoch a trial is complete
            return False
        trial.set_user_attr("pruned", True)
        return True

    def _note_failure(self, trial: Trial, first: int, error: JobiError) -> None:
        """Decides whether a trial that failed is retried, and whether the search ends."""
        fatal = isinstance(error, JobError) and error.fatal
        if fatal:
            self.error = JobiError(f"trial {first} could not go on: {error}; the same command continues it")
        killed = isinstance(error, JobKilledError)
        self.crashes[first] += killed
        if fatal or isinstance(error, JobStoppedError) or (killed and self.crashes[first] <= MOST_CRASHES):
            trial.set_user_attr("retry", True)
        else:
            trial.set_user_attr("reason", str(error))

    @wrapt.synchronized
    def _after_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        if trial.user_attrs.get("retry"):
            RETRY(study, trial)
        results = Results.of(study, self.space, self.path)
        if "same_as" not in trial.user_attrs and not trial.user_attrs.get("retry"):
            results.write()  # after each trial: a search that is killed leaves its table behind
            self.on_event(number(trial), results)
        if results.count("FAIL") >= MOST_FAILURES and not results.ranked():
            reason = trial.user_attrs.get("reason")
            self.error = JobiError(f"{MOST_FAILURES} trials failed and none is complete, the last one since {reason}")
        if self.jobs.stopped or self.error or self._left() <= 0:
            study.stop()


def _check_same(space: Space, before: Mapping[str, Any], path: Path, dataset: bool = True) -> None:
    """Raises a `UsageError` if a search that is continued has another space, but for description and trials.

    Without `dataset`, the name of the data set may differ too, since the content is compared.
    """
    now, then = (x.model_dump(mode="json") for x in (space, Space.parse(before, path.name, str(path))))
    if not dataset:
        now["settings"]["dataset"] = then["settings"]["dataset"]
    for key in ("settings", "search", "sampler", "metric", "seed", "prune"):
        if json.dumps(then[key]) != json.dumps(now[key]):  # in the same order
            old, new = before.get(key, then[key]), space.as_mapping().get(key, now[key])
            raise UsageError(f"expected {key} {old}, as {path} has it, got {new}: choose another folder by --out")
