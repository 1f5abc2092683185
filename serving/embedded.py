"""The embedded server: loads models, opens the doors, watches for new versions, and ends."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from jobi_tf.errors import JobiError

from .batcher import Batcher
from .doors import Door, GrpcDoor, RestDoor
from .limits import Limits
from .metrics import Metrics
from .models import Model, Models
from .servable import Servable
from .service import Service
from .settings import ServerSettings
from .signature import Signature
from .versions import Version

Say = Callable[[str], None]
_log = logging.getLogger("jobi_tf.serving")


class EmbeddedServer:
    """The embedded server; `run` is its whole life.

    Args:
        settings: models, addresses and limits.
        say: is told what happens, a line each.
    """

    def __init__(self, settings: ServerSettings, say: Say) -> None:
        self._settings = settings
        self._say = _flushed(say)
        self._loading = ThreadPoolExecutor(1, "load")
        self._computing = ThreadPoolExecutor(max(2, os.cpu_count() or 1), "compute")
        self._models = Models(
            [
                Model(served, _load, self._loading, self._batcher, self._announce, self._say)
                for served in settings.models
            ]
        )
        self._metrics = Metrics(self._models.states)
        limits = Limits(settings, self._metrics.in_flight)
        self._service = Service(self._models, limits, self._metrics, settings.timeout)
        self._address = ""  # as it is told, once requests are answered

    async def run(self, stop: asyncio.Event) -> None:
        """Loads the models, serves until `stop` is set, finishes the requests in work, and returns.

        Raises:
            JobiError: an address is taken, a certificate cannot be used, or a model has no version to serve.
        """
        doors: list[Door] = []
        try:
            # Addresses are taken first: what is wrong with them shows before models are loaded.
            if self._settings.rest_port is not None:
                doors.append(RestDoor(self._settings, self._service))
            if self._settings.grpc_port is not None:
                doors.append(GrpcDoor(self._settings, self._service))
            loading = asyncio.ensure_future(self._load_all())
            await _first(loading, stop)
            if not stop.is_set():
                await self._serve(doors, stop)
        finally:
            await asyncio.gather(*(door.close() for door in doors))
            self._loading.shutdown(wait=False, cancel_futures=True)
            self._computing.shutdown(wait=False)

    async def _load_all(self) -> None:
        for model in self._models:
            await model.refresh()
            if not model.available:
                raise JobiError(model.nothing_to_serve())

    async def _serve(self, doors: list[Door], stop: asyncio.Event) -> None:
        for door in doors:
            await door.open()
        self._address = " and ".join(door.address for door in doors)
        for model in self._models:
            self._announce(model.name, model.find())
        watching = asyncio.ensure_future(self._watch())
        await stop.wait()
        watching.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._settings.poll)
            for model in self._models:
                try:
                    await model.refresh()
                except Exception:
                    _log.exception("looking for new versions of %s failed", model.name)

    def _announce(self, model: str, version: Version) -> None:
        if self._address:
            self._say(f"serving {model} version {version.number} at {self._address}")

    def _batcher(self, model: str, servable: Servable, signature: Signature) -> Batcher:
        return Batcher(
            partial(servable.predict, signature.name),
            self._computing,
            self._settings.batch_rows if signature.batched else None,
            self._settings.batch_wait,
            partial(self._metrics.computed, model, signature.name),
        )


def _load(folder: Path) -> Servable:
    servable = Servable(folder)
    servable.warm_up()
    return servable


async def _first(loading: asyncio.Future[None], stop: asyncio.Event) -> None:
    """Waits until all is loaded, or the server is told to stop before."""
    stopping = asyncio.ensure_future(stop.wait())
    both: list[asyncio.Future[Any]] = [loading, stopping]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if loading.done():
        loading.result()
    else:
        loading.cancel()


def _flushed(say: Say) -> Say:
    def flushed(line: str) -> None:
        with suppress(OSError):  # whoever listened has gone; those who ask have not
            say(line)
            sys.stdout.flush()

    return flushed
