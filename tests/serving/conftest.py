"""Servers that run in a thread of the tests, and what they serve."""

import asyncio
import json
import re
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

from jobi_tf.serving.settings import ServerSettings
from tests.serving.exports import odd_export, tiny_export, tiny_run


@dataclass
class Running:
    """A server that runs in a thread, and what it logged."""

    name: str
    log: list[str] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def addresses(self) -> list[str]:
        return next((re.findall(r"\S+://(\S+)", line) for line in self.log if line.startswith("serving ")), [])

    @property
    def url(self) -> str:
        return re.findall(r"https?://\S+", self.log[-1] if not self.addresses else "\n".join(self.log))[0]

    @property
    def grpc(self) -> str:
        return self.addresses[1]

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.addresses[0].rsplit(":", 1)
        return host, int(port)

    def send(
        self, path: str, body: Any = None, headers: dict[str, Any] | None = None, method: str | None = None, **more: Any
    ) -> tuple[int, Any]:
        """Sends a request; returns status and JSON (or text). A body that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20, **more) as answer:
                return answer.status, _content(answer)
        except urllib.error.HTTPError as error:
            return error.code, _content(error)

    def predict(self, body: Any, **options: Any) -> tuple[int, Any]:
        return self.send(f"/v1/models/{self.name}:predict", body, **options)

    def metrics(self) -> str:
        return self.send("/metrics")[1]


def _content(answer: Any) -> Any:
    content = answer.read()
    return json.loads(content) if answer.headers["content-type"] == "application/json" else content.decode()


@contextmanager
def running(folder: Path, **options: Any) -> Iterator[Running]:
    """Runs a server on ports that the system chooses, until the block ends."""
    from jobi_tf.serving import server as module

    settings = ServerSettings(folder, **{"rest_port": 0, "grpc_port": 0, "poll": 0.05, **options})
    server = Running(settings.name)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def run() -> None:
        try:
            loop.run_until_complete(module.run(settings, stop, server.log.append))
        except BaseException as error:
            server.error = error
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        eventually(lambda: server.error or server.addresses)
        if server.error:
            raise server.error
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        assert not thread.is_alive()
        loop.close()


def eventually(condition: Callable[[], Any], seconds: float = 30) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition does not hold"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A run, and the folder of its export as versions 1 and 2; the scores of 2 are twice those of 1."""
    folder = tmp_path_factory.mktemp("exports")
    run = tiny_run(folder / "run")
    tiny_export(run, folder / "tiny")
    return run, folder / "tiny"


@pytest.fixture(scope="session")
def first(tiny, tmp_path_factory) -> Path:
    """A folder with version 1 only, whose scores are those of the run."""
    folder = tmp_path_factory.mktemp("first") / "tiny"
    folder.mkdir()
    (folder / "1").symlink_to(tiny[1] / "1")
    return folder


@pytest.fixture(scope="session")
def odd(tmp_path_factory) -> Path:
    """The folder of a SavedModel that is not an export."""
    folder = tmp_path_factory.mktemp("exports") / "odd"
    odd_export(folder)
    return folder


@pytest.fixture(scope="module")
def server(first) -> Iterator[Running]:
    with running(first, max_rows=3000, max_body=100_000) as server:
        yield server


@pytest.fixture(scope="module")
def odd_server(odd) -> Iterator[Running]:
    """A server with narrow limits."""
    with running(odd, max_requests=3, max_body=2000, max_rows=10, timeout=1.0) as server:
        yield server
