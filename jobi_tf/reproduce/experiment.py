"""An experiment: rows of settings on data sets, and the figures of the paper beside which its results are put."""

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from jobi_tf.errors import UsageError
from jobi_tf.evaluation import metrics
from jobi_tf.training.config import MERGEABLE, SettingsFile, StrictModel, TrainConfig

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
# What the command, the machine or other rows decide.
_NOT_OF_THE_ROW = {
    *("dataset", "seed", "run_dir", "soft_labels", "warm_start"),
    *("strategy", "devices", "logical_devices"),
}
_NOT_SET = _NOT_OF_THE_ROW | {"recipe", "split", "columns", "header"}  # the last three are of files that are split
NOT_OF_THE_RESULT = _NOT_OF_THE_ROW | {"tensorboard", "profile"}
_QUICK = {"dim": 32, "epochs": 10}
SOFT_LABELS = "soft-labels.npz"  # stands for the file of a run

Settings = dict[str, Any]
Figures = list[float | None]


class Row(StrictModel):
    """A line of a table or a curve.

    `pool` ranks with the pooled runs of the rows with these names. `rules` adds the rules of the graph to the pool, or
    ranks by rules alone. If such a row also has settings, it is trained with soft labels of the pool instead. `merge`
    is the merged runs of these rows, and `warm_start` the row whose embeddings a training begins with. Rows that are
    named have to stand above, and their runs have the same seed. If a name is repeated n times, its n runs have the
    seeds n · seed to n · seed + n - 1. `datasets` are the data sets of the experiment that the row is for. A row that
    has none of `settings`, `like`, `pool`, `rules` and `merge` only shows figures of the paper.
    """

    name: str = Field(min_length=1)
    like: str | None = None
    datasets: list[str] | None = Field(None, min_length=1)
    settings: Settings | None = None
    pool: list[str] = Field([])
    rules: bool = False
    merge: list[str] = Field([])
    warm_start: str | None = None
    by_dataset: dict[str, Settings] = Field({})
    paper: dict[str, Figures] = Field({})

    @property
    def is_trained(self) -> bool:
        """Whether there is something to train."""
        return self.settings is not None or self.like is not None

    @property
    def is_pooled(self) -> bool:
        """Whether it ranks by a pool, or learns from one."""
        return bool(self.pool) or self.rules

    @property
    def is_run(self) -> bool:
        """Whether there is something to train or to rank."""
        return self.is_trained or self.is_pooled or bool(self.merge)

    @property
    def needed(self) -> dict[str, list[str]]:
        """The names of the rows that it needs, by the field that has them."""
        return {"pool": self.pool, "merge": self.merge, "warm_start": [self.warm_start] if self.warm_start else []}


class Sweep(StrictModel):
    """A setting that varies along the curves."""

    setting: str
    values: list[Any] = Field(min_length=1)


class Focus(StrictModel):
    """The relation and side that the paper's figures are of."""

    relation: str
    side: Literal["head", "tail"]


class Experiment(SettingsFile):
    """What a YAML file has; those of the paper are in `jobi_tf/reproduce/experiments/paper`, others in `beyond`.

    `settings` are fields of `TrainConfig`. Later ones override earlier ones: those of the experiment, the data set, the
    row, the row on the data set, and the sweep. For a row that is `like` another one, the settings of that row replace
    the first two.
    """

    built_in_folder: ClassVar[Path] = Path(__file__).parent / "experiments"

    title: str
    shows: str
    notes: str = ""
    kind: Literal["table", "sweep", "relations"] = "table"
    side: Literal["both", "head", "tail"] = "both"
    metrics: list[str] = Field(["hits@1", "hits@3", "hits@10", "mrr"], min_length=1)
    datasets: list[str] = Field(min_length=1)
    seeds: int = Field(3, ge=1)
    settings: Settings = Field({})
    by_dataset: dict[str, Settings] = Field({})
    rows: list[Row] = Field(min_length=1)
    sweep: Sweep | None = None
    baseline: str | None = None
    focus: dict[str, Focus] = Field({})

    @property
    def points(self) -> list[Any]:
        """Values along a sweep; elsewhere the one value None."""
        return self.sweep.values if self.sweep else [None]

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raises a ValueError if parts contradict each other."""
        for kind, every in (("row", [row.name for row in self.rows]), ("data set", self.datasets)):
            if repeated := [name for name in every if every.count(name) > 1]:
                raise ValueError(f"expected each {kind} once, got {repeated[0]!r} {len(repeated)} times")
        everywhere = [row.name for row in self.rows if row.is_run and not row.datasets]
        known = [x for x in METRICS if self.kind == "relations" or x not in _OF_RELATIONS]
        _check_names("metrics", self.metrics, known)
        _check_names("baseline", [self.baseline] if self.baseline else [], everywhere)
        _check_names("by_dataset", self.by_dataset, self.datasets)
        _check_names("focus", self.focus, self.datasets)
        if (self.sweep is None) == (self.kind == "sweep"):
            raise ValueError(f"expected `sweep` with the kind sweep, and only there; the kind is {self.kind}")
        if self.sweep and len(self.metrics) != 1:
            raise ValueError(f"metrics: expected one metric for a sweep, got {len(self.metrics)}")
        if self.kind == "relations" and self.baseline is None:
            raise ValueError("expected a baseline, the row that the others are compared with")
        for dataset in self.datasets if self.kind == "relations" else ():
            others = (x for x in self.rows if x.is_run and x.name != self.baseline)
            if not any(dataset in (row.datasets or [dataset]) for row in others):
                raise ValueError(f"expected a row beside the baseline on {dataset}")
        if self.sweep and self.sweep.setting in NOT_OF_THE_RESULT:
            raise ValueError(f"sweep: expected a setting that changes results, got {self.sweep.setting!r}")
        if any(self.points.count(x) > 1 for x in self.points):
            raise ValueError(f"sweep: expected each value once, got {self.points}")
        count = len(self.points) if self.sweep else len(self.metrics)
        for row in self.rows:
            place = f"row {row.name!r}"
            _check_names(f"{place}: by_dataset", row.by_dataset, row.datasets or self.datasets)
            if self.sweep and any(self.sweep.setting in x for x in (row.settings or {}, *row.by_dataset.values())):
                raise ValueError(f"{place}: expected no {self.sweep.setting}, which the sweep sets")
            _check_names(f"{place}: paper", row.paper, self.datasets)
            _check_names(f"{place}: datasets", row.datasets or [], self.datasets)
            self._check_needed(row, place)
            for dataset, figures in row.paper.items():
                if len(figures) != count:
                    raise ValueError(f"{place}: paper: {dataset}: expected {count} numbers, got {len(figures)}")
        return self

    def _check_needed(self, row: Row, place: str) -> None:
        """Checks what a row says of other rows and of rules."""
        given = [*(field for field, names in row.needed.items() if names), *["rules"] * row.rules]
        if given and self.kind != "table":
            raise ValueError(f"{place}: {given[0]}: expected the kind table, got {self.kind}")
        if row.merge and (row.is_trained or row.by_dataset or len(given) > 1):
            raise ValueError(f"{place}: merge: expected no settings, like, by_dataset, pool, rules or warm_start")
        for field in ("by_dataset", "warm_start"):
            if getattr(row, field) and not row.is_trained:
                raise ValueError(f"{place}: {field}: expected settings beside it")
        if len(row.merge) == 1:
            raise ValueError(f"{place}: merge: expected two rows or more, got {row.merge[0]!r}")
        if len(row.pool) == 1 and not row.rules and not row.is_trained:
            raise ValueError(f"{place}: pool: expected two rows or more, or one and rules, got {row.pool[0]!r}")
        above = [x for x in self.rows[: self.rows.index(row)] if x.is_trained or x.merge]
        for dataset in row.datasets or self.datasets:
            known = [x.name for x in above if dataset in (x.datasets or self.datasets)]
            expected = f"a row above with a run on {dataset}, {f'out of {known}' if known else 'but there is none'}"
            for field, names in row.needed.items():
                if unknown := [name for name in names if name not in known]:
                    raise ValueError(f"{place}: {field}: expected {expected}, got {unknown[0]!r}")

    @classmethod
    def parse(cls, content: Mapping[str, Any], name: str, where: str) -> Self:
        """Checks the content of a file, and the settings of every run; see `SettingsFile.parse`."""
        experiment = super().parse(content, name, where)
        for row in experiment.rows:
            experiment._check_like(row)
            for dataset in (row.datasets or experiment.datasets) if row.is_trained else ():
                for point in experiment.points:
                    experiment.config(row, dataset, point)
            for dataset in (row.datasets or experiment.datasets) if row.merge or row.warm_start else ():
                experiment._model(row, dataset)
        return experiment

    def _model(self, row: Row, dataset: str, quick: bool = False) -> tuple[str, bool, int]:
        """Returns the scorer of a row's run, whether relations are reciprocal, and the embedding size.

        Runs to merge must agree in the first two, a warm start in all three.
        """
        where = f"{self._where}: row {row.name!r}"
        if row.merge:
            models, reciprocal, dims = zip(*(self._model(self.row(x), dataset, quick) for x in row.merge), strict=True)
            for name, values in (("model", models), ("reciprocal", reciprocal)):
                if different := [x for x in values if x != values[0]]:
                    raise UsageError(f"{where}: merge: expected one {name}, got {values[0]} and {different[0]}")
            if models[0] not in MERGEABLE:
                raise UsageError(f"{where}: merge: expected runs of {', '.join(MERGEABLE)}, got {models[0]}")
            return models[0], reciprocal[0], sum(dims)
        config = self.config(row, dataset, quick=quick)
        found = config.model, config.reciprocal, config.dim
        if row.warm_start:
            before = self._model(self.row(row.warm_start), dataset, quick)
            for name, ours, theirs in zip(("model", "reciprocal", "dim"), found, before, strict=True):
                if ours != theirs:
                    raise UsageError(f"{where}: warm_start: expected {name} {theirs} of {row.warm_start!r}, got {ours}")
        return found

    def _check_like(self, row: Row) -> None:
        if row.like is None:
            return
        name = row.like.partition("/")[0]
        known = [x for x in self.built_in() if x != self.name]
        if name in known:
            known = [f"{name}/{x.name}" for x in _built_in(name).rows if x.is_trained]
        if row.like not in known:
            expected = f"expected EXPERIMENT/ROW out of {', '.join(known)}"
            raise UsageError(f"{self._where}: row {row.name!r}: like: {expected}, got {row.like!r}")

    def config(self, row: Row, dataset: str, point: Any = None, quick: bool = False) -> TrainConfig:
        """Returns the settings of a run, without its seed and folder.

        Settings of the experiment that have no effect in this row are left out; one of the row raises a
        `UsageError`. With `quick` the model is small and has few epochs.
        """
        sweep = {self.sweep.setting: point} if self.sweep else {}
        own = (row.settings or {}) | row.by_dataset.get(dataset, {}) | sweep
        where = f"{self._where}: row {row.name!r}"
        settings = self.merged(row, dataset) | sweep
        if wrong := settings.keys() & _NOT_SET:
            raise UsageError(f"{where}: expected no setting {min(wrong)!r}: the command decides it, or the data set")
        if row.is_pooled:
            own["soft_labels"] = settings["soft_labels"] = SOFT_LABELS
        if row.warm_start:
            own["warm_start"] = settings["warm_start"] = row.warm_start  # stands for the folder of its run
        config = TrainConfig.create({"dataset": dataset} | settings, where)
        for name, reason in config.without_effect().items():
            if name in own:
                raise UsageError(f"{where}: {name} {own[name]} has no effect: {reason}")
        if quick:
            config = config.replace(**{name: min(most, getattr(config, name)) for name, most in _QUICK.items()})
            if row.warm_start:  # with as many numbers as the smaller models that it starts from
                config = config.replace(dim=self._model(self.row(row.warm_start), dataset, quick)[2])
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
            before = _built_in(other).merged(_built_in(other).row(name), dataset)
        else:
            before = self.settings | self.by_dataset.get(dataset, {})
        return before | (row.settings or {}) | row.by_dataset.get(dataset, {})

    def rows_on(self, dataset: str) -> list[Row]:
        """Returns the rows of a data set, be it the experiment's or another, that have something to show there."""
        known = [x for x in self.rows if x.is_run or dataset in x.paper]
        return [x for x in known if not x.datasets or dataset in x.datasets or dataset not in self.datasets]

    def only(self, names: Collection[str]) -> Self:
        """Returns it with the rows of these names, those that they need, and the baseline."""
        known = [row.name for row in self.rows]
        if unknown := [name for name in names if name not in known]:
            raise UsageError(f"{self._where}: expected rows out of {'; '.join(known)}, got {unknown[0]!r}")
        kept = {*names, self.baseline}
        for row in reversed(self.rows):  # the rows that a row needs stand above it
            if row.name in kept:
                kept.update(*row.needed.values())
        rows = [row.model_dump(exclude_unset=True) for row in self.rows if row.name in kept]
        return self.parse(self.model_dump(exclude_unset=True) | {"rows": rows}, self.name, self._where)

    def row(self, name: str) -> Row:
        """Returns the row of that name."""
        return next(row for row in self.rows if row.name == name)

    def paper(self, row: Row, dataset: str) -> Figures:
        """Returns the paper's figures of a row: one a metric, or in a sweep one a point."""
        return row.paper.get(dataset) or [None] * len(self.points if self.sweep else self.metrics)


def _check_names(place: str, names: Iterable[str], known: Collection[str]) -> None:
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{place}: expected one of {', '.join(known)}, got {unknown[0]!r}")


@cache
def _built_in(name: str) -> Experiment:
    return Experiment.read(name)
