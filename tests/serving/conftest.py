"""Servers that run in a thread of the tests, and what they serve."""

import asyncio
import json
import re
import shutil
import subprocess
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

from jobi_tf.serving.saved_model import Signature
from jobi_tf.serving.settings import ServerSettings
from tests.serving.exports import odd_export, tiny_export, tiny_run


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.processes)


@dataclass
class Running:
    """A server that runs in a thread, what it logged, and its addresses once it serves."""

    name: str
    log: list[str] = field(default_factory=list)
    error: BaseException | None = None
    url: str = ""
    grpc: str = ""

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(self.url.rsplit(":", 1)[1])

    def ready(self) -> bool:
        found = [re.findall(r"(\w+://\S+)", line) for line in self.log if line.startswith("serving ")]
        if found:
            self.url, self.grpc = found[0][0], found[0][1].split("//")[1]
        return bool(found or self.error)

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
        eventually(server.ready)
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


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    """Files of a certificate for 127.0.0.1, and of its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def release(monkeypatch) -> Iterator[threading.Event]:
    """Holds every computation of the signature `count` until it is set."""
    event, compute = threading.Event(), Signature.compute

    def held(signature, *inputs):
        assert signature.name != "count" or event.wait(60)
        return compute(signature, *inputs)

    monkeypatch.setattr(Signature, "compute", held)
    yield event
    event.set()


@pytest.fixture(scope="module")
def server(first) -> Iterator[Running]:
    with running(first, max_rows=3000, max_body=100_000) as server:
        yield server


@pytest.fixture(scope="module")
def odd_server(odd) -> Iterator[Running]:
    """A server with narrow limits."""
    with running(odd, max_requests=3, max_body=2000, max_rows=10, timeout=1.0) as server:
        yield server
