"""REST, as TensorFlow Serving documents it."""

import base64
import json
import socket
import threading
import tracemalloc
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jobi_tf.serving import rest
from jobi_tf.serving.names import NameList
from tests.serving.conftest import eventually, running

TRIPLES = [("entity 3", "relation 1", "entity 4"), ("entity 29", "relation 0", "entity 0")]
LOWEST = float(np.finfo(np.float32).min)


def rows(triples=TRIPLES):
    return [dict(zip(("head", "relation", "tail"), triple, strict=True)) for triple in triples]


def columns(triples=TRIPLES):
    return dict(zip(("head", "relation", "tail"), map(list, zip(*triples, strict=True)), strict=True))


def test_rows_and_columns_give_the_scores_of_the_run(server, tiny):
    for path in ("/v1/models/tiny:predict", "/v1/models/tiny/versions/1:predict", "/V1/Models/tiny:Predict"):
        status, answer = server.send(path, {"instances": rows()})
        assert status == 200
        np.testing.assert_allclose([row["score"] for row in answer["predictions"]], tiny[0].score(TRIPLES), rtol=1e-5)
        by_row = {name: [row[name] for row in answer["predictions"]] for name in ("score", "probability", "known")}
        assert server.send(path, {"inputs": columns()}) == (200, {"outputs": by_row})
        assert by_row["known"] == [True, True]


@pytest.mark.parametrize(("side", "other"), [("tail", "head"), ("head", "tail")])
def test_best_answers_are_those_of_the_run(server, tiny, side, other):
    run = tiny[0]
    queries = [("entity 3", 5), ("nobody", 2), ("entity 4", 0), ("entity 5", 40)]
    inputs = [{other: name, "relation": "relation 1", "k": k} for name, k in queries]
    status, answer = server.predict({"signature_name": f"predict_{side}s", "instances": inputs})
    assert status == 200
    predictions = answer["predictions"]
    assert [row["known"] for row in predictions] == [True, False, True, True]
    for row, (name, k) in zip(predictions, queries, strict=True):
        best = [] if name == "nobody" or not k else run.answers(side == "tail", [(name, "relation 1")], k)[0]
        count = len(best)
        assert {len(row[key]) for key in (side, "score", "probability", "seen")} == {40}
        assert row[side] == [answer.entity for answer in best] + [""] * (40 - count)
        assert row["seen"] == [answer.known for answer in best] + [False] * (40 - count)
        np.testing.assert_allclose(row["score"][:count], [answer.score for answer in best], rtol=1e-4)
        assert row["score"][count:] == [LOWEST] * (40 - count)
        assert row["probability"][count:] == [0] * (40 - count)


def test_the_name_of_the_only_input_may_be_left_out(server, tiny):
    def embed(**body):
        return server.predict({"signature_name": "embed", **body})

    named = embed(instances=[{"entity": "entity 2"}, {"entity": "entity 3"}])
    assert embed(instances=["entity 2", {"b64": "ZW50aXR5IDM="}]) == named
    embeddings = [row["embedding"] for row in named[1]["predictions"]]
    assert embed(inputs=["entity 2", "entity 3"])[1]["outputs"]["embedding"] == embeddings
    np.testing.assert_allclose(embeddings, tiny[0].model.entities.table.numpy()[2:4])


def test_values_of_every_type(odd_server):
    text = 'ü\n"%s"'
    values = {"decimals": [[0.2, 1e-9], [3, -16777215]], "integers": [2**62, -1], "truths": [True, False]}
    status, answer = odd_server.predict({"inputs": values | {"texts": [text, "b"]}})
    assert status == 200
    outputs = answer["outputs"]
    assert base64.b64decode(outputs.pop("text_bytes")[0]["b64"]).decode() == text
    np.testing.assert_allclose(outputs.pop("decimals"), values.pop("decimals"), rtol=1e-7)
    assert outputs == values


def test_floats_have_a_point_or_an_exponent_or_are_tokens(odd_server):
    given = "[[2, NaN], [Infinity, -Infinity]]"
    body = f'{{"inputs": {{"decimals": {given}, "integers": [1, 2], "truths": [true, true], "texts": ["", ""]}}}}'
    with urllib.request.urlopen(f"{odd_server.url}/v1/models/odd:predict", body.encode()) as answer:
        text = answer.read().decode().replace("\n", "").replace(" ", "")
    assert "[[2.0,NaN],[Infinity,-Infinity]]" in text


REJECTED = {
    "empty": b"",
    "no JSON": b"instances = [1, 2]",
    "cut short": b'{"instances": ["',
    "bytes behind": b"{} {}",
    "other encoding": b'{"instances": ["\xff"]}',
    "deep": b'{"inputs": ' + b"[" * 40000,
    "huge number": b'{"inputs": ' + b"9" * 9000 + b"}",
    "half a letter": b'{"inputs": {"head": ["\\ud800"]}}',
    "list": [1],
    "neither": {},
    "both": {"instances": rows(), "inputs": columns()},
    "rows that are no list": {"instances": {}},
    "no rows": {"instances": []},
    "rows without names": {"instances": ["a"]},
    "a column without a name": {"inputs": ["a"]},
    "mixed rows": {"instances": [*rows(), "a"]},
    "missing": {"instances": [{"head": "a"}]},
    "missing column": {"inputs": {"head": ["a"]}},
    "too many inputs": {"instances": [rows()[0] | {"x": 1}]},
    "number": {"instances": [rows()[0] | {"head": 1}]},
    "null": {"inputs": columns() | {"tail": [None, "b"]}},
    "lists of rows": {"inputs": columns() | {"tail": [["a"], ["b"]]}},
    "other lengths": {"inputs": columns() | {"tail": ["a"]}},
    "no base64": {"signature_name": "embed", "instances": [{"b64": "%"}]},
    "decimal id": {"signature_name": "score_ids", "inputs": {"head": [1.0], "relation": [0], "tail": [0]}},
    "long id": {"signature_name": "score_ids", "inputs": {"head": [2**31], "relation": [0], "tail": [0]}},
    "signature": {"signature_name": "x", "instances": rows()},
    "type of the signature": {"signature_name": 1, "instances": rows()},
}


@pytest.mark.parametrize("case", REJECTED)
def test_rejected_bodies(server, case):
    status, answer = server.predict(REJECTED[case])
    assert status == 400, answer
    assert list(answer) == ["error"]
    assert 0 < len(answer["error"]) < 1100


def test_an_error_names_the_value_as_the_body_does(server):
    assert server.predict(REJECTED["number"])[1]["error"].startswith("expected instances[0].head ")
    assert "base64" in server.predict(REJECTED["no base64"])[1]["error"]


@pytest.mark.parametrize(
    "values",
    [
        {"decimals": [[0, "1"]]},
        {"decimals": [[0, True]]},
        {"decimals": [[0]]},
        {"decimals": [[0, 0, 0]]},
        {"integers": [True]},
        {"integers": [2**63]},
        {"truths": [1]},
        {"texts": [{"b64": "", "x": 1}]},
    ],
)
def test_rejected_types(odd_server, values):
    right = {"decimals": [[0, 0]], "integers": [0], "truths": [True], "texts": [""]}
    assert odd_server.predict({"inputs": right})[0] == 200
    status, answer = odd_server.predict({"inputs": right | values})
    assert (status, list(answer)) == (400, ["error"])
    assert next(iter(values)) in answer["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models/nobody", 404),
        ("GET", "/v1/models/tiny/versions/9", 404),
        ("GET", "/v1/models/nobody/metadata", 404),
        ("POST", "/v1/models/nobody:predict", 404),
        ("POST", "/v1/models/tiny/versions/9:predict", 404),
        ("POST", f"/v1/models/tiny/versions/{'9' * 5000}:predict", 400),
        ("POST", "/v1/models/tiny/labels/stable:predict", 404),
        ("POST", "/v1/models/TINY:predict", 404),
        ("GET", "/v1/models/tiny:predict", 405),
        ("PUT", "/v1/models/tiny:predict", 405),
        ("POST", "/v1/models/tiny:classify", 404),
        ("GET", "/v1/foo", 404),
        ("GET", "/foo", 404),
        ("GET", "/static/../rest.py", 404),
        ("POST", "/healthz", 405),
        ("GET", "/v1/models/tiny/names?kind=x", 400),
        ("GET", "/v1/models/tiny/names?kind=entity&limit=0", 400),
        ("GET", f"/v1/models/tiny/names?kind=entity&limit={'9' * 5000}", 400),
    ],
)
def test_rejected_paths(server, method, path, status):
    body = None if method == "GET" else json.dumps({"instances": rows()}).encode()
    found, answer = server.send(path, body, method=method)
    assert (found, list(answer)) == (status, ["error"])


def test_an_answer_names_the_allowed_methods(server):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{server.url}/v1/models/tiny:predict", timeout=20)
    assert (refused.value.code, refused.value.headers["allow"]) == (405, "POST")


def test_status(server):
    version = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    for path in ("/v1/models/tiny", "/v1/models/tiny/versions/1"):
        assert server.send(path) == (200, {"model_version_status": [version]})
    assert server.send("/v1/models") == (200, {"models": ["tiny"]})
    assert server.send("/healthz") == (200, "ok\n")


def test_metadata(server):
    status, answer = server.send("/v1/models/tiny/versions/1/metadata")
    assert status == 200
    assert answer["model_spec"] == {"name": "tiny", "signature_name": "", "version": "1"}
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    assert {"serving_default", "score_ids", "predict_tails", "predict_new_heads", "embed"} <= signatures.keys()
    tails = signatures["predict_tails"]
    assert tails["method_name"] == "tensorflow/serving/predict"
    assert tails["inputs"]["head"]["dtype"] == "DT_STRING"
    assert [dim["size"] for dim in tails["outputs"]["score"]["tensor_shape"]["dim"]] == ["-1", "-1"]


def test_names(server, tiny):
    def names(text, kind="entity", limit=5):
        return server.send(f"/v1/models/tiny/names?kind={kind}&prefix={text}&limit={limit}")[1]["names"]

    assert names("ENTITY%202", limit=50)[0].startswith("entity 2")
    assert set(names("ENTITY%202", limit=50)) == {"entity 2", *(f"entity 2{i}" for i in range(10))}
    assert len(names("")) == 5
    assert sorted(names("", "relation")) == [f"relation {i}" for i in range(4)]
    assert names("1", "relation") == ["relation 1"]
    assert names("Enttiy%207", limit=1) == ["entity 7"]  # none contains it: the most similar
    assert names("nobody") == names("%0A") == []


def test_a_list_of_names_is_read_once(first, monkeypatch):
    """Requests that arrive while it is read wait for it."""
    read, go = [], threading.Event()

    def slow(path):
        read.append(path)
        assert go.wait(20)
        return NameList(path)

    monkeypatch.setattr(rest, "NameList", slow)
    with running(first) as server, ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(server.send, "/v1/models/tiny/names?kind=entity&prefix=entity") for _ in range(4)]
        eventually(lambda: read)
        assert server.send("/healthz")[0] == 200
        go.set()
        assert {answer.result()[0] for answer in answers} == {200}
    assert len(read) == 1


def test_a_name_may_have_tabs(tmp_path):
    (tmp_path / "entities.tsv").write_text("id\tname\ttriples\n0\ta\tb\t3\n1\tc\t4\n")
    assert NameList(tmp_path / "entities.tsv").search("", 9) == ["c", "a\tb"]


def test_only_whole_names_are_similar(tmp_path, monkeypatch):
    (tmp_path / "entities.tsv").write_text("id\tname\ttriples\n0\tNew\u2028York\t9\n1\tParis, Texas\t1\n", "utf-8")
    monkeypatch.setattr("jobi_tf.serving.names._COMPARED", 18)  # in the middle of the second name
    assert NameList(tmp_path / "entities.tsv").search("Nwe York", 9) == ["New\u2028York"]
    assert NameList(tmp_path / "entities.tsv").search("Paros", 9) == []


def test_a_list_of_names_is_small(tmp_path):
    """It takes no more than 30 bytes for a name beside the text of the file."""
    path = tmp_path / "entities.tsv"
    path.write_text("id\tname\ttriples\n" + "".join(f"{i}\tÜbung {i}\t{i % 7}\n" for i in range(20_000)), "utf-8")
    tracemalloc.start()
    names = NameList(path)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert names.search("ÜBUNG 1999", 3) == ["Übung 19991", "Übung 19998", "Übung 19990"]
    assert size < 2 * path.stat().st_size + 30 * 20_000


def test_large_answers_are_written_while_others_are_answered(server, monkeypatch):
    """The answer is written only after another request was answered."""
    encode, writing, answered = rest._encode, threading.Event(), threading.Event()

    def held(*arguments):
        writing.set()
        assert answered.wait(20)
        return encode(*arguments)

    body = {"signature_name": "embed", "inputs": ["entity 1"] * 3000}
    monkeypatch.setattr(rest, "_SMALL", 1000)
    monkeypatch.setattr(rest, "_encode", held)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(server.predict(body)))
    thread.start()
    assert writing.wait(20)
    assert server.send("/healthz")[0] == 200
    answered.set()
    thread.join()
    ((status, answer),) = answers
    assert status == 200
    assert answer["outputs"]["embedding"] == [answer["outputs"]["embedding"][0]] * 3000


def exchange(server, *parts: bytes) -> bytes:
    """Sends parts of requests over one connection, and returns all that comes until it is closed."""
    with socket.create_connection(server.address, 10) as connection:
        for part in parts:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_requests_in_parts_and_in_a_row(server):
    body = json.dumps({"inputs": columns()}).encode()
    head = b"POST /v1/models/tiny:predict HTTP/1.1\r\nhost: localhost\r\n"
    sized = head + b"content-length: %d\r\n\r\n%s" % (len(body), body)
    chunked = head + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    # Java's client asks for HTTP/2 in this way, and sends the body at once.
    offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    offers = [request.replace(b"host: localhost\r\n", b"host: localhost\r\n" + offer) for request in (sized, chunked)]
    with socket.create_connection(server.address, 10) as connection:
        for request in (sized, chunked, sized + sized, *offers, sized):
            for part in (request[:30], request[30:-5], request[-5:]):
                connection.sendall(part)
            answer = b""
            while answer.count(b'"outputs"') < request.count(b"POST"):
                part = connection.recv(65536)
                assert part, answer
                answer += part
            assert answer.count(b"HTTP/1.1 200 OK") == request.count(b"POST")


def test_what_is_not_http(server):
    assert exchange(server, b"\x16\x03\x01 junk\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_a_compressed_body(server):
    assert server.predict(b"{}", headers={"Content-Encoding": "gzip"})[0] == 415
