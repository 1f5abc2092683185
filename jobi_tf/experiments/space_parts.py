"""Parts of a search space: a setting that varies, and what ends trials early."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobi_tf.errors import UsageError
from jobi_tf.training.config import TrainConfig

if TYPE_CHECKING:
    import optuna

_DIGITS = 12
_RANGE = ("low", "high", "log", "step")


@dataclass(frozen=True)
class Parameter:
    """A setting that varies, over `choices` or from `low` to `high`.

    Args:
        name: field of `TrainConfig`.
        kind: its type.
        choices: its values; None for a range.
        low: the least value of a range.
        high: the greatest.
        log: whether a range is gone through by factors.
        step: distance of a range's values.
        when: settings and the values that they must have for this one to vary; else it keeps its value in `settings`.
    """

    name: str
    kind: type
    choices: tuple[Any, ...] | None = None
    low: float = 0
    high: float = 0
    log: bool = False
    step: float | None = None
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, name: str, text: Any, kind: type, where: str) -> "Parameter":
        """Checks what a YAML file says of a parameter.

        Raises:
            UsageError: it cannot work.
        """
        parts = text if isinstance(text, dict) else {"choices": text}
        refuse_keys(parts, ("choices", *_RANGE, "when"), where)
        when = _conditions(name, parts.get("when") or {}, f"{where}.when")
        if "choices" in parts:
            if extra := [key for key in _RANGE if key in parts]:
                raise UsageError(f"{where}: expected choices or a range, got choices and {', '.join(extra)}")
            return cls(name, kind, _choices(name, parts["choices"], where), when=when)
        if kind not in (int, float):
            raise UsageError(f"{where}: expected a list of choices, since {name} is no number, got {text!r}")
        low, high = (_number(parts, key, kind, where) for key in ("low", "high"))
        if low is None or high is None or not low <= high:
            raise UsageError(f"{where}: expected a list of choices, or low and a high that is not below, got {text!r}")
        low, high = (_valid(name, end, where) for end in (low, high))
        step, log = _number(parts, "step", kind, where), parts.get("log", False)
        if not isinstance(log, bool):
            raise UsageError(f"{where}.log: expected true or false, got {log!r}")
        if step is not None and (step <= 0 or log):
            raise UsageError(f"{where}.step: expected a number above 0, without log, got {text!r}")
        if log and low <= 0:
            raise UsageError(f"{where}.low: expected a number above 0, since log is true, got {low}")
        return cls(name, kind, None, low, high, log, step, when)

    def values(self) -> tuple[Any, ...]:
        """Returns the values of a grid; none of a range without a step."""
        if self.choices is not None:
            return self.choices
        if self.step is None:
            return ()
        # The small part keeps the last value where a quotient falls short.
        count = math.floor((self.high - self.low) / self.step + 1e-9) + 1
        return tuple(self.rounded(self.kind(self.low + i * self.step)) for i in range(count))

    def suggest(self, trial: "optuna.trial.Trial") -> Any:
        """Returns the value in a trial, which the sampler chooses."""
        if self.choices is not None:
            return trial.suggest_categorical(self.name, self.choices)
        if self.kind is int:
            step = None if self.step is None else int(self.step)
            return trial.suggest_int(self.name, int(self.low), int(self.high), step=step or 1, log=self.log)
        return self.rounded(trial.suggest_float(self.name, self.low, self.high, step=self.step, log=self.log))

    def rounded(self, value: Any) -> Any:
        """Returns 0.3 for 0.1 + 2 · 0.1."""
        return round(value, _DIGITS) if self.step is not None and self.kind is float else value

    def as_mapping(self) -> dict[str, Any]:
        """Returns what `parse` takes."""
        if self.choices is not None:
            parts: dict[str, Any] = {"choices": list(self.choices)}
        else:
            parts = {"low": self.low, "high": self.high, "log": self.log}
            parts |= {} if self.step is None else {"step": self.step}
        return parts | ({"when": {name: list(values) for name, values in self.when.items()}} if self.when else {})


@dataclass(frozen=True)
class Pruning:
    """What ends a trial early, by the metric at its rankings.

    Args:
        method: `none`; `median`: its best so far is below the median of the trials before it at that epoch; `halving`:
            it is not in the best part, one of `factor`, at an epoch that is `first` times a power of `factor`.
        startup: median: trials that are never ended early.
        warmup: median: epochs in which no trial is.
        first: halving: the first epoch that decides.
        factor: halving: of as many trials one goes on.
    """

    method: str = "none"
    startup: int = 5
    warmup: int = 0
    first: int = 1
    factor: int = 3

    @classmethod
    def parse(cls, text: Any, eval_every: int, where: str) -> "Pruning":
        """Checks what a YAML file says: a method, or a mapping with it.

        Raises:
            UsageError: it cannot work.
        """
        parts = text if isinstance(text, dict) else {"method": text or "none"}
        method = parts.get("method", "none")
        if not isinstance(method, str) or method not in _OPTIONS:
            raise UsageError(f"{where}: expected one of {', '.join(_OPTIONS)}, got {method!r}")
        refuse_keys(parts, ("method", *_OPTIONS[method]), where)
        numbers: dict[str, Any] = {"first": eval_every} | {
            key: value for key, value in parts.items() if key != "method"
        }
        for key, value in numbers.items():
            least = {"first": 1, "factor": 2}.get(key, 0)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UsageError(f"{where}.{key}: expected a whole number of {least} or more, got {value!r}")
        return cls(method, **numbers)

    def as_mapping(self) -> dict[str, Any]:
        """Returns what `parse` takes."""
        return {"method": self.method} | {key: getattr(self, key) for key in _OPTIONS[self.method]}


_OPTIONS = {"none": (), "median": ("startup", "warmup"), "halving": ("first", "factor")}


def refuse_keys(parts: Mapping[Any, Any], known: Iterable[str], where: str) -> None:
    """Refuses keys that are not known.

    Raises:
        UsageError: there is one.
    """
    known = tuple(known)
    for key in parts:
        if key not in known:
            raise UsageError(f"{where}: expected one of the keys {', '.join(known)}, got {key!r}")


def _conditions(name: str, text: Any, where: str) -> dict[str, tuple[Any, ...]]:
    if not isinstance(text, dict):
        raise UsageError(f"{where}: expected `setting: value` or `setting: [values]`, got {text!r}")
    conditions = {}
    for other, values in text.items():
        if other == name or other not in TrainConfig.model_fields:
            raise UsageError(f"{where}: expected the name of another setting, got {other!r}")
        conditions[str(other)] = _choices(other, values if isinstance(values, list) else [values], where)
    return conditions


def _choices(name: str, values: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(values, list) or not values:
        raise UsageError(f"{where}: expected a list of choices, or low and high, got {values!r}")
    checked = tuple(_valid(name, value, where) for value in values)
    for i, value in enumerate(checked):
        if value in checked[:i]:
            raise UsageError(f"{where}: expected each choice once, got {value!r} twice")
    return checked


def _valid(name: str, value: Any, where: str) -> Any:
    """Returns a value as `TrainConfig` has it."""
    return getattr(TrainConfig.create({"dataset": "any", name: value}, where), name)


def _number(parts: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    value = parts.get(key)
    if value is None:
        return None
    try:
        number = float(value)  # YAML takes 1e-4 for a text
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number) or (kind is int and number != int(number)):
        raise UsageError(f"{where}.{key}: expected a {'whole ' if kind is int else ''}number, got {value!r}")
    return kind(number)
