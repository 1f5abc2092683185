"""What a search goes through: settings that stay, settings that vary, and how."""

import itertools
import math
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml

from jobi_tf.errors import UsageError
from jobi_tf.evaluation.metrics import BETTER_IF_HIGHER
from jobi_tf.experiments.space_parts import Parameter, Pruning, refuse_keys
from jobi_tf.training.config import TrainConfig, read_settings

READY_MADE = Path(__file__).parent / "spaces"
SAMPLERS = ("grid", "tpe", "random")
DEFAULT_TRIALS = 50
_OF_THE_MACHINE = ("devices", "logical_devices", "run_dir")
# Results of different data cannot be compared, and `metric` tells what chooses.
NOT_SEARCHED = ("dataset", "split", "columns", "header", "monitor", "eval_every", *_OF_THE_MACHINE)
_KEYS = ("description", "settings", "search", "sampler", "trials", "metric", "seed", "prune")
_COMBINATIONS = 10_000  # that are checked before a search begins


@dataclass(frozen=True)
class Space:
    """A search space.

    Args:
        name: what the default folder of its searches is called.
        description: one line.
        settings: fields of `TrainConfig` that stay.
        parameters: those that vary, in the order of the file.
        sampler: `grid`, `tpe` or `random`.
        trials: how many trials; None: all points of a grid.
        metric: the validation metric that chooses, as the runs record it, without `val_`.
        seed: of the sampler; the seed of trainings is a setting.
        pruning: what ends trials early.
        where: the file, for messages.
    """

    name: str
    description: str
    settings: dict[str, Any]
    parameters: tuple[Parameter, ...]
    sampler: str
    trials: int | None
    metric: str
    seed: int
    pruning: Pruning
    where: str

    def config(self, params: Mapping[str, Any], **more: Any) -> TrainConfig:
        """Returns the settings of the trial with `params`; the metric chooses its epoch too."""
        return TrainConfig.create(self.settings | {"monitor": self.metric} | dict(params) | more, self.where)

    def rounded(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what Optuna holds of a trial as the values that are meant, in the order of the file."""
        return {p.name: p.rounded(params[p.name]) for p in self.parameters if p.name in params}

    def active(self, parameter: Parameter, params: Mapping[str, Any]) -> bool:
        """Tells whether a parameter varies where the ones before it have the values `params`."""
        now = self.settings | dict(params)
        return all(
            now.get(name, TrainConfig.model_fields[name].default) in values for name, values in parameter.when.items()
        )

    def points(self) -> Iterator[dict[str, Any]]:
        """Yields every point of the grid, the last parameter varying first."""
        return self._combinations({p.name: p.values() for p in self.parameters})

    def _combinations(self, values: Mapping[str, tuple]) -> Iterator[dict[str, Any]]:
        # Conditions come first, so that a parameter is asked only when what decides about it is known.
        ordered = sorted(self.parameters, key=lambda p: bool(p.when))

        def of(rest: list[Parameter], params: dict[str, Any]) -> Iterator[dict[str, Any]]:
            if not rest:
                yield {p.name: params[p.name] for p in self.parameters if p.name in params}
            elif not self.active(rest[0], params):
                yield from of(rest[1:], params)
            else:
                for value in values[rest[0].name]:
                    yield from of(rest[1:], params | {rest[0].name: value})

        return of(ordered, {})

    def check(self) -> None:
        """Refuses combinations of settings that leave one of them without effect, before any is trained.

        Raises:
            UsageError: there is one, or the data set is missing.
        """
        if self.settings.get("dataset") is None:
            raise UsageError(f"{self.where}: expected a data set: settings.dataset, or --dataset on the command line")
        ends = {p.name: p.choices if p.choices is not None else (p.low, p.high) for p in self.parameters}
        for params in itertools.islice(self._combinations(ends), _COMBINATIONS):
            try:
                self.config(params).check()
            except UsageError as error:
                point = ", ".join(f"{name} {value}" for name, value in params.items())
                raise UsageError(f"{self.where}: with {point}: {error} (`when:` can tie one to another)") from None

    def as_mapping(self) -> dict[str, Any]:
        """Returns all of it as a YAML file has it, in full."""
        return {
            "description": self.description,
            "settings": self.settings,
            "search": {p.name: p.as_mapping() for p in self.parameters},
            "sampler": self.sampler,
            "trials": self.trials,
            "metric": self.metric,
            "seed": self.seed,
            "prune": self.pruning.as_mapping(),
        }

    def write(self, path: Path) -> None:
        """Writes it as YAML."""
        path.write_text(yaml.safe_dump(self.as_mapping(), sort_keys=False, allow_unicode=True), encoding="utf-8")

    def changed(self, settings: Mapping[str, Any], trials: int | None = None) -> "Space":
        """Returns a copy with settings that were given elsewhere; those are not searched.

        Raises:
            UsageError: a setting cannot work, or nothing is left to be searched.
        """
        mapping = self.as_mapping()
        mapping["settings"] = self.settings | dict(settings)
        mapping["search"] = {name: part for name, part in mapping["search"].items() if name not in settings}
        mapping["trials"] = trials or self.trials
        return parse_space(mapping, self.name, self.where)


def read_space(source: str | Path) -> Space:
    """Reads a YAML file, or the ready-made space of that name, which wins over a file that is spelled the same.

    Raises:
        UsageError: there is none, or something in it cannot work; the message has the file, the key and the reason.
    """
    path = ready_made().get(str(source), Path(source))
    if path == Path(source) and not path.is_file():
        raise UsageError(f"expected a YAML file or one of {', '.join(ready_made())}, got {str(source)!r}")
    return parse_space(read_settings(path), path.stem, str(source))


def ready_made() -> dict[str, Path]:
    """Returns the spaces that come with the library, by name."""
    return {path.stem: path for path in sorted(READY_MADE.glob("*.yaml"))}


def parse_space(mapping: Mapping[str, Any], name: str, where: str) -> Space:
    """Checks what a YAML file holds; `where` tells in messages where it came from.

    Raises:
        UsageError: a key or a value cannot work.
    """
    refuse_keys(mapping, _KEYS, where)
    settings = _mapping(mapping, "settings", where)
    # TrainConfig turns texts such as 1e-4, which YAML takes for no number, into numbers.
    checked = TrainConfig.create({"dataset": "any"} | settings, f"{where}: settings")
    settings = {key: getattr(checked, key) for key in settings}
    if settings.get("run_dir") is not None:
        raise UsageError(f"{where}: expected no settings.run_dir: each trial gets a folder of its own")
    if "monitor" in settings:
        raise UsageError(f"{where}: expected no settings.monitor: metric tells what chooses, epochs as well")
    if settings.get("eval_every") == 0:
        raise UsageError(f"{where}: expected settings.eval_every above 0: rankings of the validation split choose")
    sampler, trials = _one_of(mapping, "sampler", SAMPLERS, "tpe", where), _whole(mapping, "trials", 1, where)
    space = Space(
        name=name,
        description=str(mapping.get("description") or ""),
        settings=settings,
        parameters=_parameters(mapping, settings, where),
        sampler=sampler,
        trials=trials if trials or sampler == "grid" else DEFAULT_TRIALS,
        metric=_one_of(mapping, "metric", BETTER_IF_HIGHER, "hits@10", where),
        seed=_whole(mapping, "seed", 0, where) or 0,
        pruning=Pruning.parse(mapping.get("prune"), checked.eval_every, f"{where}: prune"),
        where=where,
    )
    for parameter in space.parameters if sampler == "grid" else ():
        if not parameter.values():
            raise UsageError(f"{where}: search.{parameter.name}: expected choices or a step, for the sampler grid")
    return space


def _parameters(mapping: Mapping[str, Any], settings: Mapping[str, Any], where: str) -> tuple[Parameter, ...]:
    search = _mapping(mapping, "search", where)
    if not search:
        raise UsageError(f"{where}: expected settings that vary under search, found none")
    found = {}
    for name, text in search.items():
        here = f"{where}: search.{name}"
        if name in NOT_SEARCHED:
            raise UsageError(f"{here}: expected it under settings: it has to be the same for all trials")
        found[name] = parameter = Parameter.parse(name, text, _kind(name, here), here)
        if name in settings and not parameter.when:
            raise UsageError(f"{here}: expected it under search or under settings, got it under both")
        if name == "seed" and settings.get("split"):
            raise UsageError(f"{here}: expected a fixed seed with settings.split, whose parts it draws")
    for name, parameter in found.items():
        for other in parameter.when:
            if other in found and found[other].when:
                raise UsageError(
                    f"{where}: search.{name}.when: expected a setting without a condition of its own, got {other}"
                )
    return tuple(found.values())


def _kind(name: str, where: str) -> Any:
    """Returns the type of a setting: int, float, bool or str."""
    if name not in TrainConfig.model_fields:
        raise UsageError(f"{where}: expected one of the settings {', '.join(TrainConfig.model_fields)}")
    kind: Any = TrainConfig.model_fields[name].annotation
    if get_origin(kind) is types.UnionType:
        kind = next(part for part in get_args(kind) if part is not type(None))
    return str if get_origin(kind) is Literal else kind


def _mapping(mapping: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = mapping.get(key) or {}
    if not isinstance(value, dict):
        raise UsageError(f"{where}: {key}: expected `setting: value` lines, got {value!r}")
    return {str(name): part for name, part in value.items()}


def _one_of(mapping: Mapping[str, Any], key: str, among: tuple[str, ...], default: str, where: str) -> str:
    value = mapping.get(key, default)
    if value not in among:
        raise UsageError(f"{where}: {key}: expected one of {', '.join(among)}, got {value!r}")
    return value


def _whole(mapping: Mapping[str, Any], key: str, least: int, where: str) -> int | None:
    value = mapping.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not least <= value < math.inf):
        raise UsageError(f"{where}: {key}: expected a whole number of {least} or more, got {value!r}")
    return value
