"""The models of a server, and the folders from which their versions come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

from jobi_tf.errors import DataError, JobiError

from .batcher import Batcher
from .errors import Code, Refusal, clean, invalid, shortened, without_folders
from .settings import ServedModel
from .signature import Signature
from .versions import Files, State, Version

if TYPE_CHECKING:
    from .servable import Servable


class Model:
    """A model and its versions, kept in step with its folder.

    Args:
        served: its name, folder and which versions are wanted.
        load: loads and warms up a version's folder; runs in a thread.
        thread: where versions are loaded and freed, one at a time.
        batcher: makes what computes the requests to a signature, given this model's name.
        taken_in: is told of versions that begin to answer.
        say: is told what becomes of versions, a line at a time.
    """

    def __init__(
        self,
        served: ServedModel,
        load: Callable[[Path], Servable],
        thread: Executor,
        batcher: Callable[[str, Servable, Signature], Batcher],
        taken_in: Callable[[str, Version], None],
        say: Callable[[str], None],
    ) -> None:
        self.name = served.name
        self.versions: dict[int, Version] = {}
        self._served = served
        self._load = load
        self._thread = thread
        self._batcher = batcher
        self._taken_in = taken_in
        self._say = say
        self._looked: dict[int, Files] | None = None  # what versions held that were not served yet; None at first
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def available(self) -> list[Version]:
        """The versions that answer, newest first."""
        return [version for version in self.listed() if version.state == State.AVAILABLE]

    def listed(self) -> list[Version]:
        """All versions that are known, newest first."""
        return sorted(self.versions.values(), key=lambda version: -version.number)

    def number_of(self, label: str) -> int:
        """The version that has a label.

        Raises:
            Refusal: none has.
        """
        if label not in self._served.labels:
            raise invalid(f"Unrecognized servable version label: {label}")
        return self._served.labels[label]

    def find(self, number: int | None = None) -> Version:
        """The available version of a number; the newest if none is given.

        Raises:
            Refusal: it is not available.
        """
        if number is None:
            available = self.available
            if not available:
                raise not_found(self.name, number)
            return available[0]
        version = self.versions.get(number)
        if version is None or version.state != State.AVAILABLE:
            raise not_found(self.name, number)
        return version

    async def refresh(self) -> None:
        """Looks into the folder once: loads what is wanted, then lets go of what is not."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._thread, _versions_in, self._served.folder)
        except OSError:  # what cannot be seen, on a network say, may still be there: nothing is let go
            return
        await self._forget_mended(found)
        looked = {}
        while missing := [number for number in self._wanted(found) if number not in self._held()]:
            number = missing[0]
            looked[number] = await loop.run_in_executor(self._thread, _files, found[number])
            if self._looked is None or self._looked.get(number) == looked[number]:
                await self._take_in(number, found[number], looked[number])
            else:  # it may still be copied: what is to be served must look the same twice
                del found[number]
        self._looked = looked
        wanted = self._wanted(found)
        if found and not any(number in wanted for number in self._held()):
            return
        for version in self.available:
            if version.number not in wanted:
                self._let_go(version)

    def nothing_to_serve(self) -> str:
        """What is said when there is no version to serve."""
        folder = self._served.folder
        if not folder.is_dir():
            return f"expected a folder of exported versions for the model {self.name}, but there is no {folder}"
        broken = [f"version {version.number}: {version.error}" for version in self.listed() if version.broken]
        if broken:
            return f"expected a version of {self.name} that can be served in {folder}, got {'; '.join(broken)}"
        return (
            f"expected exported versions, in folders named by their numbers, in {folder}, found none that is asked for"
        )

    def _held(self) -> set[int]:
        return {version.number for version in self.available}

    def _wanted(self, found: Iterable[int]) -> list[int]:
        """The versions that are to be served, newest first: broken ones make room for older ones."""
        sound = sorted((n for n in found if not (n in self.versions and self.versions[n].broken)), reverse=True)
        asked = {*self._served.versions, *self._served.labels.values()}
        newest = sound[: self._served.latest or 0]
        return [number for number in sound if number in asked or number in newest]

    async def _forget_mended(self, found: Mapping[int, Path]) -> None:
        """Forgets broken versions that were removed, or whose files are others now: those are tried again."""
        loop = asyncio.get_running_loop()
        for number, version in list(self.versions.items()):
            if version.broken:
                files = await loop.run_in_executor(self._thread, _files, version.folder)
                if number not in found or files != version.files:
                    del self.versions[number]

    async def _take_in(self, number: int, folder: Path, files: Files) -> None:
        version = Version(number, folder, files)
        version.state = State.LOADING
        self.versions[number] = version
        loop = asyncio.get_running_loop()
        try:
            servable = await loop.run_in_executor(self._thread, self._load, folder)
            if await loop.run_in_executor(self._thread, _files, folder) != files:
                await loop.run_in_executor(self._thread, servable.free)
                raise DataError(f"expected a version that is complete in {folder}, but its files were still changing")
        except Exception as error:  # whatever is wrong with it, the other versions go on
            reason = str(error) if isinstance(error, JobiError) else f"{type(error).__name__}: {error}"
            version.fail(without_folders(clean(reason)))
            self._say(f"cannot serve {self.name} version {number}: {reason}")
            return
        version.begin(servable, lambda signature: self._batcher(self.name, servable, signature))
        self._taken_in(self.name, version)

    def _let_go(self, version: Version) -> None:
        task = asyncio.ensure_future(self._end(version))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, version: Version) -> None:
        servable = await version.end()
        await asyncio.get_running_loop().run_in_executor(self._thread, servable.free)
        version.state = State.END
        self._say(f"no longer serving {self.name} version {version.number}")


class Models:
    """All models of a server, by name."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._models: Mapping[str, Model] = {model.name: model for model in models}

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def get(self, name: str) -> Model | None:
        """The model of a name, if there is one.

        Raises:
            Refusal: the name is empty.
        """
        if not name:
            names = shortened(", ".join(self._models), 200)
            raise invalid(f"ModelSpec has no name specified. Expected the name of a model that is served: {names}")
        return self._models.get(name)

    @property
    def healthy(self) -> bool:
        """Whether every model has a version that answers."""
        return all(model.available for model in self._models.values())

    def states(self) -> Iterable[tuple[str, int, str]]:
        """Model, number and state of every version."""
        for model in self._models.values():
            for version in model.listed():
                yield model.name, version.number, version.state.name


def not_found(model: str, number: int | None) -> Refusal:
    """What is said of a version, or of the newest one, that is not available."""
    sought = f"Latest({model})" if number is None else f"Specific({model}, {number})"
    return Refusal(Code.NOT_FOUND, f"Servable not found for request: {sought}")


def _versions_in(folder: Path) -> dict[int, Path]:
    """The folders of versions in a model's folder, by number."""
    return {
        int(path.name): path
        for path in folder.iterdir()
        if path.name.isascii() and path.name.isdigit() and path.is_dir()
    }


def _files(folder: Path) -> Files:
    """What a folder holds: names, sizes and times."""
    files = []
    for path in folder.rglob("*"):
        try:
            status = path.stat()
        except OSError:  # it has gone, or is not for us: loading will tell
            continue
        files.append((str(path), status.st_size, status.st_mtime_ns))
    return frozenset(files)
