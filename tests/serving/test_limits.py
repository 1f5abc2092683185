"""What the server does not let pass, and how it begins and ends."""

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import grpc
import pytest
from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc, predict_pb2
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from jobi_tf.errors import JobiError
from jobi_tf.serving.settings import ServedModel
from tests.serving.conftest import eventually, running

SQUARE = {"signature_name": "square", "inputs": 2}


def wait(seconds):
    return {"signature_name": "wait", "inputs": {"seconds": [seconds]}}


@pytest.fixture(scope="module")
def small(odd):
    """A server with narrow limits."""
    with running(
        ServedModel("odd", odd), max_requests=3, max_body=2000, max_rows=10, timeout=1.0, batch_rows=2
    ) as server:
        yield server


def status_request(model="odd"):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = model
    return request


def test_a_body_that_is_too_large(small):
    status, answer = small.predict(b" " * 2001, "odd")
    assert (status, answer) == (413, {"error": "expected a body of at most 2000 bytes, got 2001 or more"})
    status, answer = small.predict(b" " * 2000, "odd")
    assert status == 400


def _send_for_ever(connection):
    for _ in range(100):
        connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        time.sleep(0.001)


def test_a_body_that_is_too_large_does_not_say_so(small):
    """In chunks; the answer comes before the body's end, and the rest is read in vain, but not for ever."""
    connection = HTTPConnection("127.0.0.1", small.port, timeout=10)
    connection.request("POST", "/v1/models/odd:predict", iter([b" " * 1000] * 5), encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 413
    assert "at most 2000 bytes" in json.loads(answer.read())["error"]
    connection.request("GET", "/healthz")  # the connection is good for more
    assert connection.getresponse().status == 200
    connection.close()
    with socket.create_connection(("127.0.0.1", small.port), 10) as endless:
        endless.sendall(b"POST /v1/models/odd:predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        with pytest.raises(ConnectionError):
            _send_for_ever(endless)


def test_too_many_rows(small):
    assert small.predict(wait(0) | {"inputs": {"seconds": [0] * 10}}, "odd")[0] == 200
    status, answer = small.predict(wait(0) | {"inputs": {"seconds": [0] * 11}}, "odd")
    assert (status, answer["error"]) == (400, "expected at most 10 rows in a request, got 11")


def test_too_many_requests(small):
    with ThreadPoolExecutor(3) as threads, grpc.insecure_channel(small.grpc) as channel:
        busy = [threads.submit(small.predict, wait(0.4), "odd") for _ in range(3)]
        eventually(lambda: "in_flight 3.0" in small.ask("/metrics")[1])
        message = "expected at most 3 requests at a time: try again later"
        assert small.predict(SQUARE, "odd") == (429, {"error": message})
        assert small.headers["retry-after"] == "1"
        with pytest.raises(grpc.RpcError) as caught:
            model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status_request())
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, message)
        assert small.ask("/healthz")[0] == 200
        assert [one.result()[0] for one in busy] == [200] * 3
    assert small.predict(SQUARE, "odd")[0] == 200


def test_too_long_a_computation(small):
    began = time.monotonic()
    status, answer = small.predict(wait(1.3), "odd")
    assert (status, answer) == (504, {"error": "expected to answer within 1 s, but did not"})
    assert 0.9 < time.monotonic() - began < 1.3
    eventually(lambda: small.predict(wait(0), "odd")[0] == 200)  # after what was given up


def test_a_slow_sender_is_cut_off(small):
    starts = [
        b"",
        b"POST /v1/mod",
        b"POST /v1/models/odd:predict HTTP/1.1\r\nhost: x\r\n",
        b"POST /v1/models/odd:predict HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{",
    ]
    began = time.monotonic()
    connections = [socket.create_connection(("127.0.0.1", small.port), 10) for _ in starts]
    for connection, start in zip(connections, starts, strict=True):
        connection.sendall(start)
    time.sleep(0.6)
    for connection, start in zip(connections, starts, strict=True):
        if start:
            connection.sendall(b"x")  # a byte now and then does not help
    answers = []
    for connection in connections:
        answers.append(connection.recv(10000))
        connection.close()
    assert 0.9 < time.monotonic() - began < 2.5
    assert answers[0] == b""
    assert all(answer.startswith(b"HTTP/1.1 408 Request Timeout") for answer in answers[1:])
    assert json.loads(answers[3].split(b"\r\n\r\n")[1]) == {"error": "expected the whole request within 1 s"}


def test_a_second_request_that_is_slow(small):
    with socket.create_connection(("127.0.0.1", small.port), 10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /hea")
        assert connection.recv(10000).startswith(b"HTTP/1.1 200 OK")
        assert connection.recv(10000).startswith(b"HTTP/1.1 408 ")


def test_too_many_connections(small):
    """A server of 3 requests at a time keeps 4 · 3 + 64 connections."""
    connections = [socket.create_connection(("127.0.0.1", small.port), 10) for _ in range(77)]
    assert connections[-1].recv(10000).startswith(b"HTTP/1.1 429 Too Many Requests")
    for connection in connections:
        connection.close()
    eventually(lambda: small.ask("/healthz")[0] == 200)


def test_a_token(odd):
    with running(ServedModel("odd", odd), token="säcret") as server:
        for header in (None, "säcret", "Bearer", "Bearer other", "Basic säcret"):
            headers = {} if header is None else {"Authorization": header.encode()}
            status, answer = server.predict(SQUARE, "odd", headers=headers)
            got = "none" if header is None else "another"
            assert (status, answer) == (401, {"error": f"expected a bearer token, got {got}"})
            assert server.headers["www-authenticate"] == "Bearer"
        right = "Bearer säcret".encode()
        assert server.predict(SQUARE, "odd", headers={"authorization": right}) == (200, {"outputs": 4.0})
        for path in ("/metrics", "/monitoring/prometheus/metrics", "/v1/models", "/v1/models/odd", "/staticx", "//"):
            assert server.ask(path)[0] == 401
        for path in ("/healthz", "/", "/static/page.js"):  # the page asks for the token
            assert server.ask(path)[0] == 200
        assert server.ask("/static/../metrics")[0] == 404
    with running(ServedModel("odd", odd), token="secret", rest_port=None) as server:
        assert server.ready.startswith("serving odd version 1 at grpc://127.0.0.1:")
        with grpc.insecure_channel(server.grpc) as channel:
            stub = model_service_pb2_grpc.ModelServiceStub(channel)
            with pytest.raises(grpc.RpcError) as caught:
                stub.GetModelStatus(status_request())
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
            answer = stub.GetModelStatus(status_request(), metadata=[("authorization", "Bearer secret")])
            assert len(answer.model_version_status) == 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def test_tls(odd, certificate):
    cert, key = certificate
    with running(ServedModel("odd", odd), certificate=cert, key=key) as server:
        addresses = r"https://127\.0\.0\.1:\d+ and grpcs://127\.0\.0\.1:\d+"
        assert re.fullmatch(rf"serving odd version 1 at {addresses}", server.ready)
        trusting = ssl.create_default_context(cafile=str(cert))
        assert server.predict(SQUARE, "odd", context=trusting) == (200, {"outputs": 4.0})
        with pytest.raises(OSError, match="certificate verify failed"):
            server.ask("/healthz", context=ssl.create_default_context())
        credentials = grpc.ssl_channel_credentials(cert.read_bytes())
        with grpc.secure_channel(server.grpc, credentials) as channel:
            answer = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status_request(), timeout=10)
            assert len(answer.model_version_status) == 1


def test_a_certificate_that_cannot_be_used(odd, tmp_path):
    (tmp_path / "cert.pem").write_text("junk")
    for ports in ({}, {"rest_port": None}):
        options = {"certificate": tmp_path / "cert.pem", "key": tmp_path / "key.pem", **ports}
        with (
            pytest.raises(JobiError, match=r"^cannot use the certificate .*cert.pem with the key .*key.pem: "),
            running(ServedModel("odd", odd), **options),
        ):
            pass


def test_an_address_that_is_taken(odd, small):
    model = ServedModel("odd", odd)
    with (
        pytest.raises(JobiError, match=rf"^cannot listen on 127.0.0.1:{small.port}, for REST: Address already in use$"),
        running(model, rest_port=small.port),
    ):
        pass
    port = int(small.grpc.rsplit(":", 1)[1])
    with (
        pytest.raises(JobiError, match=rf"^cannot listen on 127.0.0.1:{port}, for gRPC: the address is taken or not"),
        running(model, grpc_port=port),
    ):
        pass
    with (
        pytest.raises(JobiError, match=r"^cannot listen on nowhere.invalid:0, for REST: "),
        running(model, host="nowhere.invalid"),
    ):
        pass


SERVE = """
import sys
from pathlib import Path
from jobi_tf.serving.server import serve
from jobi_tf.serving.settings import ServedModel, ServerSettings
serve(ServerSettings((ServedModel("odd", Path(sys.argv[1])),), rest_port=0, grpc_port=0))
print("ended")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_the_server_after_the_requests_in_work(odd, number):
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(odd)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        rest, rpc = map(int, re.findall(r"127\.0\.0\.1:(\d+)", ready))
        connection = HTTPConnection("127.0.0.1", rest, timeout=20)
        idle = HTTPConnection("127.0.0.1", rest, timeout=20)
        idle.connect()
        connection.request("POST", "/v1/models/odd:predict", json.dumps(wait(1.0)))
        with grpc.insecure_channel(f"127.0.0.1:{rpc}") as channel:
            request = predict_pb2.PredictRequest()
            request.model_spec.name = "odd"
            request.model_spec.signature_name = "wait"
            tensor = request.inputs["seconds"]
            tensor.dtype = 1
            tensor.tensor_shape.dim.add().size = 1
            tensor.float_val.append(1.0)
            asked = PredictionServiceStub(channel).Predict.future(request)
            time.sleep(0.5)
            process.send_signal(number)
            time.sleep(0.3)
            with pytest.raises(OSError, match="refused"):
                socket.create_connection(("127.0.0.1", rest), 5)
            assert asked.result(20).outputs["seconds"].float_val == [1.0]
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["outputs"]["seconds"]) == (200, [1.0])
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, out) == (0, "ended\n")
    assert "Traceback" not in err


def test_what_is_not_installed_is_named():
    code = "import sys; sys.modules['uvicorn'] = None\n" + SERVE
    process = subprocess.run([sys.executable, "-c", code, "x"], capture_output=True, text=True, check=False)
    assert "MissingExtraError: serving needs uvicorn: pip install 'jobi-tf[serving]'" in process.stderr


def test_settings_and_the_package_are_light():
    code = "import sys, jobi_tf.serving, jobi_tf.serving.settings, jobi_tf.serving.server\n"
    code += "print({'tensorflow', 'keras', 'numpy', 'grpc', 'uvicorn', 'starlette'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
