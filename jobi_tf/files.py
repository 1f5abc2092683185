"""Writing files and folders that are never half written."""

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from jobi_tf.errors import JobiError, UsageError, damaged

_BEFORE = ".before"  # at the end of the name of a folder that is being replaced
_LOCK = ".lock"


def check_new(folder: Path) -> None:
    """Raises a `UsageError` for a folder that has files already, or is a file."""
    if folder.exists() and (not folder.is_dir() or any(path.name != _LOCK for path in folder.iterdir())):
        found = "has files already" if folder.is_dir() else "is a file"
        raise UsageError(f"expected a new or empty folder, but {folder} {found}")
    if not folder.name:  # as of Path("."), which cannot be written beside
        raise UsageError(f"expected the name of a new folder, got {str(folder)!r}")


@contextmanager
def run_lock(folder: Path, seconds: float = 0) -> Iterator[None]:
    """Holds the lock of a folder while this process writes into it; the thread that holds it can take it again.

    The lock is a file beside the folder, or in it if nothing can be written beside it, as for a mounted volume.
    It waits up to `seconds` for another process that holds it, and then raises a `JobiError`.
    """
    folder = folder.resolve()
    with _errors_of(folder, folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
    inside = folder.is_dir() and not os.access(folder.parent, os.W_OK)
    path = folder / _LOCK if inside else folder.with_name(f".{folder.name}{_LOCK}")
    lock = FileLock(path, is_singleton=True)
    try:
        with lock.acquire(timeout=seconds):
            yield
    except Timeout:
        raise JobiError(f"expected no other process to write into {folder}, but one does") from None


def _beside(path: Path) -> Path:
    # The name ends as that of `path` does: some writers look at the suffix. Containers may have equal process ids.
    return path.with_name(f".tmp-{secrets.token_hex(4)}-{path.name}")


@contextmanager
def _errors_of(path: Path, beside: Path) -> Iterator[None]:
    """Names `path` in errors of what is written beside it, and in those that name no file, as for a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None or Path(str(error.filename)).is_relative_to(beside):
            error.filename = str(path)
        raise


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Yields a path beside `path` to write to, which replaces `path` if the block succeeds, else is removed.

    Devices and pipes, such as /dev/stdout, are written to directly, and a link is followed. A file does not replace a
    folder, but is a `UsageError`.
    """
    in_devices = str(path.absolute().parent) in ("/dev", "/dev/fd")  # /dev/stdout may be a link to a file
    if path.exists() and (in_devices or not (path.is_file() or path.is_dir())):
        yield path
        return
    path = path.resolve() if path.is_symlink() else path
    beside = _beside(path)
    before = beside.with_name(f"{beside.name}{_BEFORE}")  # a folder cannot be replaced, only moved away
    try:
        with _errors_of(path, beside):
            yield beside
            if path.is_dir():
                if not beside.is_dir():
                    raise UsageError(f"expected the name of a file to write, got the folder {path}")
                path.rename(before)
            beside.replace(path)
    finally:
        if before.exists() and not path.exists():
            before.rename(path)
        for left in (beside, before):
            with suppress(OSError):  # of a read-only disk, also where there is nothing to remove
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> None:
    """Removes what killed processes left half written in a folder, and puts back what they had moved away."""
    for path in list(folder.rglob(".tmp-*")):
        name = path.name.removesuffix(_BEFORE)
        target = path.with_name(name.split("-", 2)[-1])
        if name != path.name and not target.exists():
            path.rename(target)
        else:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yields a folder to fill, which becomes `folder` if the block succeeds, and is removed otherwise.

    It raises an OSError if `folder` exists by then and is not empty.
    """
    made = [path for path in folder.parents if not path.exists()]
    beside = _beside(folder)
    try:
        with _errors_of(folder, beside):
            beside.mkdir(parents=True)
            yield beside
            beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        with suppress(OSError):  # folders that hold something stay
            for path in made:
                path.rmdir()


def read_json(path: Path, expected: str, key: str) -> dict[str, Any]:
    """Returns a JSON object with some key from the folder of a run; empty if there is no such file."""
    if not path.exists():
        return {}
    with damaged(expected, path):
        content = json.loads(path.read_text(encoding="utf-8"))
        _ = content[key]
        return content
