"""Which runs experiments consist of, where each is kept, and how far it is."""

import hashlib
import json
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jobi_tf.datasets import NAMES, archives, cache, load_graph
from jobi_tf.datasets.catalogue import DATASETS
from jobi_tf.errors import DataError, JobiError, UsageError
from jobi_tf.experiments.reproduce.experiment import Experiment, Row
from jobi_tf.experiments.reproduce.record import Record, read_record
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.run_folder import RunFolder

_NOT_OF_THE_RESULT = {"dataset", "seed", "run_dir", "devices", "logical_devices"}


@dataclass(frozen=True)
class Source:
    """A data set of an experiment.

    Args:
        name: what experiments call it.
        place: what `load_graph` takes: its name, or the path of a folder of triples.
    """

    name: str
    place: str

    @classmethod
    def parse(cls, text: str, known: Iterable[str] = ()) -> "Source":
        """Reads `NAME`, `PATH` or `NAME=PATH`; `known` are further names that need no path to be right.

        Raises:
            UsageError: there is no such data set.
        """
        name, equals, place = text.partition("=")
        if not equals:
            name = place = text
        if place in NAMES or (not equals and place in known):
            return cls(name, place)
        if not Path(place).expanduser().is_dir():
            load_graph(place)  # says what is wrong with it
            raise UsageError(f"expected a folder with train, valid and test for an experiment, got the file {place}")
        return cls(name if equals else Path(place).expanduser().absolute().name, place)

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of triples of the user's."""
        return self.place not in NAMES and Path(self.place).expanduser().is_dir()

    @cached_property
    def folder(self) -> str:
        """The name of the folder with its runs; other triples, other name."""
        if not self.is_local:
            return self.name
        return f"{re.sub(r'[^A-Za-z0-9._-]', '_', self.name)}-{load_graph(self.place).fingerprint[:8]}"

    def obtain(self) -> str | None:
        """Prepares it, downloading it where it has to; returns the reason if it cannot be had."""
        if self.place not in NAMES and not self.is_local:
            return f"it has no public archive: give a folder with its triples by --dataset {self.name}=PATH"
        try:
            load_graph(self.place)
        except (JobiError, OSError) as error:
            return str(error)
        return None

    def at_hand(self) -> bool:
        """Whether it can be had without a network."""
        dataset = DATASETS.get(self.place)
        if dataset is None:
            return self.is_local or self.place in NAMES
        return cache.graph_folder(dataset.name).exists() or archives.find(dataset) is not None


@dataclass(frozen=True)
class PlannedRun:
    """A run of an experiment; equal settings make equal runs, whichever experiment they are of.

    Args:
        path: its folder.
        config: its settings, the seed and the folder among them.
        source: its data set.
        label: what to call it, without its seed.
    """

    path: Path
    config: TrainConfig
    source: Source
    label: str

    @cached_property
    def record(self) -> Record | None:
        """Its results; None while it is not complete. Read once.

        Raises:
            DataError: the folder holds a run with other settings, or a damaged one.
        """
        record = read_record(self.path)
        if record is not None:
            check_settings(RunFolder(self.path), self.config)
        return record

    def refreshed(self) -> "PlannedRun":
        """Returns the same run, to be looked at again."""
        return PlannedRun(self.path, self.config, self.source, self.label)

    @property
    def epochs_done(self) -> int:
        """Epochs that an interrupted training has kept."""
        checkpoints = RunFolder(self.path).checkpoints()
        return int(checkpoints[-1].name.removeprefix("epoch-")) if checkpoints else 0


@dataclass(frozen=True)
class Plan:
    """An experiment with its runs, one a seed for each place."""

    experiment: Experiment
    sources: tuple[Source, ...]
    runs: dict[tuple[str, str, int], tuple[PlannedRun, ...]]

    def at(self, row: Row, source: Source, number: int = 0) -> tuple[PlannedRun, ...]:
        """Returns the runs of a row on a data set, at the point of that number along a sweep."""
        return self.runs.get((row.name, source.name, number), ())

    @cached_property
    def all_runs(self) -> tuple[PlannedRun, ...]:
        """Every run once. The first seed of all rows comes first, so that a table fills evenly."""
        places = list(self.runs.values())
        in_turn = [runs[seed] for seed in range(max(map(len, places), default=0)) for runs in places]
        return tuple({run.path: run for run in in_turn}.values())

    def refreshed(self) -> "Plan":
        """Returns the same plan, to be looked at again."""
        runs = {place: tuple(run.refreshed() for run in seeds) for place, seeds in self.runs.items()}
        return Plan(self.experiment, self.sources, runs)


def make_plan(experiment: Experiment, sources: Sequence[Source], folder: Path, seeds: int, quick: bool) -> Plan:
    """Returns the runs of an experiment on data sets, in `folder`; changes nothing."""
    runs = {}
    for source in sources:
        for row in experiment.rows_on(source.name):
            for number, point in enumerate(experiment.points if row.is_run else ()):
                config = experiment.config(row, source.name, point, quick).replace(dataset=source.place)
                parent = folder / source.folder / name_of(config)
                point_label = f" {experiment.sweep.setting} {point}" if experiment.sweep else ""
                runs[row.name, source.name, number] = tuple(
                    PlannedRun(
                        path := parent / f"seed-{seed}",
                        config.replace(seed=seed, run_dir=str(path)),
                        source,
                        f"{source.name}: {row.name}{point_label}",
                    )
                    for seed in range(seeds)
                )
    return Plan(experiment, tuple(sources), runs)


def name_of(config: TrainConfig) -> str:
    """Returns the name of the folder of runs with these settings: a few of them, and a digest of all."""
    excluded = _NOT_OF_THE_RESULT
    # Only what differs from the defaults counts: a setting that a later version adds changes no name.
    chosen = config.model_dump(exclude=excluded, exclude_defaults=True)
    digest = hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8]
    kind = f"p{config.p:g}" if config.loss == "softmax" else config.loss
    return f"{config.model}-{'joint' if config.joint else 'plain'}-{kind}-{digest}"


def check_settings(folder: RunFolder, config: TrainConfig) -> None:
    """Refuses a run whose settings are others, as after a change of defaults.

    Raises:
        DataError: they are.
    """
    had = folder.read_config()
    for name, wanted in config.model_dump(exclude=_NOT_OF_THE_RESULT).items():
        if wanted is not None and getattr(had, name) != wanted:
            raise DataError(
                f"expected {name} {wanted} in {folder.config}, got {getattr(had, name)}: "
                "move that run away to train it anew"
            )


def estimate(missing: Sequence[PlannedRun], complete: Sequence[PlannedRun]) -> float | None:
    """Returns the seconds that missing runs may take, by complete ones on their data sets; None if it cannot be told.

    The time of a run is taken to be that of the runs with the same settings, else the median on the data set.
    """
    total = 0.0
    for run in missing:
        alike = [x for x in complete if x.path.parent == run.path.parent]
        near = alike or [x for x in complete if x.source == run.source]
        times = [x.record.seconds for x in near if x.record]
        if not times:
            return None
        total += statistics.median(times) * (1 - run.epochs_done / run.config.epochs)
    return total
