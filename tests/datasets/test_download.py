import contextlib
import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from jobi_tf.datasets import archives, load_graph
from jobi_tf.datasets.catalogue import DATASETS
from jobi_tf.errors import DataError, JobiError


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@contextlib.contextmanager
def serve(answer: Callable[[http.server.BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/umls.tar.gz"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def content(data: bytes, length: int | None = None) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(length or len(data)))
        request.end_headers()
        request.wfile.write(data)

    return answer


def test_download_is_kept(tiny, home, monkeypatch, capsys):
    facts, path = tiny
    with serve(content(path.read_bytes())) as url:
        monkeypatch.setitem(DATASETS, "umls", replace(facts, url=url))
        graph = load_graph("umls")
    assert graph.num_entities == 4
    assert url in capsys.readouterr().err
    assert [p.name for p in (home / "archives").iterdir()] == ["umls.tar.gz"]
    (home / "graphs" / "umls" / "graph.json").unlink()
    assert load_graph("umls").fingerprint == graph.fingerprint  # prepared again, not downloaded again


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda request: request.send_error(404), "404 Not Found"),
        (lambda request: request.wfile.close(), "cannot download"),
        (content(b"abc", 10), "cannot download"),
        (content(b"<html>"), r"not the expected archive"),
    ],
    ids=["404", "no answer", "too short", "another file"],
)
def test_failed_download_leaves_nothing(tiny, home, monkeypatch, answer, words):
    with serve(answer) as url:
        monkeypatch.setitem(DATASETS, "umls", replace(tiny[0], url=url))
        with pytest.raises(JobiError, match=words) as caught:
            load_graph("umls")
    assert all(word in str(caught.value) for word in (url, "umls.tar.gz", "--archive PATH", "JOBI_TF_ARCHIVES"))
    assert "\n" not in str(caught.value)
    assert not list((home / "archives").iterdir())


def test_no_network(tiny):
    with pytest.raises(JobiError, match=r"cannot download http://127.0.0.1:9/umls.tar.gz: .*refused"):
        load_graph("umls")


def test_time_out(tiny, home, monkeypatch):
    monkeypatch.setattr(archives, "_TIMEOUT", 0.2)
    done = threading.Event()
    with serve(lambda request: done.wait(5)) as url:
        monkeypatch.setitem(DATASETS, "umls", replace(tiny[0], url=url))
        with pytest.raises(JobiError, match="cannot download"):
            load_graph("umls")
        done.set()
    assert not list((home / "archives").iterdir())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"digests": {"umls.tar.gz": "git:0000"}}, r"umls.tar.gz.* git 0000"),
        ({"digests": {"train.txt": "git:0000"}}, r"train.txt.* git 0000"),
        ({"digests": {}, "entities": 7}, r"7 entities"),
    ],
)
def test_all_that_is_known_is_verified_in_downloads(tiny, home, monkeypatch, change, words):
    facts, path = tiny
    with serve(content(path.read_bytes())) as url:
        monkeypatch.setitem(DATASETS, "umls", replace(facts, url=url, **change))
        with pytest.raises(DataError, match=words):
            load_graph("umls")
    assert not list((home / "archives").iterdir())


KILLED = """
import dataclasses, sys
from jobi_tf.datasets import archives, load_graph
from jobi_tf.datasets.catalogue import DATASETS
DATASETS["umls"] = dataclasses.replace(DATASETS["umls"], url=sys.argv[1])
load_graph("umls")
"""


def test_killed_download_is_removed(tiny, home, monkeypatch):
    facts, path = tiny

    def half(request: http.server.BaseHTTPRequestHandler) -> None:
        content(b"x" * 100_000, 200_000)(request)
        done.wait(30)

    done = threading.Event()
    with serve(half) as url:
        process = subprocess.Popen([sys.executable, "-c", KILLED, url], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not [left for left in home.glob("archives/*") if left.stat().st_size]:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.wait()
        done.set()
    (left,) = home.glob("archives/*")
    with serve(content(path.read_bytes())) as url:
        monkeypatch.setitem(DATASETS, "umls", replace(facts, url=url))
        load_graph("umls")
        assert left.exists()  # it might be the download of another process
        os.utime(left, (1, 1))
        (home / "archives" / "umls.tar.gz").unlink()
        (home / "graphs" / "umls" / "graph.json").unlink()
        load_graph("umls")
    assert [p.name for p in (home / "archives").iterdir()] == ["umls.tar.gz"]
