"""REST, as TensorFlow Serving's documents have it."""

import base64
import json
import socket
import urllib.request

import numpy as np
import pytest

TRIPLES = [("entity 3", "relation 1", "entity 4"), ("entity 29", "relation 0", "entity 0")]
LOWEST = float(np.finfo(np.float32).min)


def rows(triples=TRIPLES):
    return [dict(zip(("head", "relation", "tail"), triple, strict=True)) for triple in triples]


def columns(triples=TRIPLES):
    return dict(zip(("head", "relation", "tail"), map(list, zip(*triples, strict=True)), strict=True))


def test_both_forms_give_the_scores_of_the_run(server, tiny):
    run, _ = tiny
    status, by_row = server.ask("/v1/models/tiny/versions/1:predict", {"instances": rows()})
    assert status == 200
    np.testing.assert_allclose([row["score"] for row in by_row["predictions"]], run.score(TRIPLES), rtol=1e-5)
    status, by_column = server.ask("/v1/models/tiny/versions/1:predict", {"inputs": columns()})
    assert status == 200
    assert by_column["outputs"] == {
        name: [row[name] for row in by_row["predictions"]] for name in ("score", "probability", "known")
    }
    assert by_column["outputs"]["known"] == [True, True]


def test_version_and_label_say_who_answers(server, tiny):
    run, _ = tiny
    body = {"inputs": columns()}
    scores = {
        path: server.ask(f"/v1/models/tiny{path}:predict", body)[1]["outputs"]["score"]
        for path in ("", "/versions/1", "/versions/2", "/versions/002", "/labels/stable")
    }
    np.testing.assert_allclose(scores["/versions/1"], run.score(TRIPLES), rtol=1e-5)
    np.testing.assert_allclose(scores[""], 2 * run.score(TRIPLES), rtol=1e-5)  # the newest
    assert scores[""] == scores["/versions/2"] == scores["/versions/002"]
    assert scores["/versions/1"] == scores["/labels/stable"]


def test_best_tails_and_heads(server, tiny):
    run, _ = tiny
    for signature, query, sought in (
        ("predict_tails", {"head": "entity 3", "relation": "relation 1"}, run.tails("entity 3", "relation 1", 5)),
        ("predict_heads", {"relation": "relation 1", "tail": "entity 3"}, run.heads("relation 1", "entity 3", 5)),
    ):
        body = {"signature_name": signature, "instances": [query]}
        status, answer = server.ask("/v1/models/tiny/versions/1:predict", body)
        assert status == 200
        found = answer["predictions"][0]
        assert found[signature[8:12]] == [best.entity for best in sought]
        assert found["seen"] == [best.known for best in sought]
        np.testing.assert_allclose(found["score"], [best.score for best in sought], rtol=1e-4)


def test_unknown_names_are_marked_when_scored_and_refused_when_completed(server):
    answer = server.predict({"instances": rows([("nobody", "relation 1", "entity 4")])})[1]["predictions"]
    assert answer == [{"score": pytest.approx(LOWEST), "probability": 0.0, "known": False}]
    body = {"signature_name": "predict_tails", "inputs": {"head": ["nobody"], "relation": ["relation 1"]}}
    status, answer = server.predict(body)
    assert status == 400
    assert "nobody" in answer["error"]
    assert "\n" not in answer["error"]
    assert "[[" not in answer["error"]


def test_one_input_needs_no_name(server, tiny):
    run, _ = tiny
    bare = server.predict({"signature_name": "embed", "instances": ["entity 2", {"b64": "ZW50aXR5IDM="}]})[1]
    named = server.predict({"signature_name": "embed", "instances": [{"entity": "entity 2"}, {"entity": "entity 3"}]})
    column = server.predict({"signature_name": "embed", "inputs": ["entity 2", "entity 3"]})[1]["outputs"]
    assert bare == named[1]
    np.testing.assert_allclose([row["embedding"] for row in bare["predictions"]], run.model.entity.numpy()[2:4])
    assert column["embedding"] == [row["embedding"] for row in bare["predictions"]]


def test_every_type_goes_there_and_back(server):
    text = 'ü\n"%s"'
    values = {"decimals": [[0.2, 1e-9], [3, -16777215]], "integers": [2**62, -1], "truths": [True, False]}
    status, answer = server.predict({"inputs": values | {"texts": [text, "b"]}}, "odd")
    assert status == 200
    outputs = answer["outputs"]
    assert base64.b64decode(outputs.pop("text_bytes")[0]["b64"]).decode() == text
    np.testing.assert_allclose(outputs.pop("decimals"), values.pop("decimals"), rtol=1e-7)
    assert outputs == values


def test_decimals_are_written_as_tensorflow_serving_writes_them(server):
    given = "[[0.2, 1], [NaN, Infinity], [-Infinity, 3.4028234e38], [1e-45, 0.1234567891]]"
    body = f'{{"inputs": {{"decimals": {given}, "integers": [1,2,3,4], "truths": [true,true,true,true],'
    body += '"texts": ["", "", "", ""]}}'
    with urllib.request.urlopen(f"{server.rest}/v1/models/odd:predict", body.encode()) as answer:
        text = answer.read().decode()
    written = "[[0.2, 1.0], [NaN, Infinity], [-Infinity, 3.40282347e+38], [1.4013e-45, 0.123456791]]"
    assert written in text


def test_an_input_without_rows(server):
    assert server.predict({"signature_name": "square", "inputs": 3}, "odd") == (200, {"outputs": 9.0})
    status, answer = server.predict({"signature_name": "square", "instances": [3]}, "odd")
    assert (status, answer["error"]) == (400, 'expected float [] for input "x", got float [1]')


def test_no_rows_in_columns(server):
    empty = {"head": [], "relation": [], "tail": []}
    assert server.predict({"inputs": empty}) == (200, {"outputs": {"score": [], "probability": [], "known": []}})


REFUSED = {
    "empty": (b"", "JSON Parse error: The document is empty"),
    "no JSON": (b"instances = [1, 2]", "JSON Parse error: Invalid value. at offset: 0"),
    "cut short": (b'{"instances": ["', "JSON Parse error: Missing a closing quotation mark in string"),
    "more behind": (b"{} {}", "JSON Parse error: The document root must not be followed by other values"),
    "other encoding": (b'{"instances": ["\xff"]}', "JSON Parse error: Invalid encoding in string"),
    "too deep": (b'{"inputs": ' + b"[" * 40000, "JSON Parse error: The document is nested too deeply"),
    "huge number": (b'{"inputs": ' + b"9" * 9000 + b"}", "JSON Parse error: Number too big"),
    "list": (b"[1]", r"JSON Value: \[1\] Is not object"),
    "neither": ({}, "^Missing 'inputs' or 'instances' key$"),
    "both": ({"instances": [], "inputs": []}, "expecting only one of 'inputs' or 'instances'"),
    "no list": ({"instances": {}}, "Excepting 'instances' to be an list/array"),
    "no rows": ({"instances": []}, "No values in 'instances' array"),
    "bare rows": ({"instances": ["a"]}, "instances is a plain list, but expecting list of objects"),
    "bare column": ({"inputs": ["a"]}, "inputs is a plain value/list, but expecting an object"),
    "mixed rows": ({"instances": [*rows(), "a"]}, "Expecting object but got list at item 2 of input list"),
    "missing": ({"instances": [{"head": "a"}]}, "element: 0 of 'instances'.*must only have keys: head,relation,tail"),
    "missing column": ({"inputs": {"head": ["a"]}}, "^Missing named input: relation in 'inputs' object.$"),
    "too many": ({"instances": [{"head": "a", "x": 1}]}, "element: 0 key: x .*does not have named input: x"),
    "number": (
        {"instances": [*rows(), {"head": 1, "relation": "a", "tail": "b"}]},
        "element: 2 key: head of 'instances' list. Error: INVALID_ARGUMENT: JSON Value: 1 Type: Number is not of "
        "expected type: string",
    ),
    "null": ({"inputs": columns() | {"tail": [None, "b"]}}, "Value: null Type: Null is not of expected type: string"),
    "half a letter": (b'{"inputs": {"head": ["\\ud800"]}}', "surrogate pair in string is invalid"),
    "ragged": ({"inputs": columns() | {"tail": [["a"], ["b", "c"]]}}, "list at unexpected size: 2 at level: 1"),
    "uneven": ({"inputs": columns() | {"tail": [["a"], "b"]}}, "found at incorrect level: 2 in the JSON DOM"),
    "deeper": ({"inputs": columns() | {"tail": ["a", ["b"]]}}, "list at unexpected level: 1 expected < 1"),
    "other lengths": ({"inputs": columns() | {"tail": ["a"]}}, "must have equal 0th-dimension size"),
    "other rank": ({"inputs": columns() | {"tail": [["a"], ["b"]]}}, r'expected string \[\?\] for input "tail"'),
    "no base64": ({"signature_name": "embed", "instances": [{"b64": "%"}]}, "Unable to base64 decode"),
    "decimal id": (
        {"signature_name": "score_ids", "inputs": {"head": [1.0], "relation": [0], "tail": [0]}},
        "^JSON Value: 1.0 Type: Number is not of expected type: int32$",
    ),
    "long id": (
        {"signature_name": "score_ids", "inputs": {"head": [2**31], "relation": [0], "tail": [0]}},
        "^JSON Value: 2147483648 Type: Number is not of expected type: int32$",
    ),
    "id out of range": (
        {"signature_name": "score_ids", "inputs": {"head": [1, 30], "relation": [0, 0], "tail": [0, 0]}},
        "30",
    ),
    "signature": ({"signature_name": "x"}, '^Serving signature name: "x" not found in signature def$'),
    "signature's type": ({"signature_name": 1}, "'signature_name' key must be a string value.$"),
    "too many rows": ({"instances": rows() * 51}, "^expected at most 100 rows in a request, got 102$"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_reason(server, case):
    body, message = REFUSED[case]
    status, answer = server.predict(body)
    assert status == 400, answer
    with pytest.raises(ValueError, match=message):
        raise ValueError(answer["error"])
    assert list(answer) == ["error"]
    assert len(answer["error"]) < 1500


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"decimals": [[2**24, 0]]}, "Cannot convert JSON value: 16777216 to float without loss of precision."),
        ({"decimals": [[1e39, 0]]}, "Cannot convert JSON value: 1e+39 to float without loss of precision."),
        ({"decimals": [[0, "1"]]}, 'JSON Value: "1" Type: String is not of expected type: float'),
        ({"decimals": [[0, True]]}, "JSON Value: true Type: True is not of expected type: float"),
        ({"decimals": [[0]]}, 'expected float [?,2] for input "decimals", got float [1,1]'),
        ({"integers": [True]}, "JSON Value: true Type: True is not of expected type: int64"),
        ({"integers": [2**63]}, "JSON Value: 9223372036854775808 Type: Number is not of expected type: int64"),
        ({"truths": [1]}, "JSON Value: 1 Type: Number is not of expected type: bool"),
        ({"texts": [{"b64": "", "x": 1}]}, 'JSON Value: {"b64": "", "x": 1} not formatted correctly for base64 data'),
    ],
)
def test_values_of_another_type(server, values, message):
    right = {"decimals": [[0, 0]], "integers": [0], "truths": [True], "texts": [""]}
    assert server.predict({"inputs": right}, "odd")[0] == 200
    assert server.predict({"inputs": right | values}, "odd") == (400, {"error": message})


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/v1/models/nobody", 404, "Could not find any versions of model nobody"),
        ("GET", "/v1/models/tiny/versions/9", 404, "Could not find version 9 of model tiny"),
        ("GET", "/v1/models/tiny/labels/x", 400, "Unrecognized servable version label: x"),
        ("GET", "/v1/models/nobody/metadata", 404, "Servable not found for request: Latest(nobody)"),
        ("POST", "/v1/models/nobody:predict", 404, "Servable not found for request: Latest(nobody)"),
        ("POST", "/v1/models/nobody/versions/3:predict", 404, "Servable not found for request: Specific(nobody, 3)"),
        ("POST", "/v1/models/tiny/versions/9:predict", 404, "Servable not found for request: Specific(tiny, 9)"),
        ("POST", "/v1/models/tiny/labels/none:predict", 404, "Servable not found for request: Specific(tiny, 7)"),
        ("POST", "/v1/models/tiny/labels/x:predict", 400, "Unrecognized servable version label: x"),
        ("POST", f"/v1/models/tiny/versions/{2**64}:predict", 400, f"Failed to convert version: {2**64} to numeric."),
        ("GET", "/v1/models/tiny:predict", 400, "Malformed request: GET /v1/models/tiny:predict"),
        ("POST", "/v1/models/tiny", 400, "Malformed request: POST /v1/models/tiny"),
        ("POST", "/v1/models/tiny/version/1:predict", 400, "Malformed request: POST /v1/models/tiny/version/1:predict"),
        ("PUT", "/v1/models/tiny:predict", 400, "Malformed request: PUT /v1/models/tiny:predict"),
        ("GET", "/v1/foo", 400, "Malformed request: GET /v1/foo"),
        ("GET", "/foo", 404, "Malformed request: GET /foo"),
        ("POST", "/healthz", 405, "Malformed request: POST /healthz"),
        ("POST", "/v1/models/tiny:classify", 400, "Expected classification signature method_name to be tensorflow/"
         "serving/classify. Was: tensorflow/serving/predict"),
        ("POST", "/v1/models/tiny:regress", 400, "Expected regression signature method_name to be tensorflow/"
         "serving/regress. Was: tensorflow/serving/predict"),
        ("GET", "/v1/models/tiny/names?kind=x", 400, "expected kind=entity or kind=relation, got 'x'"),
        ("GET", "/v1/models/tiny/names?kind=entity&limit=0", 400, "expected a limit from 1 to 1000, got '0'"),
        ("GET", "/v1/models/odd/names?kind=entity", 404, "the export of odd lists no names"),
    ],
)  # fmt: skip
def test_paths_that_are_refused(server, method, path, status, message):
    body = b"{}" if method != "GET" else None
    assert server.ask(path, body, method=method) == (status, {"error": message})


def test_paths_may_be_spelled_otherwise(server):
    body = {"signature_name": "square", "inputs": 2}
    assert server.ask("/V1/Models/odd/VERSIONS/1:Predict", body) == (200, {"outputs": 4.0})
    assert server.ask("/v1/models/o%64d:predict", body) == (200, {"outputs": 4.0})
    assert server.ask("/v1/models/ODD:predict", body)[0] == 404


def test_status(server):
    def status(version):
        return {
            "version": str(version),
            "state": "AVAILABLE",
            "status": {"error_code": "OK", "error_message": ""},
        }

    assert server.ask("/v1/models/tiny") == (200, {"model_version_status": [status(2), status(1)]})
    assert server.ask("/v1/models/tiny/versions/1") == (200, {"model_version_status": [status(1)]})
    assert server.ask("/v1/models/tiny/labels/stable") == (200, {"model_version_status": [status(1)]})
    assert server.ask("/v1/models") == (200, {"models": ["tiny", "odd"]})
    assert server.ask("/healthz") == (200, "ok\n")


def test_metadata(server):
    status, answer = server.ask("/v1/models/tiny/versions/1/metadata")
    assert status == 200
    assert answer["model_spec"] == {"name": "tiny", "signature_name": "", "version": "1"}
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    assert {"serving_default", "score_ids", "predict_tails", "predict_heads", "embed"} <= signatures.keys()
    tails = signatures["predict_tails"]
    assert tails["method_name"] == "tensorflow/serving/predict"
    assert tails["inputs"]["head"]["dtype"] == "DT_STRING"
    assert [dim["size"] for dim in tails["outputs"]["score"]["tensor_shape"]["dim"]] == ["-1", "5"]


def test_names_are_completed(server, tiny):
    run, _ = tiny
    counts = [(run.graph.train[:, ::2] == i).any(1).sum() for i in range(30)]

    def names(prefix, limit=20, kind="entity"):
        status, answer = server.ask(f"/v1/models/tiny/names?kind={kind}&prefix={prefix}&limit={limit}")
        assert status == 200
        return answer["names"]

    expected = sorted((i for i in range(30) if f"{i}".startswith("2")), key=lambda i: (-counts[i], i))
    assert names("ENTITY%202") == [f"entity {i}" for i in expected]
    assert names("entity%202", 3) == [f"entity {i}" for i in expected[:3]]
    assert set(names("7")) == {"entity 7", "entity 17", "entity 27"}
    assert len(names("")) == 20
    assert names("x") == names("%0A") == []
    assert len(names("", kind="relation")) == 4


def exchange(server, *parts, answers=1):
    """Sends bytes as they are; returns what comes back: as much as ends with a number of JSON objects."""
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        for part in parts:
            connection.sendall(part)
        found = b""
        while found.count(b"\r\n\r\n{") < answers or not found.endswith(b"}"):
            part = connection.recv(65536)
            assert part, found
            found += part
        return found


def test_what_is_no_http(server):
    answer = exchange(server, b"\x16\x03\x01 junk\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.split(b"\r\n\r\n")[1]) == {"error": "expected a request of HTTP/1.1"}
    endless = exchange(server, b"GET /healthz HTTP/1.1\r\n" + b"x: " + b"y" * 2**20)
    assert endless.startswith(b"HTTP/1.1 431 ")


def test_requests_in_parts_and_in_a_row(server):
    body = json.dumps({"signature_name": "square", "inputs": 2}).encode()
    head = b"POST /v1/models/odd:predict HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n" % len(body)
    one = head + b"\r\n" + body
    answer = exchange(server, one[:30], one[30:-5], one[-5:] + one + one, answers=3)
    assert answer.count(b"HTTP/1.1 200 OK") == answer.count(b'{"outputs": 4.0}') == 3
    chunked = b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    answer = exchange(server, b"POST /v1/models/odd:predict HTTP/1.1\r\nhost: x\r\n", chunked)
    assert answer.endswith(b'{"outputs": 4.0}')


def test_an_offer_of_another_protocol_is_declined(server):
    body = json.dumps({"signature_name": "square", "inputs": 2}).encode()
    head = b"POST /v1/models/odd:predict HTTP/1.1\r\nhost: x\r\nconnection: Upgrade, HTTP2-Settings\r\n"
    head += b"upgrade: h2c\r\nhttp2-settings: AAMAAABk\r\ncontent-length: %d\r\n\r\n" % len(body)
    answer = exchange(server, head + body[:4], body[4:] + head, body, answers=2)
    assert answer.count(b"HTTP/1.1 200 OK") == answer.count(b'{"outputs": 4.0}') == 2


def test_a_body_that_is_compressed(server):
    status, answer = server.predict(b"{}", headers={"Content-Encoding": "gzip"})
    assert (status, answer) == (415, {"error": "expected a body without Content-Encoding, got gzip"})
