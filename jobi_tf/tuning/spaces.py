"""Search spaces: settings that are fixed, settings that vary, and how."""

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import yaml
from pydantic import Field, field_validator, model_validator

from jobi_tf.errors import UsageError, needs
from jobi_tf.training.config import RECORDED, SettingsFile, StrictModel, TrainConfig, unknown_setting

with needs("searching needs Optuna", "search"):
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

# Ranges whose end is no multiple of the step are as good.
warnings.filterwarnings("ignore", "The distribution is specified by", UserWarning)

DEFAULT_TRIALS = 50
# Results on different data cannot be compared, `metric` of the space sets the monitor, and the rest depends on the
# machine or is of runs that are not trained here.
NOT_SEARCHED = (
    *("recipe", "minutes", "dataset", "split", "columns", "header", "weights", "monitor", "eval_every"),
    *("strategy", "devices", "logical_devices", "run_dir", "tensorboard", "profile", *RECORDED),
)
_DIGITS = 12  # makes 0.3 of 0.1 + 2 · 0.1
_COMBINATIONS = 10_000  # that are checked before a search begins


class Parameter(StrictModel):
    """A setting that varies: over `choices`, or from `low` to `high`, with a `step` or by factors (`log`).

    Where a setting named in `when` has another value than those listed there, this one keeps its value in `settings`.
    """

    choices: list[Any] | None = Field(None, min_length=1)
    low: float | None = None
    high: float | None = None
    step: float | None = Field(None, gt=0)
    log: bool = False
    when: dict[str, list[Any]] = Field({})

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        """Makes `choices` of a list, and lists of single values in `when`."""
        if isinstance(value, list):
            return {"choices": value}
        if isinstance(value, dict) and isinstance(when := value.get("when"), dict):
            return value | {"when": {name: x if isinstance(x, list) else [x] for name, x in when.items()}}
        return value

    @model_validator(mode="after")
    def _choices_or_range(self) -> Self:
        if self.choices is None:
            if self.low is None or self.high is None:
                raise ValueError("expected a list of choices, or low and high")
        elif not {"low", "high", "step", "log"}.isdisjoint(self.model_fields_set):
            raise ValueError("expected choices or a range, got both")
        return self

    def distribution(self, name: str) -> CategoricalDistribution | IntDistribution | FloatDistribution:
        """Returns Optuna's distribution, with values of the type that the setting has, or raises a ValueError."""
        if self.choices is not None:
            return CategoricalDistribution([_valid(name, x) for x in self.choices])
        low, high = _valid(name, self.low), _valid(name, self.high)
        if isinstance(low, float):
            return FloatDistribution(low, high, self.log, self.step)
        if isinstance(low, bool):
            raise ValueError(f"expected a list of choices, since {name} is no number")
        if self.step and self.step % 1:
            raise ValueError(f"expected a whole number as the step, got {self.step}")
        return IntDistribution(low, high, self.log, int(self.step or 1))

    def has(self, name: str, value: Any) -> bool:
        """Returns whether a value is one of the choices, or in the range."""
        found = self.distribution(name)
        if isinstance(found, CategoricalDistribution):
            return value in found.choices
        return value is not None and found.low <= value <= found.high


class Pruning(StrictModel):
    """What ends a trial early, by the metric at its rankings: nothing, Optuna's median rule or successive halving."""

    method: Literal["none", "median", "halving"] = "none"
    startup: int = Field(5, ge=0)
    warmup: int = Field(0, ge=0)
    first: int | None = Field(None, ge=1)
    factor: int = Field(3, ge=2)

    @model_validator(mode="before")
    @classmethod
    def _name_only(cls, value: Any) -> Any:
        return {"method": value} if isinstance(value, str) else value or {}

    @model_validator(mode="after")
    def _options_of_the_method(self) -> Self:
        known = {"none": set[str](), "median": {"startup", "warmup"}, "halving": {"first", "factor"}}[self.method]
        if other := self.model_fields_set - known - {"method"}:
            raise ValueError(f"expected no {', '.join(sorted(other))} with the method {self.method}")
        return self

    def pruner(self, eval_every: int) -> optuna.pruners.BasePruner:
        """Returns Optuna's pruner, given the epochs between rankings."""
        if self.method == "median":
            return optuna.pruners.MedianPruner(n_startup_trials=self.startup, n_warmup_steps=self.warmup)
        if self.method == "halving":
            return optuna.pruners.SuccessiveHalvingPruner(self.first or eval_every, reduction_factor=self.factor)
        return optuna.pruners.NopPruner()


class Space(SettingsFile):
    """A search space, as a YAML file has it.

    `settings` are fields of `TrainConfig` that are fixed, `search` those that vary. `trials` is the number of trials,
    by default 50, or of a grid all points. `metric` is the validation metric that is maximized, `seed` that of the
    sampler.
    """

    built_in_folder: ClassVar[Path] = Path(__file__).parent / "spaces"

    description: str = ""
    settings: dict[str, Any] = Field({})
    search: dict[str, Parameter] = Field(min_length=1)
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    trials: int | None = Field(None, ge=1)
    metric: Literal["mrr", "hits@1", "hits@3", "hits@10"] = "mrr"
    seed: int = Field(0, ge=0)
    prune: Pruning = Field(default_factory=lambda: Pruning.model_validate({}))

    @field_validator("settings")
    @classmethod
    def _fields_of_config(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for name in ("run_dir", "monitor", "recipe"):
            if name in settings:
                reason = "each trial has its own folder, metric is the monitor, and all settings are written out"
                raise ValueError(f"expected no {name}: {reason}")
        checked = TrainConfig.create({"dataset": "any"} | settings, "")
        if checked.eval_every == 0:
            raise ValueError("expected eval_every above 0: trials are compared by rankings of the validation split")
        return {name: getattr(checked, name) for name in settings}

    @field_validator("search")
    @classmethod
    def _parameters(cls, search: dict[str, Parameter]) -> dict[str, Parameter]:
        for name, parameter in search.items():
            if name not in TrainConfig.model_fields:
                raise ValueError(unknown_setting(name))
            if name in NOT_SEARCHED:
                raise ValueError(f"{name} cannot be searched")
            try:
                parameter.distribution(name)
                for other, values in parameter.when.items():
                    if other not in TrainConfig.model_fields or (other in search and search[other].when):
                        raise ValueError(f"expected `when` to name settings without a condition, got {other!r}")
                    values[:] = [_valid(other, value) for value in values]
                if parameter.choices:
                    parameter.choices[:] = choices = [_valid(name, value) for value in parameter.choices]
                    if any(value in choices[:i] for i, value in enumerate(choices)):
                        raise ValueError(f"expected each choice once, got {choices}")
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return search

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, parameter in self.search.items():
            if name in self.settings and not parameter.when:
                raise ValueError(f"expected {name} under search or under settings, got it under both")
            if other := _never(parameter.when, self.settings, self.search):
                raise ValueError(f"search.{name}: its condition {other}: {parameter.when[other]} never holds")
            if self.sampler == "grid" and not self.values(name):
                raise ValueError(f"expected choices or a step for {name}, since the sampler is grid")
        if "seed" in self.search and self.settings.get("split"):
            raise ValueError("expected a fixed seed with settings.split, whose parts it draws")
        return self

    @property
    def size(self) -> int:
        """The number of trials."""
        if self.sampler != "grid":
            return self.trials or DEFAULT_TRIALS
        return sum(1 for _ in itertools.islice(self.points(), self.trials))

    def config(self, params: Mapping[str, Any], **more: Any) -> TrainConfig:
        """Returns the settings of a trial; those that have no effect there are left out."""
        settings = self.settings | {"monitor": self.metric} | dict(params) | more
        return TrainConfig.create(settings, self._where).effective()

    def suggest(self, trial: optuna.Trial) -> dict[str, Any]:
        """Returns the settings that vary in a trial."""
        params: dict[str, Any] = {}
        for name, parameter in sorted(self.search.items(), key=lambda item: bool(item[1].when)):
            if self._is_active(parameter, params):
                found = parameter.distribution(name)
                if isinstance(found, CategoricalDistribution):
                    params[name] = trial.suggest_categorical(name, found.choices)
                else:
                    suggest: Any = trial.suggest_int if isinstance(found, IntDistribution) else trial.suggest_float
                    params[name] = suggest(name, found.low, found.high, step=found.step, log=found.log)
        return self.rounded(params)

    def rounded(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the parameters that Optuna has of a trial as the trial uses them, in the order of the space."""
        values = {name: params[name] for name in self.search if name in params}
        return {name: round(x, _DIGITS) if isinstance(x, float) else x for name, x in values.items()}

    def values(self, name: str, ends: bool = False) -> list[Any]:
        """Returns the choices of a setting, or the values of its range, or its ends; none of a range without a step."""
        found, step = self.search[name].distribution(name), self.search[name].step
        if isinstance(found, CategoricalDistribution):
            return [*found.choices]
        if ends:
            return [found.low, found.high]
        if not step:
            return []
        count = int((found.high - found.low) / step + 1e-9) + 1
        return [_valid(name, round(found.low + i * step, _DIGITS)) for i in range(count)]

    def points(self) -> Iterator[dict[str, Any]]:
        """Yields every point of the grid."""
        return self._combinations(self.values)

    def check(self) -> None:
        """Raises a `UsageError` if the data set is missing, settings contradict each other, or one has no effect."""
        if self.settings.get("dataset") is None:
            raise UsageError(f"{self._where}: expected a data set: settings.dataset, or --dataset on the command line")
        idle = set(self.settings)
        for params in itertools.islice(self._combinations(lambda name: self.values(name, ends=True)), _COMBINATIONS):
            without = TrainConfig.create(self.settings | params, self._where).without_effect()
            idle &= without.keys()
            try:
                if useless := [name for name in params if name in without]:
                    raise UsageError(f"{useless[0]} has no effect: {without[useless[0]]}; tie it to another by `when:`")
                self.config(params).check()
            except UsageError as error:
                point = ", ".join(f"{name} {value}" for name, value in params.items())
                raise UsageError(f"{self._where}: with {point}: {error}") from None
        if idle:
            raise UsageError(f"{self._where}: settings.{min(idle)} has no effect in any trial; remove it")

    def changed(self, settings: Mapping[str, Any], trials: int | None = None) -> Self:
        """Returns a copy with settings that were given elsewhere.

        Those are not searched, nor are parameters whose conditions can then no longer hold.
        """
        given = TrainConfig.create({"dataset": "any", **settings}, self._where)
        fixed = self.settings | {name: getattr(given, name) for name in settings}
        left = {name: x for name, x in self.search.items() if name not in settings}
        mapping = self.as_mapping()
        mapping["settings"] = fixed
        mapping["search"] = {name: mapping["search"][name] for name in left if not _never(left[name].when, fixed, left)}
        mapping["trials"] = trials or self.trials
        return self.parse(mapping, self.name, self._where)

    def as_mapping(self) -> dict[str, Any]:
        """Returns what the YAML file has."""
        return self.model_dump(mode="json", exclude_unset=True)

    def write(self, path: Path) -> None:
        """Writes it as YAML."""
        path.write_text(yaml.safe_dump(self.as_mapping(), sort_keys=False, allow_unicode=True), encoding="utf-8")

    def _is_active(self, parameter: Parameter, params: Mapping[str, Any]) -> bool:
        now = self.settings | dict(params)
        defaults = TrainConfig.model_fields
        return all(now.get(name, defaults[name].default) in values for name, values in parameter.when.items())

    def _combinations(self, values: Callable[[str], Sequence[Any]]) -> Iterator[dict[str, Any]]:
        """Yields the combinations of values that the conditions leave, the last parameter varying first."""
        free = [name for name, parameter in self.search.items() if not parameter.when]
        for point in itertools.product(*map(values, free)):
            params = dict(zip(free, point, strict=True))
            tied = [name for name, x in self.search.items() if x.when and self._is_active(x, params)]
            for rest in itertools.product(*map(values, tied)):
                both = params | dict(zip(tied, rest, strict=True))
                yield {name: both[name] for name in self.search if name in both}


def _never(when: Mapping[str, list[Any]], settings: Mapping[str, Any], search: Mapping[str, Parameter]) -> str | None:
    """Returns the first setting of a condition that has none of the values listed there; None if it can hold."""
    for name, values in when.items():
        if name in search:
            holds = any(search[name].has(name, value) for value in values)
        elif name == "dataset" and name not in settings:
            holds = True  # for the data set that may still be given
        else:
            holds = settings.get(name, TrainConfig.model_fields[name].default) in values
        if not holds:
            return name
    return None


def _valid(name: str, value: Any) -> Any:
    """Returns a value as `TrainConfig` has it."""
    return getattr(TrainConfig.create({"dataset": "any", name: value}, ""), name)
