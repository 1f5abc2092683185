"""The folder where prepared graphs and downloaded archives are kept."""

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import platformdirs

from jobi_tf.data.graph import Graph
from jobi_tf.errors import DataError, JobiError
from jobi_tf.files import new_folder, written_beside

_ABANDONED = 600.0  # seconds without a change after which something incomplete is not being written any more


class Prepared(NamedTuple):
    """A graph, its triples memory-mapped, the folder where it is kept, and whether an earlier call had prepared it."""

    graph: Graph
    folder: Path
    cached: bool


def home() -> Path:
    """Returns the cache folder: `JOBI_TF_HOME`, else the platform's; it may not exist yet."""
    given = os.environ.get("JOBI_TF_HOME")
    return Path(os.path.expanduser(given)).absolute() if given else Path(platformdirs.user_cache_dir("jobi-tf"))


def graph_folder(key: str) -> Path:
    """Returns where the graph of this key is kept, whether it exists or not."""
    return home() / "graphs" / key


def open_or_build(key: str, build: Callable[[], Graph]) -> Prepared:
    """Opens the graph that is kept under `key`; builds and keeps it if there is none.

    Several processes may do this at once: each writes to a separate folder, the first one to finish renames it, and all
    open that. Raises a `JobiError` if the cache cannot be read or written.
    """
    folder = graph_folder(key)
    unusable = folder.exists()
    if unusable:
        try:
            return Prepared(Graph.open(folder), folder, True)
        except DataError as error:
            if isinstance(error.__cause__, PermissionError):
                raise failure("read", folder, error.__cause__) from None
    make_folder(folder.parent)
    graph = build()
    try:
        # A copy that is damaged or of another format is replaced.
        with (written_beside if unusable else new_folder)(folder) as beside:
            beside.mkdir(exist_ok=True)
            graph.write(beside)
    except OSError as error:
        if (
            unusable or not (folder / "graph.json").exists()
        ):  # otherwise another process was faster, and its copy is as good
            raise failure("write", folder, error) from None
    return Prepared(Graph.open(folder), folder, False)


def make_folder(folder: Path) -> None:
    """Makes a writable folder, or raises a `JobiError`; removes what killed processes left in the cache."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise failure("make", folder, error) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise JobiError(f"the cache folder {folder} is not writable; set JOBI_TF_HOME to another folder")
    # pooch has names such as tmp1a2b for its files; `jobi_tf.files` has .tmp- for files and folders.
    for path in (*folder.glob(".tmp-*"), *filter(Path.is_file, folder.glob("tmp*"))):
        with suppress(OSError):  # of another user, or removed by another process
            if time.time() - path.stat().st_mtime > _ABANDONED:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


def failure(verb: str, path: Path, error: OSError) -> JobiError:
    """Returns the error for a failure to `verb` a path in the cache."""
    # NumPy reports a short write without an error number, as "8000 requested and 36 written".
    reason = error.strerror or f"the disk is probably full ({error})"
    return JobiError(f"cannot {verb} {path}: {reason}; set JOBI_TF_HOME to another folder")
