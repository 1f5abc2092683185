"""Errors that are meant for a person: one sentence with what was expected, what came, and where."""

from numbers import Integral
from typing import Any


class JobiError(Exception):
    """Something failed that the reader can act on. The command line prints it and exits with status 1."""


class UsageError(JobiError, ValueError):
    """Options or arguments that cannot work. The command line prints it and exits with status 2."""


class DataError(JobiError, ValueError):
    """Input data that cannot be used; the message names the file, and the line where there is one."""


class MissingExtraError(JobiError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


def check_at_least(least: int, **numbers: Any) -> None:
    """Checks arguments, given by name.

    Raises:
        UsageError: one is not a whole number, or is below `least`.
    """
    for name, value in numbers.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise UsageError(f"expected {name} to be a whole number of at least {least}, got {value!r}")


def validation_message(error: Any) -> str:
    """Returns the first problem of a `pydantic.ValidationError` in one sentence, with the key that it is about."""
    problem = error.errors()[0]
    *above, last = problem["loc"] or ("",)
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in above).removeprefix(".")
    name = f"{place}[{last}]" if isinstance(last, int) else f"{place}.{last}".strip(".")
    inside = f" in {place}" if place else ""
    if problem["type"] == "extra_forbidden":
        return f"unknown key {last!r}{inside}"
    if problem["type"] == "missing":
        return f"expected the key {last!r}{inside}, which is missing"
    if problem["type"] == "value_error":
        return f"{name}: {problem['ctx']['error']}".removeprefix(": ")
    message = problem["msg"].removeprefix("Input should be ")
    return f"expected {name} to be {message}, got {problem['input']!r}"
