"""The versions of the model that is served: how one replaces another, and what answers a request."""

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from grpc import StatusCode

from jobi_tf.errors import DataError, JobiError

from .errors import ServingError, invalid
from .metrics import Metrics
from .names import NameList
from .saved_model import Arrays, SavedModel, Signature
from .settings import ServerSettings

MOST_ANSWERS = 2**20  # of a request, by which its memory is bounded
LAST_VERSION = 2**63 - 1  # messages store the number of a version in 64 bits
Files = frozenset[tuple[str, int, int]]  # path, bytes and time of change


@dataclass(eq=False)
class Version:
    """A version of the model, from its folder to its end."""

    number: int
    folder: Path
    files: Files  # when it was loaded
    state: str = "START"  # as in TensorFlow Serving's `ModelVersionStatus`
    error: str = ""  # why it cannot be served
    model: SavedModel | None = None  # while it is in memory
    names: dict[str, asyncio.Task[NameList]] = field(default_factory=dict)  # by kind, read when they are needed first
    requests: int = 0  # that use the version

    @contextmanager
    def in_use(self) -> Iterator[SavedModel]:
        """Keeps the version in memory."""
        assert self.model is not None
        self.requests += 1
        try:
            yield self.model
        finally:
            self.requests -= 1


class Model:
    """The versions in a folder; the newest is loaded and served, and `log` gets a line when that changes."""

    def __init__(self, settings: ServerSettings, metrics: Metrics, log: Callable[[str], None]) -> None:
        self.name = settings.name
        self.versions: dict[int, Version] = {}
        self._settings = settings
        self._metrics = metrics
        self._log = log
        self._addresses = ""
        self._files: dict[int, Files] = {}  # of folders that were seen but not loaded
        self._threads = ThreadPoolExecutor(max(2, os.cpu_count() or 1), "compute")

    @property
    def available(self) -> list[Version]:
        """The versions that answer, newest first."""
        return sorted((v for v in self.versions.values() if v.state == "AVAILABLE"), key=lambda v: -v.number)

    def find(self, name: str, number: int | None = None) -> Version:
        """Returns the available version of a number, by default the newest; raises a `ServingError` without one."""
        for version in self.available if name == self.name else ():
            if number in (None, version.number):
                return version
        which = f"Latest({name})" if number is None else f"Specific({name}, {number})"
        raise ServingError(StatusCode.NOT_FOUND, f"Servable not found for request: {which}")

    def status(self, name: str, number: int | None = None) -> list[Version]:
        """Returns the version of a number, by default all, newest first; raises a `ServingError` without one."""
        versions = [v for v in self.versions.values() if name == self.name and number in (None, v.number)]
        if not versions:
            what = f"any versions of model {name}" if number is None else f"version {number} of model {name}"
            raise ServingError(StatusCode.NOT_FOUND, f"Could not find {what}")
        return sorted(versions, key=lambda version: -version.number)

    async def predict(
        self,
        name: str,
        number: int | None,
        signature: str,
        read: Callable[[Signature], Awaitable[Arrays]],
        seconds: float | None = None,
    ) -> tuple[Version, Signature, dict[str, np.ndarray]]:
        """Computes all outputs of a signature for the inputs that `read` returns, within the time the client allows.

        Without a number it is the newest version, and without a name `serving_default`.

        Raises:
            ServingError: there is no such version or signature, the inputs do not fit, or the time is over.
        """
        version = self.find(name, number)
        with version.in_use() as model:
            found = model.signatures.get(signature or "serving_default")
            if found is None:
                raise ServingError(StatusCode.FAILED_PRECONDITION, f'Serving signature key "{signature}" not found.')
            self._metrics.signature(found.name)
            limit = min(self._settings.timeout, math.inf if seconds is None else seconds)
            try:
                async with asyncio.timeout(limit):
                    inputs = await read(found)
                    rows = found.check(inputs)
                    self.check_rows(rows)
                    k = int(inputs["k"].max(initial=0)) if "k" in inputs else 0
                    if rows * k > MOST_ANSWERS:
                        raise invalid(f"expected at most {MOST_ANSWERS:,} answers to a request, got {rows:,} × {k:,}")
                    return version, found, await found.predict(inputs, rows)
            except TimeoutError:
                message = f"expected an answer within {limit:g} s"
                raise ServingError(StatusCode.DEADLINE_EXCEEDED, message) from None

    def check_rows(self, rows: int) -> None:
        """Raises a `ServingError` for more rows than a request may have."""
        if rows > self._settings.max_rows:
            raise invalid(f"expected at most {self._settings.max_rows} rows in a request, got {rows}")

    async def load(self) -> None:
        """Loads the newest version for the first time; raises a `JobiError` without one."""
        await self.refresh(settled=False)
        if not self.available:
            folder = self._settings.folder
            if self.versions:  # the log has the reasons
                raise JobiError(
                    f"expected exported versions in {folder}, got {len(self.versions)} that cannot be served"
                )
            hint = f": it is a version, so serve {folder.parent}" if (folder / "saved_model.pb").is_file() else ""
            raise JobiError(f"expected exported versions in {folder}, got none{hint}")

    def announce(self, addresses: str) -> None:
        """Logs which version is served, now and whenever another one is loaded."""
        self._addresses = addresses
        self._log_loaded(self.available[0])

    def _log_loaded(self, version: Version) -> None:
        self._log(f"serving {self.name} version {version.number} at {self._addresses}")

    async def refresh(self, settled: bool = True) -> None:
        """Loads the newest version of the folder that can be loaded, then unloads all others.

        Args:
            settled: leave a folder that is new for the next time, as it may still be copied, and load it if its files
                are the same by then.
        """
        folders = await asyncio.to_thread(_version_folders, self._settings.folder)
        seen: dict[int, Files] = {}
        for number in sorted(folders, reverse=True):
            version = self.versions.get(number)
            served = version is not None and version.state == "AVAILABLE"
            seen[number] = files = await asyncio.to_thread(_files, folders[number])
            tried = version is not None and version.files == files and (served or version.error)
            changing = settled and self._files.get(number) != files  # files may still arrive
            loaded = not tried and not changing and await self._load(Version(number, folders[number], files))
            if not served and not loaded:
                continue
            for other in self.available:
                if other.number != number:
                    await self._unload(other)
            break
        self._files = seen

    async def _load(self, version: Version) -> bool:
        """Loads a version. If one of the same number is served, that goes on until the new one is loaded."""
        before = self.versions.get(version.number)
        served = before if before and before.state == "AVAILABLE" else None
        if before:  # so that the metric of its last state is set to 0
            version.state = before.state
        if not served:
            self.versions[version.number] = version
            self._set_state(version, "LOADING")
        try:
            model = await asyncio.to_thread(SavedModel, version.folder, self._threads, self._metrics)
            if await asyncio.to_thread(_files, version.folder) != version.files:
                model.close()
                raise DataError(f"expected the files of {version.folder} not to change while they are loaded")
        except JobiError as error:
            version.error = str(error)
            self._log(f"cannot serve {self.name} version {version.number}: {error}")
            if served:
                served.files = version.files  # which are not tried again
            else:
                self._set_state(version, "END")
            return False
        version.model = model
        self.versions[version.number] = version
        self._set_state(version, "AVAILABLE")
        if self._addresses:
            self._log_loaded(version)
        if served:
            await self._close(served)
        return True

    async def _unload(self, version: Version) -> None:
        self._set_state(version, "UNLOADING")
        await self._close(version)
        self._set_state(version, "END")
        self._log(f"no longer serving {self.name} version {version.number}")

    async def _close(self, version: Version) -> None:
        """Frees the memory of a version when no request uses it any more."""
        while version.requests:
            await asyncio.sleep(0.02)
        assert version.model is not None
        await asyncio.to_thread(version.model.close)
        version.model, version.names = None, {}

    def _set_state(self, version: Version, state: str) -> None:
        self._metrics.version.labels(version.number, version.state).set(0)
        self._metrics.version.labels(version.number, state).set(1)
        version.state = state

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(wait=False)


def _version_folders(folder: Path) -> dict[int, Path]:
    """Returns the folders of versions by number; none if the folder cannot be read, as it may come back."""
    try:
        found = [path for path in folder.iterdir() if path.name.isascii() and path.name.isdigit() and path.is_dir()]
    except OSError:
        return {}
    return {int(path.name): path for path in found if int(path.name) <= LAST_VERSION}


def _files(folder: Path) -> Files:
    files = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            with suppress(OSError):  # it was removed since; loading will show whether it matters
                status = os.stat(path)
                files.append((path, status.st_size, status.st_mtime_ns))
    return frozenset(files)
