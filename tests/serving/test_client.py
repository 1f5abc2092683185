import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import httpx
import numpy as np
import pytest

from jobi_tf.errors import DataError, JobiError, MissingExtraError, UsageError
from jobi_tf.serving import Client
from tests.serving.conftest import eventually, running
from tests.serving.exports import ENTITIES, RELATIONS

LOWEST = np.finfo(np.float32).min


def random_triples(count: int) -> list[tuple[str, str, str]]:
    rng = np.random.default_rng(0)
    columns = (rng.integers(size, size=count) for size in (ENTITIES, RELATIONS, ENTITIES))
    return [(f"entity {h}", f"relation {r}", f"entity {t}") for h, r, t in zip(*columns, strict=True)]


@pytest.fixture(scope="module")
def client(server):
    with Client(server.url) as client:
        yield client


def test_scores_are_those_of_the_run(client, tiny):
    triples = random_triples(2500)  # three requests
    scores = client.score(triples)
    np.testing.assert_allclose(scores.score, tiny[0].score(triples), rtol=1e-5, atol=1e-6)
    assert [field.dtype for field in scores] == [np.float32, np.float32, bool]
    assert scores.known.all()
    assert ((scores.probability > 0) & (scores.probability < 1)).all()


def test_unknown_names_are_marked(client):
    scores = client.score([("entity 1", "relation 1", "nope"), ("entity 1", "relation 1", "entity 2")])
    assert scores.known.tolist() == [False, True]
    assert (scores.score[0], scores.probability[0]) == (LOWEST, 0)


@pytest.mark.parametrize("k", [1, 7, 50])
@pytest.mark.parametrize("new_only", [False, True])
def test_best_answers_are_those_of_the_run(client, tiny, k, new_only):
    for side, answers in (
        (1, client.tails("entity 3", "relation 1", k=k, new_only=new_only)),
        (0, client.heads("relation 1", "entity 3", k=k, new_only=new_only)),
    ):
        expected = tiny[0].answers(side, [("entity 3", "relation 1")], k, new_only=new_only)[0]
        assert [x.entity for x in answers] == [x.entity for x in expected]
        assert [x.seen for x in answers] == [x.known for x in expected]
        np.testing.assert_allclose([x.score for x in answers], [x.score for x in expected], rtol=1e-4)
        assert all(0 < x.probability < 1 for x in answers)


def test_many_queries(client):
    queries = [(head, relation) for head, relation, _ in random_triples(1100)]
    answers = client.tails_of(queries, k=3)
    assert len(answers) == 1100
    for i in (0, 1023, 1024, 1099):
        assert [x.entity for x in answers[i]] == [x.entity for x in client.tails(*queries[i], k=3)]
    heads = client.heads_of([(relation, entity) for entity, relation in queries[:3]])
    assert [len(row) for row in heads] == [10] * 3
    assert client.answers(0, queries[:3]) == heads


def test_embeddings(client, tiny):
    embeddings = client.embed(["entity 3", "nope"])
    assert embeddings.known.tolist() == [True, False]
    table = tiny[0].model.entities.table.numpy()
    np.testing.assert_allclose(embeddings.embedding[0], table[tiny[0].graph.entities.id("entity 3")], rtol=1e-6)
    assert not embeddings.embedding[1].any()
    assert embeddings.embedding.dtype == np.float32


def test_rows_of_a_generator(client):
    rows = [("entity 1", "relation 1", "entity 2")]
    assert client.score(iter(rows)).score == client.score(rows).score


def test_nothing(client):
    assert [len(field) for field in client.score([])] == [0, 0, 0]
    assert client.tails_of([]) == client.heads_of([]) == []
    assert len(client.embed([]).embedding) == 0


def test_model_and_version(server, tiny):
    with Client(server.url) as client:
        assert client.model == "tiny"
        assert client.status() == [(1, "AVAILABLE", "")]
    triples = random_triples(5)
    with Client(server.url, "tiny", version=1) as client:
        np.testing.assert_allclose(client.score(triples).score, tiny[0].score(triples), rtol=1e-5, atol=1e-6)
    for model, version in (("other", None), ("tiny", 7)):
        with Client(server.url, model, version=version) as client, pytest.raises(JobiError, match=model):
            client.score(triples)


def test_unknown_names_of_queries(client):
    for call, name in (
        (lambda: client.tails("nope", "relation 1"), "entity: nope"),
        (lambda: client.heads("nope", "entity 1"), "relation: nope"),
    ):
        with pytest.raises(DataError, match=name):
            call()
    assert len(client.tails("entity 1", "relation 1", k=np.int64(3))) == 3
    for k in (0, 101, 10**10):  # the default of an export is 100
        with pytest.raises(UsageError, match=str(k)):
            client.tails("entity 1", "relation 1", k=k)


def test_inputs_that_are_no_rows_of_names(client):
    for call in (
        lambda: client.embed("entity 1"),
        lambda: client.score([("entity 1", "relation 1")]),
        lambda: client.score([1]),
        lambda: client.tails_of("ab"),
        lambda: client.heads_of(["ab"]),
        lambda: client.answers(2, [("entity 1", "relation 1")]),
        lambda: client.tails("entity 1", "relation 1", k="a"),
    ):
        with pytest.raises(UsageError):
            call()


def free_port() -> int:
    """A port below those that the system gives to connections and other servers, which could take it meanwhile."""
    for port in np.random.default_rng().permutation(np.arange(20_000, 30_000)).tolist():
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no port is free")


def test_a_server_that_starts_late(first):
    port = free_port()
    with Client(f"http://127.0.0.1:{port}", "tiny", timeout=30, retries=8) as client, ThreadPoolExecutor() as pool:
        future = pool.submit(client.score, random_triples(3))
        time.sleep(0.5)
        with running(first, rest_port=port):
            assert future.result().known.all()


def test_a_busy_server(odd, release):
    with running(odd, max_requests=1) as server:
        body = {"signature_name": "count", "inputs": {"x": [1]}}
        occupied = threading.Thread(target=server.predict, args=(body,))
        occupied.start()
        eventually(lambda: "jobi_tf_requests_in_flight 1.0" in server.metrics())
        with Client(server.url, retries=0) as client, pytest.raises(JobiError, match="busy"):
            client.embed(["entity 1"])
        release.set()
        with Client(server.url, retries=6) as client, pytest.raises(DataError):  # it has no such signature
            client.embed(["entity 1"])
        occupied.join()


def test_a_server_that_does_not_answer():
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Client(f"http://127.0.0.1:{silent.getsockname()[1]}", "tiny", timeout=0.3) as client,
        pytest.raises(JobiError, match=r"0\.3 s"),
    ):
        client.score(random_triples(1))


@pytest.mark.parametrize("answer", [[], None, {}, {"outputs": None}, {"outputs": {"known": []}, "models": None}])
def test_answers_of_another_kind(monkeypatch, answer):
    monkeypatch.setattr(httpx.Client, "request", lambda *_, **__: httpx.Response(200, json=answer))
    with Client("http://host", "tiny") as client:
        for call in (lambda: client.score(random_triples(1)), lambda: client.tails("a", "b"), client.status):
            with pytest.raises(JobiError, match="http://host"):
                call()
    with pytest.raises(JobiError, match="http://host"):
        Client("http://host")


def test_a_server_that_accepts_no_connection():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as waiting:
        for _ in range(4):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        with Client(url, "tiny", timeout=0.2, retries=1) as client, pytest.raises(JobiError, match=r"reach.*1 retries"):
            client.score(random_triples(1))


def test_token(first):
    with running(first, token="säcret") as server:
        with Client(server.url, token="säcret") as client:
            assert client.score(random_triples(1)).known.all()
        for token in (None, "other"):
            with pytest.raises(JobiError, match="401"):
                Client(server.url, token=token)


def test_tls(first, certificate, tmp_path):
    cert, key = certificate
    with running(first, certificate=cert, key=key) as server:
        assert server.url.startswith("https://")
        with Client(server.url, certificate=cert) as client:
            assert client.score(random_triples(1)).known.all()
        with Client(server.url, "tiny") as client, pytest.raises(JobiError, match=r"certificate(?!.*retries)"):
            client.score(random_triples(1))
    for file in (tmp_path / "none", key):
        with pytest.raises(DataError, match=str(file)):
            Client("https://127.0.0.1:1", "tiny", certificate=file)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("127.0.0.1:8500", {}),
        ("grpc://host:8500", {}),
        ("http://", {}),
        ("http://name:word@host", {}),
        ("http://host/?a=b", {}),
        ("http://HOST:PORT", {}),
        ("http://127.0.0..1", {}),
        (5, {}),
        ("http://host", {"timeout": 0}),
        ("http://host", {"timeout": float("inf")}),
        ("http://host", {"timeout": "a"}),
        ("http://host", {"retries": -1}),
        ("http://host", {"token": "secret\n"}),
        ("http://host", {"token": ""}),
        ("http://host", {"model": 5}),
    ],
)
def test_arguments_that_cannot_be_used(url, options):
    with pytest.raises(UsageError):
        Client(url, **{"model": "tiny", **options})


def test_httpx_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingExtraError, match=r"jobi-tf\[client\]"):
        Client("http://127.0.0.1:1", "tiny")
