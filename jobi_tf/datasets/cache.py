"""The folder where prepared graphs and downloaded archives are kept."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import platformdirs

from jobi_tf.data.graph import Graph
from jobi_tf.errors import JobiError
from jobi_tf.files import left_behind


def home() -> Path:
    """Returns the cache folder: `JOBI_TF_HOME`, else the platform's; it may not exist yet."""
    given = os.environ.get("JOBI_TF_HOME")
    return Path(given).expanduser().absolute() if given else Path(platformdirs.user_cache_dir("jobi-tf"))


def graph_folder(key: str) -> Path:
    """Returns where the graph of this key is kept, whether it is there or not."""
    return home() / "graphs" / key


def open_or_build(key: str, build: Callable[[], Graph]) -> tuple[Graph, bool]:
    """Opens the graph that is kept under `key`; builds and keeps it where there is none.

    Several processes may do this at once: each writes beside, the first to rename wins, all open what it wrote.

    Returns:
        The graph, memory-mapped, and whether it had been there.

    Raises:
        JobiError: the cache cannot be read or written.
    """
    folder = graph_folder(key)
    if folder.exists():
        try:
            return Graph.open(folder), True
        except PermissionError as problem:
            raise _failure("read", folder, problem) from None
        except (OSError, EOFError, ValueError, KeyError):
            # Another format or a damaged copy: it is only a cache, so it is made again.
            shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder.parent)
    sweep(folder.parent, folder.name)
    graph = build()
    try:
        graph.save(folder)
    except OSError as problem:
        if not (folder / "graph.json").exists():  # else another process was faster, and its copy is as good
            raise _failure("write", folder, problem) from None
    return Graph.open(folder), False


def make_folder(folder: Path) -> None:
    """Makes a folder of the cache before any work is done for it.

    Raises:
        JobiError: it cannot be made, or nothing can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise _failure("make", folder, problem) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise JobiError(f"cannot write in the cache folder {folder}: set JOBI_TF_HOME to a folder of yours")


def sweep(folder: Path, name: str) -> None:
    """Removes what processes that no longer run left beside `folder/name`."""
    pattern = left_behind(name)
    for left in folder.iterdir():
        match = pattern.fullmatch(left.name)
        if match and not _runs(int(match[1])):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    if os.name != "posix":
        return True  # elsewhere signal 0 would end the process instead of asking for it
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _failure(verb: str, path: Path, problem: OSError) -> JobiError:
    # NumPy reports a short write without an error number, as "8000 requested and 36 written".
    reason = problem.strerror or f"the disk is probably full ({problem})"
    return JobiError(f"cannot {verb} {path}: {reason}; JOBI_TF_HOME can name another cache folder")
