"""Servers that run in a thread of the tests, and what they serve."""

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jobi_tf.serving.settings import ServedModel, ServerSettings
from tests.serving.exports import odd_export, tiny_export, tiny_run


@dataclass
class Running:
    """A server that runs in a thread, and what it said."""

    said: list[str] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def rest(self) -> str:
        return self.ready.split(" at ")[1].split(" and ")[0]

    @property
    def grpc(self) -> str:
        return self.ready.rsplit("//", 1)[1]

    @property
    def port(self) -> int:
        return int(self.rest.rsplit(":", 1)[1])

    @property
    def ready(self) -> str:
        return next(line for line in self.said if line.startswith("serving "))

    def ask(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None, method: str | None = None, **more: Any
    ) -> tuple[int, Any]:
        """Sends a request; returns status and JSON (or text). A body that is no bytes goes as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.rest + path, data, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20, **more) as answer:
                return answer.status, _content(answer)
        except urllib.error.HTTPError as error:
            self.headers = dict(error.headers)
            return error.code, _content(error)

    def predict(self, body: Any, model: str = "tiny", **options: Any) -> tuple[int, Any]:
        return self.ask(f"/v1/models/{model}:predict", body, **options)


def _content(answer: Any) -> Any:
    content = answer.read()
    return json.loads(content) if answer.headers["content-type"] == "application/json" else content.decode()


@contextmanager
def running(*models: ServedModel, **options: Any) -> Iterator[Running]:
    """Runs a server on ports that the system chooses, until the block ends."""
    from jobi_tf.serving.embedded import EmbeddedServer

    settings = ServerSettings(models, **{"rest_port": 0, "grpc_port": 0, "poll": 0.05, **options})
    server = Running()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def run() -> None:
        try:
            loop.run_until_complete(EmbeddedServer(settings, server.said.append).run(stop))
        except BaseException as error:
            server.error = error

    thread = threading.Thread(target=run)
    thread.start()
    try:
        eventually(lambda: server.error or any(line.startswith("serving ") for line in server.said))
        if server.error:
            raise server.error
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        assert not thread.is_alive()
        loop.close()


def eventually(condition: Callable[[], Any], seconds: float = 30) -> None:
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A run, and the folder of its export as versions 1 and 2; the scores of 2 are twice those of 1."""
    folder = tmp_path_factory.mktemp("tiny")
    run = tiny_run(folder / "run")
    tiny_export(run, folder / "export")
    return run, folder / "export"


@pytest.fixture(scope="session")
def odd(tmp_path_factory) -> Path:
    """The folder of a SavedModel whose signatures are none of an export's."""
    folder = tmp_path_factory.mktemp("odd")
    odd_export(folder)
    return folder


@pytest.fixture(scope="module")
def server(tiny, odd) -> Iterator[Running]:
    """A server of both."""
    models = (ServedModel("tiny", tiny[1], latest=2, labels={"stable": 1, "none": 7}), ServedModel("odd", odd))
    with running(*models, max_rows=100, max_body=100_000) as server:
        yield server
