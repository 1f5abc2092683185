"""An experiment: rows of settings on data sets, and the figures of the paper beside which its results are put."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from jobi_tf.errors import UsageError, validation_message
from jobi_tf.evaluation import metrics
from jobi_tf.training.config import TrainConfig, read_settings

FOLDER = Path(__file__).parent / "experiments"
METRICS = {
    **metrics.METRICS,
    "epoch_seconds": "s an epoch",
    "step_ms": "ms a step",
    "epochs": "epochs",
    "train_hours": "hours",
    "implausible": "implausible",
    "wrong_implausible": "implausible of wrong",
}
_OF_RELATIONS = ("implausible", "wrong_implausible")
# What the command line decides, and what belongs to a file that is still to be split.
_NOT_SET = ("dataset", "seed", "run_dir", "split", "columns", "header", "devices", "logical_devices")
_QUICK = {"dim": 32, "epochs": 10}

Settings = dict[str, Any]
Figures = list[float | None]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Row(_Part):
    """A line of a table or a curve.

    A row with neither `settings` nor `like` is not run: it only shows figures of the paper. One with `datasets` is left
    out on the experiment's other data sets.
    """

    name: str = Field(min_length=1)
    like: str | None = None
    datasets: list[str] | None = None
    settings: Settings | None = None
    by_dataset: dict[str, Settings] = {}
    paper: dict[str, Figures] = {}

    @property
    def is_run(self) -> bool:
        """Whether there is something to train."""
        return self.settings is not None or self.like is not None


class Sweep(_Part):
    """A setting that varies along the curves."""

    setting: str
    values: list[Any] = Field(min_length=1)


class Focus(_Part):
    """The relation and side that the paper's figures are of."""

    relation: str
    side: Literal["head", "tail"]


class Experiment(_Part):
    """What a YAML file has; those of the paper are in `jobi_tf/reproduce/experiments/paper`, others in `beyond`.

    `settings` are fields of `TrainConfig`. Of several that hold for a run the last one wins: those of the experiment,
    those of the data set (instead of both, for a row that is `like` another, those of that row), of the row, of the row
    on the data set, the sweep.
    """

    title: str
    shows: str
    notes: str = ""
    kind: Literal["table", "sweep", "relations"] = "table"
    side: Literal["both", "head", "tail"] = "both"
    metrics: list[str] = ["hits@1", "hits@3", "hits@10", "mrr"]
    datasets: list[str] = Field(min_length=1)
    seeds: int = Field(3, ge=1)
    settings: Settings = {}
    by_dataset: dict[str, Settings] = {}
    rows: list[Row] = Field(min_length=1)
    sweep: Sweep | None = None
    baseline: str | None = None
    focus: dict[str, Focus] = {}
    _name: str = PrivateAttr("")
    _where: str = PrivateAttr("")

    @property
    def name(self) -> str:
        """The name of its file, and of those that it writes."""
        return self._name

    @property
    def points(self) -> list[Any]:
        """Values along a sweep; elsewhere the one value None."""
        return self.sweep.values if self.sweep else [None]

    @model_validator(mode="after")
    def _consistent(self) -> "Experiment":
        for kind, names in (("row", [row.name for row in self.rows]), ("data set", self.datasets)):
            if repeated := [name for name in names if names.count(name) > 1]:
                raise ValueError(f"expected each {kind} once, got {repeated[0]!r} {len(repeated)} times")
        known = [name for name in METRICS if self.kind == "relations" or name not in _OF_RELATIONS]
        _check_known("metrics", self.metrics, known)
        for place, datasets in self._places().items():
            _check_known(place, datasets, self.datasets)
        everywhere = [row.name for row in self.rows if row.is_run and not row.datasets]
        _check_known("baseline", [self.baseline] if self.baseline else [], everywhere)
        if (self.sweep is None) == (self.kind == "sweep"):
            raise ValueError(f"expected `sweep` with the kind sweep, and only there; the kind is {self.kind}")
        if self.sweep and len(self.metrics) != 1:
            raise ValueError(f"metrics: expected one metric for a sweep, got {len(self.metrics)}")
        if self.kind == "relations" and self.baseline is None:
            raise ValueError("expected a baseline, the row that the others are compared with")
        count = len(self.points) if self.sweep else len(self.metrics)
        for row in self.rows:
            for dataset, figures in row.paper.items():
                if len(figures) != count:
                    place = f"row {row.name!r}: paper: {dataset}"
                    raise ValueError(f"{place}: expected {count} numbers, got {len(figures)}")
        return self

    def _places(self) -> dict[str, Iterable[str]]:
        """Returns where data sets are named, and which."""
        places: dict[str, Iterable[str]] = {"by_dataset": self.by_dataset, "focus": self.focus}
        for row in self.rows:
            for key, datasets in (("by_dataset", row.by_dataset), ("paper", row.paper), ("datasets", row.datasets)):
                places[f"row {row.name!r}: {key}"] = datasets or ()
        return places

    def config(self, row: Row, dataset: str, point: Any = None, quick: bool = False) -> TrainConfig:
        """Returns the settings of a run, without its seed and folder.

        Settings of the experiment that have no effect in this row are left out.

        Args:
            row: one of the rows.
            dataset: name of the data set.
            point: value along a sweep.
            quick: a small model and few epochs.

        Raises:
            UsageError: a setting is unknown or out of range, settings contradict each other, or one of the row has no
                effect.
        """
        sweep = {self.sweep.setting: point} if self.sweep else {}
        own = (row.settings or {}) | row.by_dataset.get(dataset, {}) | sweep
        where = f"{self._where}: row {row.name!r}"
        config = TrainConfig.create({"dataset": dataset} | self.merged(row, dataset) | sweep, where)
        if useless := [name for name in config.without_effect() if name in own]:
            reason = config.without_effect()[useless[0]]
            raise UsageError(f"{where}: {useless[0]} {own[useless[0]]} has no effect: {reason}")
        if quick:
            config = config.replace(**{name: min(most, getattr(config, name)) for name, most in _QUICK.items()})
        config = config.effective()
        try:
            config.check()
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        return config

    def merged(self, row: Row, dataset: str) -> Settings:
        """Returns the settings that a row has on a data set, without the sweep."""
        if row.like:
            other, name = row.like.split("/", 1)
            experiment = read_experiment(other)
            before = experiment.merged(experiment.row(name), dataset)
        else:
            before = self.settings | self.by_dataset.get(dataset, {})
        return before | (row.settings or {}) | row.by_dataset.get(dataset, {})

    def rows_on(self, dataset: str) -> list[Row]:
        """Returns the rows of a data set, be it the experiment's or another, that have something to show there."""
        known = [x for x in self.rows if x.is_run or dataset in x.paper]
        return [x for x in known if not x.datasets or dataset in x.datasets or dataset not in self.datasets]

    def row(self, name: str) -> Row:
        """Returns the row of that name."""
        return next(row for row in self.rows if row.name == name)

    def paper(self, row: Row, dataset: str) -> Figures:
        """Returns the paper's figures of a row: one a metric, or in a sweep one a point."""
        return row.paper.get(dataset) or [None] * len(self.points if self.sweep else self.metrics)


def built_in() -> dict[str, Path]:
    """Returns the experiments that come with the library, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*/*.yaml"), key=lambda path: path.stem)}


def read_experiment(source: str | Path) -> Experiment:
    """Reads a YAML file, or the experiment that comes with the library, whose name wins over a path.

    Raises:
        UsageError: there is none, or something in it cannot work; the message has the file, the place and the reason.
    """
    if str(source) in built_in():
        return _read_built_in(str(source))
    path = Path(source)
    if not path.is_file():
        raise UsageError(f"expected a YAML file or one of {', '.join(built_in())}, got {str(source)!r}")
    return parse_experiment(read_settings(path), path.stem, str(source))


@cache
def _read_built_in(name: str) -> Experiment:
    return parse_experiment(read_settings(built_in()[name]), name, name)


def parse_experiment(mapping: Mapping[str, Any], name: str, where: str) -> Experiment:
    """Checks the content of a YAML file; `where` names it in errors.

    Raises:
        UsageError: something in it is invalid.
    """
    try:
        experiment = Experiment(**{str(key): value for key, value in mapping.items()})
    except ValidationError as error:
        raise UsageError(f"{where}: {validation_message(error)}") from None
    experiment._name, experiment._where = name, where
    for row in experiment.rows:
        _check_settings(experiment, row, where)
    return experiment


def _check_known(place: str, chosen: Iterable[str], known: list[str]) -> None:
    for name in chosen:
        if name not in known:
            raise ValueError(f"{place}: expected one of {', '.join(known)}, got {name!r}")


def _check_settings(experiment: Experiment, row: Row, where: str) -> None:
    if row.like is not None:
        name, _, other = row.like.partition("/")
        if name not in built_in() or name == experiment.name:
            known = ", ".join(x for x in built_in() if x != experiment.name)
            raise UsageError(f"{where}: row {row.name!r}: like: expected EXPERIMENT/ROW of {known}, got {row.like!r}")
        rows = [x.name for x in read_experiment(name).rows if x.is_run]
        if other not in rows:
            raise UsageError(f"{where}: row {row.name!r}: like: expected {name}/ and one of {rows}, got {row.like!r}")
    parts = [experiment.settings, *experiment.by_dataset.values(), row.settings or {}, *row.by_dataset.values()]
    names = [name for part in parts for name in part] + ([experiment.sweep.setting] if experiment.sweep else [])
    for setting in names:
        if setting in _NOT_SET:
            raise UsageError(f"{where}: expected no setting {setting!r}: the command decides it, or the data set")
    for dataset in (row.datasets or experiment.datasets) if row.is_run else ():
        for point in experiment.points:
            experiment.config(row, dataset, point)
