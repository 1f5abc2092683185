"""Python environments of other libraries, made once and kept in the cache."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobi_tf.datasets import cache
from jobi_tf.errors import JobiError

from .child import run


@dataclass(frozen=True)
class Peer:
    """Another library.

    Args:
        name: what `--peer-python` takes.
        title: how it calls itself, with the version.
        requirements: what pip installs.
        newest_python: the newest Python that it runs on, as (3, 11); None for the one that runs this.
    """

    name: str
    title: str
    requirements: Sequence[str]
    newest_python: tuple[int, int] | None = None

    @property
    def script(self) -> Path:
        """What times it."""
        return Path(__file__).with_name("peers") / f"{self.name}_complex.py"


PEERS = {
    peer.name: peer
    for peer in (
        Peer("pykeen", "PyKEEN 1.11.1", ("torch==2.13.0", "pykeen==1.11.1")),
        Peer("ampligraph", "AmpliGraph 2.2.0", ("ampligraph==2.2.0",), (3, 11)),
        Peer("libkge", "LibKGE", ("torch==2.13.0", "git+https://github.com/uma-pi1/kge.git")),
    )
}


def environment(peer: Peer, say: Callable[[str], None]) -> Path:
    """Returns the Python of a peer's environment; makes it in the cache where it is not there yet.

    Raises:
        JobiError: there is no Python for it, or pip could not install it.
    """
    folder = cache.home() / "peers" / f"{peer.name}-{'-'.join(peer.requirements[-1].split('==')[1:]) or 'git'}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if complete.exists():
        return python
    base = _python(peer)
    cache.make_folder(folder.parent)
    shutil.rmtree(folder, ignore_errors=True)
    say(f"  making an environment for {peer.title} in {folder}; this downloads a lot and is done once")
    try:
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *peer.requirements]
        for command in ([str(base), "-m", "venv", str(folder)], pip):
            _, error = run(command, say)
            if error is not None:
                raise JobiError(f"{peer.title} cannot be installed: {error}")
        complete.touch()
    finally:
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)
    return python


def _python(peer: Peer) -> Path:
    if peer.newest_python is None:
        return Path(sys.executable)
    for python in _pythons(peer.newest_python):
        if _version(python) is not None and _version(python) <= peer.newest_python:  # type: ignore[operator]
            return python
    newest = ".".join(map(str, peer.newest_python))
    raise JobiError(f"{peer.title} needs Python {newest} or older, and there is none here")


def _pythons(newest: tuple[int, int]) -> Iterator[Path]:
    yield Path(sys.executable)
    for minor in range(newest[1], 7, -1):
        if found := shutil.which(f"python3.{minor}"):
            yield Path(found)


def _version(python: Path) -> tuple[int, int] | None:
    """Returns the version of a Python, None of one that does not run, as a shim of a version manager may not."""
    code = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    try:
        said = subprocess.run([python, "-c", code], capture_output=True, text=True)
    except OSError:
        return None
    if said.returncode:
        return None
    major, minor = said.stdout.split()
    return int(major), int(minor)
