"""An experiment: rows of settings on data sets, and the figures of the paper beside which its results are put."""

from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from jobi_tf.errors import UsageError
from jobi_tf.evaluation import metrics
from jobi_tf.training.config import TrainConfig, read_settings

FOLDERS = tuple(Path(__file__).parents[1] / name for name in ("paper", "beyond"))
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
    """What a YAML file holds; `jobi_tf/experiments/paper` has those of the paper, `beyond` others.

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

    @cached_property
    def points(self) -> list[Any]:
        """Values along a sweep; elsewhere the one value None."""
        return self.sweep.values if self.sweep else [None]

    def config(self, row: Row, dataset: str, point: Any = None, quick: bool = False) -> TrainConfig:
        """Returns the settings of a run, without its seed and folder; settings without effect have their defaults.

        Args:
            row: one of the rows.
            dataset: name of the data set.
            point: value along a sweep.
            quick: a small model, trained shortly.

        Raises:
            UsageError: a setting is unknown, out of range or without effect.
        """
        settings = self.merged(row, dataset) | ({self.sweep.setting: point} if self.sweep else {})
        where = f"{self._where}: row {row.name!r}"
        config = TrainConfig.create({"dataset": dataset} | settings, where)
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
    found = [path for folder in FOLDERS for path in folder.glob("*.yaml")]
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


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
    """Checks what a YAML file holds; `where` tells in messages where it came from.

    Raises:
        UsageError: something in it cannot work.
    """
    try:
        experiment = Experiment(**{str(key): value for key, value in mapping.items()})
    except ValidationError as error:
        raise UsageError(f"{where}: {_explain(error)}") from None
    experiment._name, experiment._where = name, where
    _check_names(experiment, where)
    _check_figures(experiment, where)
    for row in experiment.rows:
        _check_settings(experiment, row, where)
    return experiment


def _check_names(experiment: Experiment, where: str) -> None:
    rows = [row.name for row in experiment.rows]
    for kind, names in (("row", rows), ("data set", experiment.datasets)):
        if repeated := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"{where}: expected each {kind} once, got {repeated[0]!r} {len(repeated)} times")
    for metric in experiment.metrics:
        if metric not in METRICS or (metric in _OF_RELATIONS) > (experiment.kind == "relations"):
            known = ", ".join(x for x in METRICS if x not in _OF_RELATIONS or experiment.kind == "relations")
            raise UsageError(f"{where}: metrics: expected some of {known}, got {metric!r}")
    places: dict[str, Iterable[str]] = {"by_dataset": experiment.by_dataset, "focus": experiment.focus}
    places |= {f"row {row.name!r}: by_dataset": row.by_dataset for row in experiment.rows}
    places |= {f"row {row.name!r}: paper": row.paper for row in experiment.rows}
    places |= {f"row {row.name!r}: datasets": row.datasets or () for row in experiment.rows}
    for place, chosen in places.items():
        for dataset in chosen:
            if dataset not in experiment.datasets:
                known = ", ".join(experiment.datasets)
                raise UsageError(f"{where}: {place}: expected one of the data sets {known}, got {dataset!r}")
    everywhere = [row.name for row in experiment.rows if row.is_run and not row.datasets]
    if experiment.baseline is not None and experiment.baseline not in everywhere:
        known = ", ".join(everywhere)
        raise UsageError(
            f"{where}: baseline: expected a row that is run on all data sets, {known}, got {experiment.baseline!r}"
        )


def _check_figures(experiment: Experiment, where: str) -> None:
    if (experiment.sweep is None) == (experiment.kind == "sweep"):
        raise UsageError(f"{where}: expected `sweep` where kind is sweep, and only there; kind is {experiment.kind}")
    if experiment.sweep and len(experiment.metrics) != 1:
        raise UsageError(f"{where}: metrics: expected one metric for a sweep, got {len(experiment.metrics)}")
    if experiment.kind == "relations" and experiment.baseline is None:
        raise UsageError(f"{where}: expected a `baseline`, the row that the others are compared with")
    count, of = len(experiment.metrics), "metric"
    if experiment.sweep:
        count, of = len(experiment.sweep.values), "value of the sweep"
    for row in experiment.rows:
        for dataset, figures in row.paper.items():
            if len(figures) != count:
                place = f"{where}: row {row.name!r}: paper: {dataset}"
                raise UsageError(f"{place}: expected {count} numbers, one for each {of}, got {len(figures)}")


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


def _explain(error: ValidationError) -> str:
    """Returns the first problem in one sentence."""
    problem = error.errors()[0]
    *above, last = problem["loc"]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in above).removeprefix(".")
    if problem["type"] == "extra_forbidden":
        known = Experiment.model_fields
        for key, part in (("rows", Row), ("sweep", Sweep), ("focus", Focus)):
            known = part.model_fields if above[:1] == [key] else known
        return f"{place + ': ' if place else ''}expected one of the keys {', '.join(known)}, got {last!r}"
    if problem["type"] == "missing":
        return f"{place + ': ' if place else ''}expected the key {last!r}, which is missing"
    message = problem["msg"].removeprefix("Input should be ")
    name = f"[{last}]" if isinstance(last, int) else f".{last}"
    return f"expected {(place + name).removeprefix('.')} to be {message}, got {problem['input']!r}"
