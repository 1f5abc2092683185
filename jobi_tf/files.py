"""Writing files and folders that are never half there."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jobi_tf.errors import UsageError


def check_new(folder: Path) -> None:
    """Checks that a folder can be made.

    Raises:
        UsageError: it has files already, or is a file.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        found = "has files already" if folder.is_dir() else "is a file"
        raise UsageError(f"expected a new or empty folder, but {folder} {found}")


def _beside(path: Path) -> Path:
    # The name ends as that of `path` does: some writers look at the suffix.
    return path.with_name(f".tmp-{os.getpid()}-{path.name}")


def _name(error: OSError, path: Path) -> None:
    """Names the path that was to be written, where the error names none, as on a full disk, or one beside it."""
    if error.filename is None or _beside(path) in (written := Path(str(error.filename)), *written.parents):
        error.filename = str(path)


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Gives a path beside `path` to write to, which replaces `path` when all succeeded; else nothing stays behind."""
    beside = _beside(path)
    try:
        yield beside
        if path.is_dir():
            shutil.rmtree(path)
        beside.replace(path)
    except OSError as error:
        _name(error, path)
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True) if beside.is_dir() else beside.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Gives a folder to fill, which becomes `folder` when all succeeded; else nothing stays behind.

    Raises:
        OSError: `folder` exists by then and is not empty, or cannot be written.
    """
    made = [path for path in folder.parents if not path.exists()]
    beside = _beside(folder)
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
        yield beside
        beside.rename(folder)
    except OSError as error:
        _name(error, folder)
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        with suppress(OSError):  # folders that hold something stay
            for path in made:
                path.rmdir()
