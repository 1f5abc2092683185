import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from jobi_tf.datasets import load_graph
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
    assert graph.num_entities == 5
    assert f"downloading {url}" in capsys.readouterr().err
    assert [p.name for p in (home / "archives").iterdir()] == ["umls.tar.gz"]
    (home / "graphs" / "umls" / "graph.json").unlink()
    assert load_graph("umls").fingerprint == graph.fingerprint  # prepared again, not downloaded again


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            lambda request: request.send_error(404),
            "the server answered 404 Not Found; fetch umls.tar.gz by other means",
        ),
        (lambda request: request.wfile.close(), r"cannot download http.*JOBI_TF_ARCHIVES"),
        (content(b"abc", 10), r"the connection ended after 3 of 10 bytes.*--archive PATH"),
        (content(b"<html>"), r"expected umls.tar.gz with sha256 \w+, got \w+.*--archive PATH"),
    ],
    ids=["404", "no answer", "too short", "another file"],
)
def test_failed_download_leaves_nothing(tiny, home, monkeypatch, answer, words):
    with serve(answer) as url:
        monkeypatch.setitem(DATASETS, "umls", replace(tiny[0], url=url))
        with pytest.raises(JobiError, match=words) as caught:
            load_graph("umls")
    assert "\n" not in str(caught.value)
    assert ".tmp" not in str(caught.value)
    assert not list(home.rglob("*umls*"))


def test_no_network(tiny):
    with pytest.raises(
        JobiError, match=r"cannot download http://127.0.0.1:9/umls.tar.gz: .*refused; fetch umls.tar.gz"
    ):
        load_graph("umls")


def test_time_out(tiny, monkeypatch):
    monkeypatch.setattr("jobi_tf.datasets.download._TIMEOUT", 0.2)
    done = threading.Event()
    with serve(lambda request: done.wait(5)) as url:
        monkeypatch.setitem(DATASETS, "umls", replace(tiny[0], url=url))
        with pytest.raises(JobiError, match=r"timed out; fetch umls.tar.gz"):
            load_graph("umls")
        done.set()


def test_members_are_verified_where_the_archive_has_no_digest(tiny, home, monkeypatch):
    facts, path = tiny
    with serve(content(path.read_bytes())) as url:
        facts = replace(facts, url=url, sha256=None, member_blobs={"train": "0000"})
        monkeypatch.setitem(DATASETS, "umls", facts)
        with pytest.raises(DataError, match=r"expected train.txt of UMLS with git blob id 0000"):
            load_graph("umls")
    assert not list(home.rglob("*umls*"))
