"""The runs of experiments: which there are, where each is kept, and how they are trained."""

import hashlib
import json
import re
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wrapt

from jobi_tf.datasets import NAMES, load_graph
from jobi_tf.errors import DataError, JobiError, UsageError
from jobi_tf.files import run_lock
from jobi_tf.jobs import SECONDS_FOR_THE_LOCK, Epoch, Jobs, JobStoppedError, train_or_resume
from jobi_tf.report.runs import store_evaluation
from jobi_tf.reproduce.experiment import NOT_OF_THE_RESULT, SOFT_LABELS, Experiment, Row
from jobi_tf.reproduce.record import Record, measure, read_record, results, write_record
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.run_folder import RunFolder

if TYPE_CHECKING:
    import keras

    from jobi_tf.evaluation.answers import ByName

MINUTES_OF_RULES = 10
QUICK = "-quick"  # ends the names of folders and files of quick runs


@dataclass(frozen=True)
class Source:
    """A data set of an experiment."""

    name: str  # what experiments call it
    place: str  # what `load_graph` takes: its name, or the path of a folder of triples

    @classmethod
    def parse(cls, text: str, known: Iterable[str] = ()) -> "Source":
        """Reads `NAME`, `PATH` or `NAME=PATH`; `known` are further names, of data sets that may be missing."""
        name, equals, place = text.partition("=")
        place = place if equals else name
        if not name or not place:
            raise UsageError(f"expected NAME, PATH or NAME=PATH, got {text!r}")
        if place in NAMES or (not equals and place in known):
            return cls(name, place)
        if not Path(place).expanduser().is_dir():
            if not Path(place).expanduser().is_file():
                load_graph(place)  # whose error lists the names
            raise UsageError(f"expected a folder with train, valid and test for an experiment, got {place}")
        return cls(name if equals else Path(place).expanduser().absolute().name, place)

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of triples of the user's."""
        return self.place not in NAMES and Path(self.place).expanduser().is_dir()

    @cached_property
    def folder(self) -> str:
        """The name of the folder with its runs, which differs for other triples."""
        if not self.is_local:
            return self.name
        return f"{re.sub(r'[^A-Za-z0-9._-]', '_', self.name)}-{load_graph(self.place).fingerprint[:8]}"

    def obtain(self) -> str | None:
        """Prepares it, with a download if necessary; returns the reason if it is not available."""
        if self.place not in NAMES and not self.is_local:
            return f"it has no public archive: give a folder with its triples by --dataset {self.name}=PATH"
        try:
            load_graph(self.place)
        except (JobiError, OSError) as error:
            return str(error)
        return None


@dataclass(frozen=True)
class PlannedRun:
    """A run of an experiment; equal settings make equal runs, whichever experiment they are of."""

    source: Source
    row: str
    point: Any  # along a sweep, else None
    label: str  # without the seed
    config: TrainConfig  # with the seed and the folder
    pool: tuple[str, ...] = ()  # folders of the runs that it pools, or learns from
    merge: tuple[str, ...] = ()  # folders of the runs that it merges
    rules: bool = False  # whether it ranks by the rules of the graph too, or alone, or learns from them
    level: int = 0  # length of the longest chain of runs that must be complete first
    _records: list[Record] = field(default_factory=list, compare=False, repr=False)

    @property
    def is_trained(self) -> bool:
        """Whether it is trained, not only ranked."""
        return self.config.soft_labels is not None or not (self.pool or self.merge or self.rules)

    @property
    def path(self) -> Path:
        """Its folder."""
        return Path(self.config.run_dir or "")

    @property
    def record(self) -> Record | None:
        """Its results; None while it is not complete. Other settings in the folder raise a `DataError`."""
        if not self._records and (record := read_record(self.path)) is not None:
            if self.is_trained:
                check_settings(RunFolder(self.path), self.config)
            self._records.append(record)
        return self._records[0] if self._records else None

    @property
    def epochs_done(self) -> int:
        """Epochs of the last checkpoint of an interrupted training."""
        checkpoints = RunFolder(self.path).checkpoints()
        return int(checkpoints[-1].name.split("-")[1]) if checkpoints else 0


@dataclass(frozen=True)
class Plan:
    """An experiment and its runs: those that others need come first, and among them those with smaller seeds."""

    experiment: Experiment
    sources: Sequence[Source]
    runs: Sequence[PlannedRun]
    quick: bool

    @property
    def name(self) -> str:
        """The name of its files."""
        return self.experiment.name + (QUICK if self.quick else "")

    @cached_property
    def distinct(self) -> list[PlannedRun]:
        """Every run once: rows may have equal settings."""
        return [*{run.path: run for run in self.runs}.values()]

    @property
    def complete(self) -> list[PlannedRun]:
        """Those that are complete."""
        return [run for run in self.distinct if run.record is not None]

    def at(self, row: Row, source: Source, point: Any = None) -> list[PlannedRun]:
        """Returns the runs of a row on a data set, at a point of a sweep: one for each seed, also for those that only
        other rows need.
        """
        key = (row.name, source, point)
        return [run for run in self.runs if (run.row, run.source, run.point) == key]

    def records(self, row: Row, source: Source, point: Any = None) -> list[Record]:
        """Returns the results of those that are complete."""
        return [run.record for run in self.at(row, source, point) if run.record is not None]

    def without(self, names: Iterable[str]) -> "Plan":
        """Returns it without some data sets."""
        sources = [x for x in self.sources if x.name not in names]
        return replace(self, sources=sources, runs=[x for x in self.runs if x.source in sources])


def make_plan(
    experiment: Experiment, sources: Sequence[Source], folder: Path, seeds: int | None = None, quick: bool = False
) -> Plan:
    """Returns the runs of an experiment on data sets below a folder; changes nothing.

    Quick runs are small models, trained shortly, with one seed unless `seeds` is given, in a folder beside it.
    """
    if quick:
        folder = folder if folder.name else folder.absolute()  # as for Path(".")
        folder = folder.with_name(folder.name + QUICK)

    sources = [x for x in sources if experiment.rows_on(x.name)]
    runs: dict[tuple[Path, str, str], PlannedRun] = {}

    def planned(source: Source, row: Row, point: Any, seed: int) -> PlannedRun:
        label, names = f"{source.name}: {row.name}", list[str]()
        needed = {
            kind: [
                planned(source, experiment.row(x), None, seed * rows.count(x) + rows[:i].count(x))
                for i, x in enumerate(rows)
            ]
            for kind, rows in row.needed.items()
        }
        if row.is_trained:
            config = experiment.config(row, source.name, point, quick)
            names.append(name_of(config))
            label += f" {experiment.sweep.setting} {point}" if experiment.sweep else ""
        else:
            config = TrainConfig.create({"dataset": source.place})
        for kind, members in needed.items():
            if members:
                of = sorted(run.path.parent.name for run in members)
                content = json.dumps([of, row.rules] if kind == "pool" else of)
                names.append(f"{kind.replace('_', '-')}-{hashlib.sha256(content.encode()).hexdigest()[:8]}")
        if row.rules and not row.pool:
            names.append("rules")
        path = folder / source.folder / "-".join(names) / f"seed-{seed}"
        config = config.replace(dataset=source.place, seed=seed, run_dir=str(path))
        if config.soft_labels is not None:
            config = config.replace(soft_labels=f"{path}-{SOFT_LABELS}")
        if row.warm_start:
            config = config.replace(warm_start=str(needed["warm_start"][0].path))
        pool, merge = (tuple(str(run.path) for run in needed[kind]) for kind in ("pool", "merge"))
        level = 1 + max((run.level for members in needed.values() for run in members), default=-1)
        run = PlannedRun(source, row.name, point, label, config, pool, merge, row.rules, level)
        return runs.setdefault((path, row.name, repr(point)), run)

    for seed in range(seeds or (1 if quick else experiment.seeds)):
        for source in sources:
            for row in experiment.rows_on(source.name):
                if row.is_trained or row.pool or row.merge or (row.rules and seed == 0):  # rules alone have no seed
                    for point in experiment.points:
                        planned(source, row, point, seed)
    return Plan(experiment, sources, sorted(runs.values(), key=lambda run: (run.level, run.config.seed)), quick)


def name_of(config: TrainConfig) -> str:
    """Returns the name of the folder of runs with these settings: a few of them, and a digest of all but defaults."""
    chosen = config.model_dump(exclude=NOT_OF_THE_RESULT, exclude_defaults=True)  # a new setting changes no name
    digest = hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8]
    kind = f"p{config.p:g}" if config.loss == "softmax" else config.loss
    return f"{config.model}-{'joint' if config.joint else 'plain'}-{kind}-{digest}"


def check_settings(folder: RunFolder, config: TrainConfig) -> None:
    """Raises a `DataError` if a run has other settings, as it may after a change of defaults."""
    found = folder.read_config()
    for name, wanted in config.model_dump(exclude=NOT_OF_THE_RESULT).items():
        if wanted is not None and getattr(found, name) != wanted:
            raise DataError(
                f"expected {name} {wanted} in {folder.config}, got {getattr(found, name)}: "
                "move that run away to train it again"
            )


def estimate(missing: Sequence[PlannedRun], complete: Sequence[PlannedRun]) -> float | None:
    """Returns the seconds that missing runs may take; None if that is unknown, as no run on a data set is complete.

    The time of a run is estimated by the median of the runs with the same settings, else of those on the data set.
    Rows that are only merged or pooled count once another seed of them is complete: they take little beside a training.
    """
    total = 0.0
    for run in missing:
        near = [x for x in complete if x.path.parent == run.path.parent]
        if not (near or run.is_trained):
            continue
        near = near or [x for x in complete if x.source == run.source]
        if not near:
            return None
        seconds = statistics.median(x.record.seconds for x in near if x.record)
        total += seconds * (1 - run.epochs_done / run.config.epochs)
    return total or None


OnEvent = Callable[[PlannedRun, Epoch | str | None], None]


def train_runs(runs: Sequence[PlannedRun], jobs: int, on_event: OnEvent) -> dict[PlannedRun, str]:
    """Trains and ranks runs, `jobs` at a time, and returns those that failed, with the reason.

    An interruption ends the processes; checkpoints stay. `on_event` is called with a run and None when it begins, with
    each of its epochs, and at its end with the reason of its failure, or "" if it is complete, by one thread at a time.
    """
    failed: dict[PlannedRun, str] = {}

    @wrapt.synchronized
    def report(run: PlannedRun, event: Epoch | str | None) -> None:
        on_event(run, event)

    def train(run: PlannedRun) -> None:
        if processes.stopped:
            return
        report(run, None)
        log = run.path.with_name(f"{run.path.name}.log")
        try:
            processes.run(make_run, run, jobs, log=log, on_epoch=partial(report, run))
        except JobStoppedError:
            return
        except JobiError as error:
            failed[run] = str(error)
        report(run, failed.get(run, ""))

    with ThreadPoolExecutor(jobs) as pool, Jobs(jobs) as processes:
        for level in sorted({run.level for run in runs}):  # what a run needs is complete by then
            for future in [pool.submit(train, run) for run in runs if run.level == level]:
                future.result()
    return failed


def make_run(run: PlannedRun, jobs: int, callback: "keras.callbacks.Callback") -> None:
    """Trains, merges or pools a run into its folder, and records it; a `DataError` if it needs one that is missing."""
    folder, config = RunFolder(run.path), run.config
    with run_lock(folder.path, SECONDS_FOR_THE_LOCK):
        if read_record(folder.path) is not None:
            return  # another process was faster
        if not run.is_trained:
            write_record(folder.path, _rank(run, jobs))
            return
        if config.soft_labels is not None and not Path(config.soft_labels).exists():
            from jobi_tf.evaluation.soft_labels import soft_labels

            soft_labels(_pool(run)).save(config.soft_labels)
        if folder.checkpoints():
            check_settings(folder, config)
        elif config.warm_start is not None:
            _check_complete([config.warm_start])
        write_record(folder.path, measure(train_or_resume(config, callback), jobs))
        # Larger than the model, and of use only to training.
        shutil.rmtree(folder.path / "checkpoints", ignore_errors=True)
        if config.soft_labels is not None:
            Path(config.soft_labels).unlink(missing_ok=True)


def _check_complete(folders: Iterable[str]) -> None:
    for folder in folders:
        if read_record(Path(folder)) is None:
            raise DataError(f"expected the complete run {folder}, which this one needs, got none")


def _pool(run: PlannedRun) -> "ByName":
    """Returns the pool of complete runs and rules, or one of them alone."""
    from jobi_tf.evaluation.rules import RuleModel
    from jobi_tf.training.pool import Pool
    from jobi_tf.training.run import load_run

    _check_complete(run.pool)
    mined = RuleModel(load_graph(run.config.dataset), minutes=MINUTES_OF_RULES) if run.rules else None
    if len(run.pool) + run.rules > 1:
        return Pool(run.pool, mined)
    return mined or load_run(run.pool[0])


def _rank(run: PlannedRun, jobs: int) -> dict[str, Any]:
    """Ranks the test split by merged runs, by the pool of complete runs and rules, or by rules alone."""
    from jobi_tf.evaluation.evaluate import evaluate
    from jobi_tf.training.merge import merge_runs

    start = time.monotonic()
    if run.merge:
        _check_complete(run.merge)
        shutil.rmtree(run.path, ignore_errors=True)  # it has no record, so it was not ranked
        model: ByName = merge_runs(run.merge, run.path)
        settings: dict[str, Any] = {"merge": [Path(path).parent.name for path in run.merge]}
    else:
        run.path.mkdir(parents=True, exist_ok=True)
        model = _pool(run)
        settings = {"pool": [Path(path).parent.name for path in run.pool], "rules": run.rules}
    seconds = time.monotonic() - start
    evaluation = evaluate(model)
    if run.merge:
        store_evaluation(run.path, "test", evaluation, evaluation.to_dict())
    return results(model.graph, evaluation, settings, seconds, jobs)
