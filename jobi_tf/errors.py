"""Errors that are meant for a person: one sentence with what was expected, what came, and where."""

import errno
import operator
import os
import re
import reprlib
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any, SupportsFloat

# Shortens values in messages, without writing the whole of them first.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200

_DAMAGES = OSError, EOFError, ValueError, KeyError, TypeError, AssertionError, zipfile.BadZipFile, zlib.error


class JobiError(Exception):
    """A failure that the user can act on. The command line prints the message and exits with status 1."""


class UsageError(JobiError, ValueError):
    """Invalid options or arguments. The command line prints the message and exits with status 2."""


class DataError(JobiError, ValueError):
    """Invalid input data. The message names the file and, if possible, the line."""


class MissingExtraError(JobiError, ImportError):
    """An optional dependency is not installed. The message names the extra to install."""


def explain(error: Exception) -> str | None:
    """Returns one sentence for a failure that is not a fault of the program, else None."""
    if isinstance(error, JobiError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"out of memory: {str(error) or 'the model or the data are too large for this machine'}"
    if isinstance(error, OSError):
        reason = error.strerror or " ".join(" ".join(map(str, error.args)).split()) or type(error).__name__
        name = error.filename
        if number := re.search(r"errno = (\d+)", reason):  # a message of HDF5
            found = re.search(r"name = '([^']*)'", reason)
            name = name or (found and found[1])
            reason = os.strerror(int(number[1]))
        elif re.search(r"requested and \d+ written", reason):  # one of NumPy
            reason = os.strerror(errno.ENOSPC)
        return ": ".join(str(part) for part in (name, reason) if part is not None)
    if "tensorflow" not in sys.modules:
        return None
    from tensorflow import errors

    message = first_line(error)
    if isinstance(error, errors.InvalidArgumentError) and "is not in [0, " in message:
        return f"an id is out of range ({message}): triples are damaged or of another graph, or a scorer has a fault"
    if isinstance(error, errors.ResourceExhaustedError):
        return f"out of memory: {message}" if "OOM" in message else message
    return message if isinstance(error, errors.PermissionDeniedError | errors.NotFoundError) else None


def without_passwords(text: str) -> str:
    """Returns text in which `***` stands for the passwords of URLs."""
    return re.sub(r"(://[^:/@\s]*):[^@/\s]*@", r"\1:***@", text)


def first_line(error: Exception) -> str:
    """Returns what an error says, without the places in a graph that TensorFlow adds; its type if it says nothing."""
    text = str(error)
    if text.startswith("Graph execution error"):  # then some lines on where the node was made
        text = re.split(r"\n\n|<stack traces unavailable>", text)[-1]
    return re.sub(r"\{\{.*?\}\} |\[Op:.*?\]", "", text).strip().split("\n")[0].strip() or type(error).__name__


@contextmanager
def damaged(expected: str, path: str | Path) -> Iterator[None]:
    """Says which file or folder is damaged when reading it fails; raises a `DataError`."""
    try:
        yield
    except DataError:
        raise
    except (FileNotFoundError, PermissionError) as error:
        reason = "does not exist" if isinstance(error, FileNotFoundError) else "cannot be read"
        raise DataError(f"expected {expected} in {path}, but {error.filename or path} {reason}") from error
    except _DAMAGES as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if "pickle" in reason:  # what NumPy suggests for other files
            reason = "it is not an .npz file"
        raise DataError(f"expected {expected} in {path}, which is damaged: {reason}") from None


@contextmanager
def needs(what: str, extra: str) -> Iterator[None]:
    """Names the extra to install where a module that the block imports is missing; raises a `MissingExtraError`."""
    try:
        yield
    except ImportError:
        raise MissingExtraError(f"{what}: pip install 'jobi-tf[{extra}]'") from None


def check_at_least(least: int, **numbers: Any) -> None:
    """Raises a `UsageError` for an argument that is not a whole number, or is below `least`."""
    for name, value in numbers.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise UsageError(f"expected {name} to be a whole number of at least {least}, got {value!r}")


def check_numbers(interval: str, **values: Any) -> None:
    """Raises a `UsageError` for an argument that is not a number in an interval, such as `[0, 1)` or `(0, inf)`."""
    low, high = map(float, interval[1:-1].split(","))
    above = operator.ge if interval.startswith("[") else operator.gt
    below = operator.le if interval.endswith("]") else operator.lt
    for name, value in values.items():
        if not isinstance(value, SupportsFloat) or not (above(float(value), low) and below(float(value), high)):
            raise UsageError(f"expected {name} to be a number in {interval}, got {value!r}")


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
    if problem["type"] == "json_invalid":
        return problem["msg"]
    # Such as "Input should be a valid integer" or "List should have at least 1 item after validation, not 0".
    expected = re.sub(r"^\w+ should | after validation.*", "", problem["msg"])
    return f"expected {name or 'it'} to {expected}, got {_SHORT.repr(problem['input'])}"
