import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from jobi_tf.errors import DataError, JobiError, UsageError
from jobi_tf.serving.client import Client
from jobi_tf.serving.settings import ServedModel
from tests.serving.conftest import eventually, running
from tests.serving.exports import ENTITIES, RELATIONS, TOP_K

PROTOCOLS = ("http", "grpc")
LOWEST = np.finfo(np.float32).min


def triples(count: int) -> list[tuple[str, str, str]]:
    rng = np.random.default_rng(0)
    columns = (rng.integers(size, size=count) for size in (ENTITIES, RELATIONS, ENTITIES))
    return [(f"entity {h}", f"relation {r}", f"entity {t}") for h, r, t in zip(*columns, strict=True)]


def at(server, protocol: str) -> str:
    return server.rest if protocol == "http" else f"grpc://{server.grpc}"


@pytest.fixture(scope="module")
def server(tiny):
    with running(ServedModel("tiny", tiny[1], latest=2, labels={"stable": 1})) as server:
        yield server


@pytest.fixture(scope="module", params=PROTOCOLS)
def url(server, request) -> str:
    return at(server, request.param)


@pytest.fixture(scope="module")
def client(url):
    """Asks version 1, which is the run."""
    with Client(url, "tiny", version=1) as client:
        yield client


def test_scores_are_those_of_the_run(client, tiny):
    asked = triples(2500)  # three requests
    scores = client.score(asked)
    np.testing.assert_allclose(scores.score, tiny[0].score(asked), rtol=1e-5, atol=1e-6)
    assert [field.dtype for field in scores] == [np.float32, np.float32, bool]
    assert scores.known.all()
    assert ((scores.probability > 0) & (scores.probability < 1)).all()


def test_unknown_names_are_marked(client):
    scores = client.score([("entity 1", "relation 1", "nope"), ("entity 1", "relation 1", "entity 2")])
    assert scores.known.tolist() == [False, True]
    assert scores.score[0] == LOWEST
    assert scores.probability[0] == 0


def test_best_answers_are_those_of_the_run(client, tiny):
    run = tiny[0]
    for got, expected in (
        (client.tails("entity 3", "relation 1"), run.tails("entity 3", "relation 1", TOP_K)),
        (client.heads("relation 1", "entity 3"), run.heads("relation 1", "entity 3", TOP_K)),
    ):
        assert [answer.entity for answer in got] == [answer.entity for answer in expected]
        assert [answer.seen for answer in got] == [answer.known for answer in expected]
        np.testing.assert_allclose([x.score for x in got], [x.score for x in expected], rtol=1e-4)
        assert all(0 < answer.probability < 1 for answer in got)
    assert client.top_k() == TOP_K


def test_many_queries_are_split(client):
    queries = [(head, relation) for head, relation, _ in triples(1100)]
    answers = client.tails_of(queries)
    assert len(answers) == 1100
    for i in (0, 1023, 1024, 1099):
        assert [x.entity for x in answers[i]] == [x.entity for x in client.tails(*queries[i])]
    heads = client.heads_of([(relation, entity) for entity, relation in queries[:3]])
    assert [len(row) for row in heads] == [TOP_K] * 3


def test_embeddings(client, tiny):
    run = tiny[0]
    got = client.embed(["entity 3", "nope"])
    assert got.known.tolist() == [True, False]
    table = run.model.entity.value.numpy()
    np.testing.assert_allclose(got.embedding[0], table[run.graph.entities.id("entity 3")], rtol=1e-6)
    assert not got.embedding[1].any()
    assert got.embedding.dtype == np.float32


def test_nothing_asked_nothing_sent(client):
    assert [len(field) for field in client.score([])] == [0, 0, 0]
    assert client.tails_of([]) == client.heads_of([]) == []
    assert len(client.embed([]).embedding) == 0


def test_version_and_label(url, tiny):
    asked = triples(20)
    expected = tiny[0].score(asked)
    for choice, factor in (({}, 2), ({"version": 1}, 1), ({"version": 2}, 2), ({"label": "stable"}, 1)):
        with Client(url, "tiny", **choice) as client:
            np.testing.assert_allclose(client.score(asked).score, factor * expected, rtol=1e-5, atol=1e-6)
    with Client(url, "tiny") as client:
        assert [(x.version, x.state, x.error) for x in client.status()] == [(2, "AVAILABLE", ""), (1, "AVAILABLE", "")]
    with Client(url, "tiny", version=7) as client, pytest.raises(JobiError, match=r"Specific\(tiny, 7\)"):
        client.score(asked)
    with pytest.raises(UsageError, match="expected a version or a label, got version 1 and label 'stable'"):
        Client(url, "tiny", version=1, label="stable")


def test_unknown_names_of_queries_are_named(client):
    with pytest.raises(DataError, match=r"^unknown entity: nope$"):
        client.tails("nope", "relation 1")
    with pytest.raises(DataError, match=r"^unknown relation: nope$"):
        client.heads("nope", "entity 1")


def test_the_only_model_needs_no_name(server, tiny, odd):
    with Client(server.rest) as client:
        assert client.model == "tiny"
    with pytest.raises(UsageError, match=r"expected the name of a model at grpc://.*: the server does not tell"):
        Client(f"grpc://{server.grpc}")
    with running(ServedModel("tiny", tiny[1]), ServedModel("odd", odd)) as two:
        with pytest.raises(UsageError, match="it serves tiny, odd"):
            Client(two.rest)
        with (
            Client(two.rest, "odd") as client,
            pytest.raises(JobiError, match=r"'odd' at .*: it is no export of a run"),
        ):
            client.top_k()


def test_unknown_model(url):
    with (
        Client(url, "other") as client,
        pytest.raises(JobiError, match=r"Servable not found for request: Latest\(other"),
    ):
        client.score(triples(1))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_that_starts_is_waited_for(tiny, protocol):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        Client(f"{protocol}://127.0.0.1:{port}", "tiny", timeout=30, retries=20) as client,
        ThreadPoolExecutor() as pool,
    ):
        future = pool.submit(client.score, triples(3))
        time.sleep(0.5)
        ports = {"rest_port": 0, "grpc_port": 0, {"http": "rest_port", "grpc": "grpc_port"}[protocol]: port}
        with running(ServedModel("tiny", tiny[1]), **ports):
            assert future.result().known.all()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nobody_there(protocol):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Client(f"{protocol}://127.0.0.1:{port}", "tiny", retries=2) as client:
        before = time.monotonic()
        with pytest.raises(JobiError, match=rf"cannot reach {protocol}://127.0.0.1:{port}: .*refused.* \(3 attempts\)"):
            client.score(triples(1))
        assert 0.3 < time.monotonic() - before < 5


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_busy_server_is_asked_again(tiny, odd, protocol):
    with running(ServedModel("tiny", tiny[1]), ServedModel("odd", odd), max_requests=1) as server:
        slow = {"signature_name": "wait", "instances": [{"seconds": 1.0}]}
        occupied = threading.Thread(target=server.predict, args=(slow, "odd"))
        occupied.start()
        eventually(lambda: "jobi_tf_requests_in_flight 1.0" in server.ask("/metrics")[1])
        with (
            Client(at(server, protocol), "tiny", retries=0) as impatient,
            pytest.raises(JobiError, match=r"is too busy: .*at most 1 requests at a time.* \(1 attempt\)"),
        ):
            impatient.score(triples(1))
        with Client(at(server, protocol), "tiny", retries=5) as patient:
            assert patient.score(triples(1)).known.all()
        occupied.join()


@contextmanager
def silent(part: bytes = b""):
    """A server that takes requests, and answers nothing, or one byte a moment."""
    ended = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection:
            while not ended.wait(0.05):
                if part:
                    try:
                        connection.sendall(part)
                    except OSError:
                        return

    def listen() -> None:
        while not ended.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            if part:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            threading.Thread(target=answer, args=(connection,)).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize(("protocol", "part"), [("http", b""), ("http", b" "), ("grpc", b"")])
def test_time_is_limited(protocol, part):
    with silent(part) as port, Client(f"{protocol}://127.0.0.1:{port}", "tiny", timeout=0.5) as client:
        before = time.monotonic()
        with pytest.raises(JobiError, match=r"no (whole )?answer from .* within the time-out"):
            client.score(triples(1))
        assert 0.4 < time.monotonic() - before < 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_token(tiny, protocol):
    with running(ServedModel("tiny", tiny[1]), token="secret") as server:
        with Client(at(server, protocol), "tiny", token="secret") as client:
            assert client.score(triples(1)).known.all()
        for token, words in (None, "got none"), ("other", "the one that was sent is not valid"):
            with (
                Client(at(server, protocol), "tiny", token=token) as client,
                pytest.raises(JobiError, match=f"expects a bearer token, {words}"),
            ):
                client.score(triples(1))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tls(tiny, tmp_path, protocol):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run([*command.split(), "-out", certificate, "-keyout", key], check=True, capture_output=True)
    with running(ServedModel("tiny", tiny[1]), certificate=certificate, key=key) as server:
        url = server.rest if protocol == "http" else f"grpcs://{server.grpc}"
        assert url.split(":")[0] == f"{protocol}s"
        with Client(url, "tiny", certificate=certificate) as client:
            assert client.score(triples(1)).known.all()
        with Client(url, "tiny", retries=0) as client, pytest.raises(JobiError, match="cannot reach"):
            client.score(triples(1))
    with pytest.raises(DataError, match=f"expected a file of certificates at {tmp_path}/none: No such file"):
        Client(f"{protocol}s://127.0.0.1:1", "tiny", certificate=tmp_path / "none")


def test_threads_share_a_client(client, tiny):
    asked = triples(64)
    expected = tiny[0].score(asked)
    with ThreadPoolExecutor(8) as pool:
        for i, scores in enumerate(pool.map(lambda i: client.score(asked[i : i + 8]), range(56))):
            np.testing.assert_allclose(scores.score, expected[i : i + 8], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("127.0.0.1:8500", {}, "expected the address of a server, such as grpc://127.0.0.1:8500"),
        ("ftp://host", {}, "got 'ftp://host'"),
        ("http://", {}, "got 'http://'"),
        ("http://host:99999", {}, "got 'http://host:99999'"),
        ("http://name:word@host", {}, "got 'http://name:word@host'"),
        ("http://host/?a=b", {}, "expected the address"),
        ("grpc://host", {}, "got 'grpc://host': gRPC takes a host and a port"),
        ("grpc://host:1/path", {}, "gRPC takes a host and a port"),
        ("grpc://host:1", {"certificate": "x"}, "a certificate is for grpcs:// and https://"),
        ("http://host", {"timeout": 0}, "expected a positive time-out"),
        ("http://host", {"retries": -1}, "retries of 0 or more"),
    ],
)
def test_refuses(url, options, words):
    with pytest.raises(UsageError) as error:
        Client(url, "tiny", **options)
    assert words in str(error.value)


def test_certificates_that_are_none(tmp_path):
    (tmp_path / "none.pem").write_text("none")
    with pytest.raises(DataError, match="expected certificates in PEM"):
        Client("https://host", "tiny", certificate=tmp_path / "none.pem")


def test_needs_no_tensorflow(url):
    code = """if True:
        import sys
        from jobi_tf.serving import Client
        with Client(sys.argv[1], "tiny") as client:
            print(client.tails("entity 1", "relation 1")[0].entity)
        print(sorted({"tensorflow", "keras", "tensorflow_serving", "starlette", "uvicorn"} & set(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"
    assert done.stdout.startswith("entity ")


@pytest.mark.parametrize(("protocol", "library"), [("http", "httpx"), ("grpc", "grpc")])
def test_missing_library(protocol, library):
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from jobi_tf.errors import MissingExtraError\nfrom jobi_tf.serving.client import Client\n"
        f"try: Client('{protocol}://127.0.0.1:1', 'tiny')\nexcept MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"{protocol}:// needs {library}" in done.stdout
    assert "pip install 'jobi-tf[client]'" in done.stdout
