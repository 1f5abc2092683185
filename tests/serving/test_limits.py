"""What the server accepts, and how it starts and ends."""

import json
import math
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection

import grpc
import psutil
import pytest
from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc, predict_pb2
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from jobi_tf.errors import JobiError, UsageError
from jobi_tf.serving.settings import ServerSettings
from tests.serving.conftest import eventually, running

POST = b"POST /v1/models/odd:predict HTTP/1.1\r\nhost: localhost\r\n"


COUNT = {"signature_name": "count", "inputs": {"x": [0]}}


def get_status(channel, **options):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "odd"
    return model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(request, timeout=10, **options)


def connect(server, content=b""):
    connection = socket.create_connection(server.address, 10)
    connection.sendall(content)
    return connection


def received(connection) -> bytes:
    """All that comes until the connection is closed."""
    try:
        return b"".join(iter(lambda: connection.recv(65536), b""))
    except ConnectionError:
        return b""


def is_open(server, connection) -> bool:
    """Whether the server has a connection open."""
    ends = server.address, connection.getsockname()
    return any((x.laddr, x.raddr) == ends for x in psutil.Process().net_connections("tcp"))


def test_bytes_of_a_request(odd_server):
    assert odd_server.predict(b" " * 2001)[0] == 413
    assert odd_server.predict(b" " * 2000)[0] == 400
    connection = HTTPConnection(*odd_server.address, timeout=10)  # without Content-Length
    connection.request("POST", "/v1/models/odd:predict", iter([b" " * 1000] * 5), encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_bytes_of_all_requests(odd_server):
    """16 times the bytes of one request; those beyond are rejected, and their bytes no longer count."""
    part = POST + b"content-length: 2000\r\n\r\n" + b" " * 1900
    connections = [connect(odd_server, part) for _ in range(20)]
    assert all(x.recv(30).startswith(b"HTTP/1.1 429 ") for x in connections[17:])
    for connection in connections:
        connection.close()
    eventually(lambda: odd_server.predict(COUNT)[0] == 200)


def test_rows_of_a_request(odd_server):
    assert odd_server.predict(COUNT | {"inputs": {"x": [0] * 10}})[0] == 200
    status, answer = odd_server.predict(COUNT | {"inputs": {"x": [0] * 11}})
    assert status == 400
    assert "11" in answer["error"]


def test_requests_at_a_time(odd, release):
    with (
        running(odd, max_requests=3) as server,
        ThreadPoolExecutor(3) as threads,
        grpc.insecure_channel(server.grpc) as channel,
    ):
        slow = [threads.submit(server.predict, COUNT) for _ in range(3)]
        eventually(lambda: "jobi_tf_requests_in_flight 3.0" in server.metrics())
        assert server.predict(COUNT)[0] == 429
        with pytest.raises(grpc.RpcError) as caught:
            get_status(channel)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.send("/healthz")[0] == 200
        release.set()
        assert [one.result()[0] for one in slow] == [200] * 3
        assert server.predict(COUNT)[0] == 200


def test_a_client_that_has_gone_is_not_waited_for(odd, release):
    body = json.dumps(COUNT).encode()
    with running(odd) as server:
        connection = connect(server, POST + b"content-length: %d\r\n\r\n" % len(body) + body)
        eventually(lambda: "jobi_tf_requests_in_flight 1.0" in server.metrics())
        connection.close()
        eventually(lambda: "jobi_tf_requests_in_flight 0.0" in server.metrics())
        assert 'code="CANCELLED"' in server.metrics()
        release.set()
        assert server.predict(COUNT)[0] == 200


def test_a_long_computation(odd_server, release):
    assert odd_server.predict(COUNT)[0] == 504
    release.set()
    eventually(lambda: odd_server.predict(COUNT)[0] == 200)


def test_slow_requests_do_not_keep_others_out(odd_server):
    """Many more than the requests at a time; each sends a part, and a byte now and then; all are closed at last."""
    parts = [b"", b"POST /v1/mod", POST, POST + b"content-length: 500\r\n\r\n{"]
    connections = [connect(odd_server, part) for part in parts * 10]
    for _ in range(5):
        assert odd_server.predict(COUNT)[0] == 200
        for i, connection in enumerate(connections):
            if i % len(parts):
                with suppress(ConnectionError):  # it took too long and was closed
                    connection.sendall(b"x")
    assert {received(connection) for connection in connections} == {b""}
    for connection in connections:
        connection.close()


def test_a_head_without_end(odd_server):
    with connect(odd_server) as connection, pytest.raises(ConnectionError):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 10_000_000)


def test_line_breaks_between_requests(odd_server):
    request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with connect(odd_server, b"\r\n".join([request, request])) as connection:

        def closed():
            with suppress(ConnectionError):
                connection.sendall(b"\r\n")
            return not is_open(odd_server, connection)

        eventually(closed)
        assert received(connection).count(b"200 OK") == 2


@pytest.mark.parametrize("more", [b"", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"])
def test_an_answer_that_is_not_read(odd, more):
    with running(odd, timeout=1.0) as server:
        row = {"decimals": [[0.1, 0.2]], "integers": [1], "truths": [True], "texts": ["x" * 10_000]}
        body = json.dumps({"inputs": {name: values * 1500 for name, values in row.items()}}).encode()
        with connect(server, POST + b"content-length: %d\r\n\r\n" % len(body) + body) as connection:
            time.sleep(0.5)
            connection.sendall(more)
            eventually(lambda: not is_open(server, connection))
            assert len(received(connection)) < 15_000_000  # it was closed before all could be read
        assert server.send("/healthz")[0] == 200


def test_hosts(odd_server, odd):
    def status(server, host):
        return server.send("/v1/models", headers={"Host": host})[0]

    names = ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:8501", "10.1.2.3", socket.gethostname()]
    assert {status(odd_server, host) for host in names} == {200}
    for host in ("rebound.example", "rebound.example:80", "localhost.example", "127.0.0.1.example"):
        assert status(odd_server, host) == 421
    with running(odd, token="secret") as server:
        assert status(server, "any.example") == 401


def test_a_name_with_capitals(odd, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "DESKTOP-AB12")
    with running(odd, host="Localhost") as server:
        for host in ("DESKTOP-AB12", "Localhost"):
            assert server.send("/v1/models", headers={"Host": host})[0] == 200


def test_a_token(odd):
    with running(odd, token="säcret") as server:
        right = {"Authorization": "Bearer säcret".encode()}
        for header in (None, "säcret", "Bearer", "Bearer other", "Basic säcret"):
            headers = {} if header is None else {"Authorization": header.encode()}
            assert server.predict(COUNT, headers=headers)[0] == 401
        assert server.predict(COUNT, headers=right)[0] == 200
        for path in ("/metrics", "/%6detrics", "/v1/models", "/v1/models/odd", "/staticx", "//"):
            assert server.send(path)[0] == 401
        assert server.send("/metrics", headers=right)[0] == 200
        for path in ("/healthz", "/", "/static/page.js"):  # the page has a field for the token
            assert server.send(path)[0] == 200
        assert server.send("/static/../metrics")[0] == 404
    with running(odd, token="secret") as server, grpc.insecure_channel(server.grpc) as channel:
        for metadata in ([], [("authorization", "Bearer other")]):
            with pytest.raises(grpc.RpcError) as caught:
                get_status(channel, metadata=metadata)
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert get_status(channel, metadata=[("authorization", "Bearer secret")]).model_version_status


def test_tls(odd, certificate):
    cert, key = certificate
    with running(odd, certificate=cert, key=key, timeout=1.0) as server:
        assert re.search(r" https://127\.0\.0\.1:\d+ and grpcs://127\.0\.0\.1:\d+$", server.log[0])
        trusting = ssl.create_default_context(cafile=str(cert))
        assert server.predict(COUNT, context=trusting)[0] == 200
        with pytest.raises(OSError, match="certificate verify failed"):
            server.send("/healthz", context=ssl.create_default_context())
        credentials = grpc.ssl_channel_credentials(cert.read_bytes())
        with grpc.secure_channel(server.grpc, credentials) as channel:
            assert get_status(channel).model_version_status
        with connect(server) as silent:
            eventually(lambda: not is_open(server, silent))


def test_a_key_with_a_passphrase(odd, certificate, tmp_path):
    cert, key = certificate
    command = ["openssl", "rsa", "-aes256", "-in", key, "-out", tmp_path / "key.pem", "-passout", "pass:secret"]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(JobiError, match="passphrase"), running(odd, certificate=cert, key=tmp_path / "key.pem"):
        pass


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6 and IPv4 in one socket")
def test_all_addresses(odd):
    with running(odd, host="::") as server:
        port = re.search(r"http://\[::\]:(\d+)", server.log[0])[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, int(port)), 10).close()


def test_what_cannot_be_served(odd, odd_server, tmp_path):
    (tmp_path / "cert.pem").write_text("junk")
    rest_port, grpc_port = odd_server.address[1], int(odd_server.grpc.rsplit(":", 1)[1])
    for options, words in (
        ({"certificate": tmp_path / "cert.pem", "key": tmp_path / "key.pem"}, "key.pem"),
        ({"rest_port": rest_port}, f"127.0.0.1:{rest_port}"),
        ({"grpc_port": grpc_port}, f"127.0.0.1:{grpc_port}"),
        ({"host": "nowhere.invalid"}, "nowhere.invalid:0"),
    ):
        with pytest.raises(JobiError, match=words), running(odd, **options):
            pass
    names = ({"name": x} for x in ("a/b", "a:b", ".", ".."))
    for options in (*names, {"key": tmp_path}, {"max_body": 2**31}, {"timeout": math.inf}, {"max_requests": 10**9}):
        with pytest.raises(UsageError):
            ServerSettings(odd, **options)


SERVE = """
import sys
import threading
from pathlib import Path
from jobi_tf.serving.saved_model import Signature
from jobi_tf.serving.server import serve
from jobi_tf.serving.settings import ServerSettings

compute, lines = Signature.compute, iter(sys.stdin)
release = threading.Thread(target=next, args=(lines, None), daemon=True)
release.start()
Signature.compute = lambda *arguments: release.join() or compute(*arguments)
serve(ServerSettings(Path(sys.argv[1]), rest_port=0, grpc_port=0), lambda line: print(line, flush=True))
print("ended")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_the_server_after_the_requests_in_flight(odd, number):
    """They are computed only when a line comes on stdin."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(odd)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        assert process.stdout is not None
        rest, rpc = map(int, re.findall(r"127\.0\.0\.1:(\d+)", process.stdout.readline()))
        connections = [HTTPConnection("127.0.0.1", rest, timeout=60) for _ in range(10)]
        idle, *others = connections
        idle.connect()
        for connection in others[1:]:
            connection.request("POST", "/v1/models/odd:predict", json.dumps(COUNT))
        with grpc.insecure_channel(f"127.0.0.1:{rpc}") as channel:
            request = predict_pb2.PredictRequest()
            request.model_spec.name = "odd"
            request.model_spec.signature_name = "count"
            tensor = request.inputs["x"]
            tensor.dtype = 1
            tensor.tensor_shape.dim.add().size = 1
            tensor.float_val.append(0.6)
            calls = [PredictionServiceStub(channel).Predict.future(request) for _ in range(4)]

            def in_flight(count):
                others[0].request("GET", "/metrics")
                return f"jobi_tf_requests_in_flight {count}.0" in others[0].getresponse().read().decode()

            eventually(lambda: in_flight(12))
            process.send_signal(number)
            eventually(lambda: socket.socket().connect_ex(("127.0.0.1", rest)))
            process.stdin.write("go\n")
            process.stdin.flush()
            assert all(call.result(60).outputs["rows"].int_val[0] for call in calls)
        assert [connection.getresponse().status for connection in others[1:]] == [200] * 8
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (0, "ended\n")
    assert "Traceback" not in err


def test_settings_and_the_package_are_light():
    code = "import sys, jobi_tf.serving, jobi_tf.serving.settings\n"
    code += "print({'tensorflow', 'keras', 'grpc', 'uvicorn', 'starlette'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_server_does_not_import_keras(tmp_path):
    """Which takes as long as TensorFlow itself."""
    command = [sys.executable, "-X", "importtime", "-m", "jobi_tf", "serve", str(tmp_path)]
    done = subprocess.run([*command, "--rest-port", "0", "--grpc-port", "0"], capture_output=True, text=True)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 1
    assert "jobi_tf.serving.server" in modules
    assert not {"keras", "keras.src", "sklearn", "matplotlib"} & modules
