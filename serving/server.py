"""The embedded server: TensorFlow Serving's REST and gRPC in one process."""

from __future__ import annotations

import asyncio
import gc
import importlib
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from jobi_tf.errors import MissingExtraError

from .settings import ServerSettings

if TYPE_CHECKING:
    from .embedded import EmbeddedServer

_NEEDED = ("grpc", "starlette", "uvicorn", "httptools", "prometheus_client", "tensorflow_serving.apis")
Say = Callable[[str], None]


def serve(settings: ServerSettings, say: Say = print) -> None:
    """Serves until SIGTERM or SIGINT; then finishes the requests in work and returns.

    Args:
        settings: models, addresses and limits.
        say: is told, a line each, which versions are served where, and what becomes of versions.

    Raises:
        MissingExtraError: a library for it is not installed.
        JobiError: an address is taken, a certificate cannot be used, or a model has no version that can be served.
    """
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise MissingExtraError(f"serving needs {name.split('.')[0]}: pip install 'jobi-tf[serving]'") from error
    from .embedded import EmbeddedServer

    gc.collect()
    gc.freeze()  # the collector need not look through TensorFlow again and again, which stops everything for 0.1 s
    asyncio.run(_until_told(EmbeddedServer(settings, say)))


async def _until_told(server: EmbeddedServer) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Signals come to the main thread only; elsewhere the server is its process' affair.
    signals = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    try:
        await server.run(stop)
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
