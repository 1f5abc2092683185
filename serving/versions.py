"""A version of a model, from its folder to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from .batcher import Batcher
from .errors import Code
from .names import Names
from .signature import Signature

if TYPE_CHECKING:
    from .servable import Servable

Files = frozenset[tuple[str, int, int]]  # path, bytes and time of each file


class State(IntEnum):
    """The states of TensorFlow Serving's `ModelVersionStatus`."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


class Version:
    """A version of a model.

    Args:
        number: its number.
        folder: where it lies.
        files: what its folder held when its loading began.

    Attributes:
        state: where it stands.
        code: OK, unless it cannot be served.
        error: why it cannot be served; empty if it can.
    """

    def __init__(self, number: int, folder: Path, files: Files) -> None:
        self.number = number
        self.folder = folder
        self.files = files
        self.state = State.START
        self.code = Code.OK
        self.error = ""
        self._servable: Servable | None = None
        self._batchers: dict[str, Batcher] = {}
        self._names: asyncio.Future[Names] | None = None
        self._in_work = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def servable(self) -> Servable:
        """The loaded model; there is one while the version is available, and in use."""
        assert self._servable is not None
        return self._servable

    def begin(self, servable: Servable, batcher: Callable[[Signature], Batcher]) -> None:
        """Takes the version into service."""
        self._servable = servable
        self._batchers = {name: batcher(signature) for name, signature in servable.signatures.items()}
        self.state = State.AVAILABLE

    def fail(self, reason: str) -> None:
        """Notes that the version cannot be loaded."""
        self.code = Code.FAILED_PRECONDITION
        self.error = reason
        self.state = State.END

    @property
    def broken(self) -> bool:
        """Whether it could not be loaded."""
        return self.code != Code.OK

    def batcher(self, signature: str) -> Batcher:
        """Computes the requests to a signature."""
        return self._batchers[signature]

    def names(self) -> asyncio.Future[Names]:
        """The names that the version knows; read when they are first asked for."""
        if self._names is None:
            loop = asyncio.get_running_loop()
            self._names = asyncio.ensure_future(loop.run_in_executor(None, Names.read, self.folder))
        return self._names

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keeps the version in memory while a request needs it."""
        self._in_work += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_work -= 1
            if self._in_work == 0:
                self._idle.set()

    async def end(self) -> Servable:
        """Takes no more requests, waits for those in work, and gives the model back, to be freed."""
        self.state = State.UNLOADING
        await self._idle.wait()
        servable = self.servable
        self._servable = None
        self._batchers = {}
        self._names = None
        return servable
