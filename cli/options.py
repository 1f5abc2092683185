"""Options made from the settings of a training."""

import types
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from jobi_tf.training.config import TrainConfig


def settings_options(command: Callable) -> Callable:
    """Adds an option for every field of `TrainConfig`; the command takes them as keyword arguments."""
    for name, field in reversed(TrainConfig.model_fields.items()):
        command = _option(name, field)(command)
    return command


def _option(name: str, field: FieldInfo) -> Callable:
    flag, kind = name.replace("_", "-"), _kind(field)
    description = field.description or ""
    shown: dict[str, Any] = {
        "default": None if field.is_required() else field.default,
        "show_default": True,
        "help": description[:1].upper() + description[1:],
    }
    if kind is bool:
        return click.option(f"--{flag}/--no-{flag}", name, **shown)
    metavar = _METAVARS.get(name, {int: "N", float: "X"}.get(kind))
    return click.option(f"--{flag}", name, type=_type(kind, field), metavar=metavar, **shown)


def given(context: click.Context) -> dict[str, Any]:
    """Returns the settings that stand on the command line, defaults left out."""
    names = TrainConfig.model_fields.keys() & context.params.keys()
    source = context.get_parameter_source
    return {name: context.params[name] for name in names if source(name) is click.core.ParameterSource.COMMANDLINE}


_METAVARS = {"split": "SHARES", "columns": "H,R,T", "devices": "all|0,1,…", "run_dir": "DIR", "dataset": "NAME|PATH"}


def _kind(field: FieldInfo) -> Any:
    """Returns the type of a setting, without `None` of those that may be left open."""
    if get_origin(field.annotation) is types.UnionType:
        return next(kind for kind in get_args(field.annotation) if kind is not type(None))
    return field.annotation


def _type(kind: Any, field: FieldInfo) -> click.ParamType | type:
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if kind not in (int, float):
        return kind
    # pydantic keeps each rule of a field as an object with the rule's name as its attribute.
    rules = {rule: getattr(data, rule) for data in field.metadata for rule in _BOUNDS if hasattr(data, rule)}
    bounds = {name: value for rule, value in rules.items() for name, value in _BOUNDS[rule](value).items()}
    return (click.IntRange if kind is int else click.FloatRange)(**bounds)


_BOUNDS: dict[str, Callable[[float], dict[str, Any]]] = {
    "ge": lambda value: {"min": value},
    "gt": lambda value: {"min": value, "min_open": True},
    "le": lambda value: {"max": value},
}
