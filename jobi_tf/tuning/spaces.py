"""Search spaces: settings that are fixed, settings that vary, and how."""

import itertools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator, model_validator

from jobi_tf.errors import UsageError, validation_message
from jobi_tf.training.config import TrainConfig, read_settings

if TYPE_CHECKING:
    import optuna

READY_MADE = Path(__file__).parent / "spaces"
DEFAULT_TRIALS = 50
# Results of different data cannot be compared; `metric` of the space is the monitor; the rest belongs to the machine.
NOT_SEARCHED = (
    *("dataset", "split", "columns", "header", "weights", "monitor", "eval_every"),
    *("devices", "logical_devices", "run_dir"),
)
_DIGITS = 12  # makes 0.3 of 0.1 + 2 · 0.1
_COMBINATIONS = 10_000  # that are checked before a search begins


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Parameter(_Part):
    """A setting that varies: over `choices`, or from `low` to `high`, with a `step` or by factors (`log`).

    Where a setting named in `when` has another value than those listed there, this one keeps its value in `settings`.
    """

    choices: list[Any] | None = Field(None, min_length=1)
    low: float | None = None
    high: float | None = None
    step: float | None = Field(None, gt=0)
    log: bool = False
    when: dict[str, list[Any]] = {}

    @model_validator(mode="before")
    @classmethod
    def _list_of_choices(cls, value: Any) -> Any:
        return {"choices": value} if isinstance(value, list) else value

    @field_validator("when", mode="before")
    @classmethod
    def _lists(cls, value: Any) -> Any:
        return {k: v if isinstance(v, list) else [v] for k, v in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _choices_or_range(self) -> "Parameter":
        if self.choices is not None:
            if not {"low", "high", "step", "log"}.isdisjoint(self.model_fields_set):
                raise ValueError("expected choices or a range, got both")
            if any(value in self.choices[:i] for i, value in enumerate(self.choices)):
                raise ValueError(f"expected each choice once, got {self.choices}")
        elif self.low is None or self.high is None or not self.low <= self.high:
            raise ValueError(
                f"expected a list of choices, or low and high with low ≤ high, got {self.low}, {self.high}"
            )
        elif self.log and (self.low <= 0 or self.step):
            raise ValueError(f"expected a low above 0 and no step with log, got {self.low} and {self.step}")
        return self

    def checked(self, name: str) -> "Parameter":
        """Returns this with values of the types that the setting has.

        Raises:
            ValueError: a value is no value of the setting, or the setting is no number and has a range.
        """
        when = {other: [_valid(other, value) for value in values] for other, values in self.when.items()}
        if self.choices is not None:
            return self.model_copy(update={"choices": [_valid(name, x) for x in self.choices], "when": when})
        if _kind(name) not in (int, float):
            raise ValueError(f"expected a list of choices, since {name} is no number")
        if _kind(name) is int and any(x is not None and x % 1 for x in (self.low, self.high, self.step)):
            raise ValueError(f"expected whole numbers, got {self.low}, {self.high} and {self.step}")
        for end in (self.low, self.high):
            _valid(name, end)
        return self.model_copy(update={"when": when})

    def suggest(self, name: str, trial: "optuna.trial.Trial") -> Any:
        """Returns the value in a trial."""
        if self.choices is not None:
            return trial.suggest_categorical(name, self.choices)
        assert self.low is not None
        assert self.high is not None
        if _kind(name) is int:
            return trial.suggest_int(name, int(self.low), int(self.high), step=int(self.step or 1), log=self.log)
        return trial.suggest_float(name, self.low, self.high, step=self.step, log=self.log)

    def values(self, name: str) -> list[Any]:
        """Returns the values of a grid; none of a range without a step."""
        if self.choices is not None:
            return self.choices
        if self.step is None or self.low is None or self.high is None:
            return []
        count = int((self.high - self.low) / self.step + 1e-9) + 1
        return [_valid(name, round(self.low + i * self.step, _DIGITS)) for i in range(count)]

    def ends(self, name: str) -> list[Any]:
        """Returns the choices, or the ends of the range."""
        return self.choices or [_valid(name, self.low), _valid(name, self.high)]


class Pruning(_Part):
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
    def _options_of_the_method(self) -> "Pruning":
        known = {"none": set[str](), "median": {"startup", "warmup"}, "halving": {"first", "factor"}}[self.method]
        if other := self.model_fields_set - known - {"method"}:
            raise ValueError(f"expected no {', '.join(sorted(other))} with the method {self.method}")
        return self

    def pruner(self, eval_every: int) -> "optuna.pruners.BasePruner":
        """Returns Optuna's pruner, given the epochs between rankings."""
        from optuna import pruners

        if self.method == "median":
            return pruners.MedianPruner(n_startup_trials=self.startup, n_warmup_steps=self.warmup)
        if self.method == "halving":
            return pruners.SuccessiveHalvingPruner(self.first or eval_every, reduction_factor=self.factor)
        return pruners.NopPruner()


class Space(_Part):
    """A search space, as a YAML file has it.

    `settings` are fields of `TrainConfig` that are fixed, `search` those that vary. `trials` is the number of trials,
    by default 50, or of a grid all points. `metric` is the validation metric that is maximized, `seed` that of the
    sampler.
    """

    description: str = ""
    settings: dict[str, Any] = {}
    search: dict[str, Parameter] = Field(min_length=1)
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    trials: int | None = Field(None, ge=1)
    metric: Literal["mrr", "hits@1", "hits@3", "hits@10"] = "hits@10"
    seed: int = Field(0, ge=0)
    prune: Pruning = Field(default_factory=lambda: Pruning.model_validate({}))
    _name: str = PrivateAttr("")
    _where: str = PrivateAttr("")

    @field_validator("settings")
    @classmethod
    def _fields_of_config(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for name in ("run_dir", "monitor"):
            if name in settings:
                raise ValueError(f"expected no {name}: each trial has a folder of its own, and metric is the monitor")
        checked = TrainConfig.create({"dataset": "any"} | settings)
        if checked.eval_every == 0:
            raise ValueError("expected eval_every above 0: trials are compared by rankings of the validation split")
        return {name: getattr(checked, name) for name in settings}

    @field_validator("search")
    @classmethod
    def _parameters(cls, search: dict[str, Parameter]) -> dict[str, Parameter]:
        for name, parameter in search.items():
            if name not in TrainConfig.model_fields or name in NOT_SEARCHED:
                known = ", ".join(x for x in TrainConfig.model_fields if x not in NOT_SEARCHED)
                raise ValueError(f"expected some of {known}, got {name!r}")
            for other in parameter.when:
                if other == name or other not in TrainConfig.model_fields or (other in search and search[other].when):
                    raise ValueError(f"expected {name}.when to name settings without a condition, got {other!r}")
        found = {}
        for name, parameter in search.items():
            try:
                found[name] = parameter.checked(name)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return found

    @model_validator(mode="after")
    def _consistent(self) -> "Space":
        for name, parameter in self.search.items():
            if name in self.settings and not parameter.when:
                raise ValueError(f"expected {name} under search or under settings, got it under both")
            if self.sampler == "grid" and not parameter.values(name):
                raise ValueError(f"expected choices or a step for {name}, since the sampler is grid")
        if "seed" in self.search and self.settings.get("split"):
            raise ValueError("expected a fixed seed with settings.split, whose parts it draws")
        return self

    @property
    def name(self) -> str:
        """The name of its file."""
        return self._name

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

    def suggest(self, trial: "optuna.trial.Trial") -> dict[str, Any]:
        """Returns the settings that vary in a trial."""
        params: dict[str, Any] = {}
        for name, parameter in sorted(self.search.items(), key=lambda item: bool(item[1].when)):
            if self._is_active(parameter, params):
                params[name] = parameter.suggest(name, trial)
        return self.rounded(params)

    def rounded(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the parameters that Optuna has of a trial as the trial uses them, in the order of the space."""
        values = {name: params[name] for name in self.search if name in params}
        return {name: round(x, _DIGITS) if isinstance(x, float) else x for name, x in values.items()}

    def points(self) -> Iterator[dict[str, Any]]:
        """Yields every point of the grid."""
        return self._combinations(lambda name: self.search[name].values(name))

    def check(self) -> None:
        """Checks combinations of settings before any is trained.

        Raises:
            UsageError: the data set is missing, two settings contradict each other, or one has no effect.
        """
        if self.settings.get("dataset") is None:
            raise UsageError(f"{self._where}: expected a data set: settings.dataset, or --dataset on the command line")
        idle = set(self.settings)
        ends = self._combinations(lambda name: self.search[name].ends(name))
        for params in itertools.islice(ends, _COMBINATIONS):
            config = TrainConfig.create(self.settings | params, self._where)
            without = config.without_effect()
            idle &= without.keys()
            try:
                if useless := [name for name in params if name in without]:
                    raise UsageError(
                        f"{useless[0]} has no effect: {without[useless[0]]}; tie one to another by `when:`"
                    )
                self.config(params).check()
            except UsageError as error:
                point = ", ".join(f"{name} {value}" for name, value in params.items())
                raise UsageError(f"{self._where}: with {point}: {error}") from None
        if idle:
            raise UsageError(f"{self._where}: settings.{min(idle)} has no effect in any trial; remove it")

    def changed(self, settings: Mapping[str, Any], trials: int | None = None) -> "Space":
        """Returns a copy with settings that were given elsewhere; those are not searched.

        Raises:
            UsageError: a value is invalid, or nothing is left to be searched.
        """
        mapping = self.as_mapping()
        mapping["settings"] = self.settings | dict(settings)
        mapping["search"] = {name: part for name, part in mapping["search"].items() if name not in settings}
        mapping["trials"] = trials or self.trials
        return parse_space(mapping, self._name, self._where)

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


def read_space(source: str | Path) -> Space:
    """Reads a YAML file, or the ready-made space of that name.

    Raises:
        UsageError: there is none, or it is invalid; the message has the file, the key and the reason.
    """
    path = ready_made().get(str(source), Path(source))
    if path == Path(source) and not path.is_file():
        raise UsageError(f"expected a YAML file or one of {', '.join(ready_made())}, got {str(source)!r}")
    return parse_space(read_settings(path), path.stem, str(source))


def ready_made() -> dict[str, Path]:
    """Returns the spaces that come with the library, by name."""
    return {path.stem: path for path in sorted(READY_MADE.glob("*.yaml"))}


def parse_space(mapping: Mapping[str, Any], name: str, where: str) -> Space:
    """Checks the content of a YAML file; `where` names it in errors.

    Raises:
        UsageError: a key or a value is invalid.
    """
    try:
        space = Space(**{str(key): value for key, value in mapping.items()})
    except ValidationError as error:
        raise UsageError(f"{where}: {validation_message(error)}") from None
    space._name, space._where = name, where
    return space


def _kind(name: str) -> Any:
    """Returns the type of a setting: int, float, bool or str."""
    kind: Any = TrainConfig.model_fields[name].annotation
    if get_origin(kind) is types.UnionType:
        kind = next(part for part in get_args(kind) if part is not type(None))
    return str if get_origin(kind) is Literal else kind


def _valid(name: str, value: Any) -> Any:
    """Returns a value as `TrainConfig` has it."""
    return getattr(TrainConfig.create({"dataset": "any", name: value}, name), name)
