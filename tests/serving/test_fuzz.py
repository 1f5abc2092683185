"""Thousands of broken requests: no crash, no traceback in an answer, right codes, flat memory."""

import json
import random
import re
import signal
import socket
import string
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import grpc
import pytest

REJECTED = {400, 404, 405, 413, 429, 504}
LEAKS = re.compile(rb'Traceback|File "|\.py\b|site-packages|NodeDef|\[Op:')
SLOW_ONES = 40  # connections that are held until the server closes them
MOST_GROWTH = 48  # MB, of 30,000 requests


@pytest.fixture(scope="module")
def server(first, tmp_path_factory) -> Iterator[tuple[subprocess.Popen, int, int]]:
    folder = tmp_path_factory.mktemp("fuzz")
    limits = ["--max-body", "1000000", "--max-rows", "500", "--max-requests", "64", "--timeout", "2"]
    command = [sys.executable, "-m", "jobi_tf", "serve", str(first), "--name", "graph", *limits]
    process = subprocess.Popen(
        [*command, "--rest-port", "0", "--grpc-port", "0"],
        stdout=subprocess.PIPE,
        stderr=(folder / "stderr").open("w"),
        text=True,
    )
    assert process.stdout is not None
    ready = next((line for line in process.stdout if line.startswith("serving ")), "")
    ports = [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", ready)]
    assert len(ports) == 2, (folder / "stderr").read_text()
    yield process, *ports
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 0
    assert "Traceback" not in (folder / "stderr").read_text()


def resident(process: subprocess.Popen) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


class Fuzzer:
    """Makes broken requests from a seed and sends them; `self.codes` counts the answers."""

    def __init__(self, rest_port: int, grpc_port: int, seed: int):
        self.random = random.Random(seed)
        self.address = ("127.0.0.1", rest_port)
        self.connection = HTTPConnection(*self.address, timeout=30)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}")
        self.codes: Counter = Counter()
        self.waiting: list[socket.socket] = []

    def send(self) -> None:
        kinds: list[Callable[[], None]] = [
            self.broken_json,
            self.wrong_value,
            self.wrong_value,
            self.unknown_name,
            self.huge_batch,
            self.huge_body,
            self.wrong_path,
            self.junk_bytes,
            self.junk_message,
            self.wrong_message,
            self.right,
        ]
        if len(self.waiting) < SLOW_ONES and self.random.random() < 0.02:
            self.slow()
        self.random.choice(kinds)()

    def text(self, most: int = 40) -> str:
        letters = string.printable + "äß語\u0000\ud7ff🙂"
        return "".join(self.random.choices(letters, k=self.random.randrange(most)))

    def value(self, depth: int = 0) -> object:
        simple = [None, True, -1, 2**70, 1.5, float("nan"), float("inf"), self.text(), "entity 1", {"b64": "%"}]
        if depth > 3 or self.random.random() < 0.5:
            return self.random.choice(simple)
        if self.random.random() < 0.5:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        keys = ["head", "relation", "tail", "entity", "k", "instances", "b64", self.text(5)]
        return {self.random.choice(keys): self.value(depth + 1) for _ in range(self.random.randrange(4))}

    def post(self, body: bytes, path: str = "/v1/models/graph:predict", method: str = "POST") -> tuple[int, bytes]:
        try:
            self.connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = self.connection.getresponse()
            status, content = answer.status, answer.read()
        except (ConnectionError, TimeoutError):  # the server may close a connection whose request it refused to read
            self.connection.close()
            self.codes["closed"] += 1
            return 413, b'{"error": ""}'
        self.codes[status] += 1
        assert not LEAKS.search(content), content[:500]
        if status != 200:
            assert status in REJECTED, (status, path, body[:200], content[:200])
        return status, content

    def rejected(self, body: bytes, *codes: int) -> None:
        status, content = self.post(body)
        assert status in codes, (status, body[:300], content[:300])
        assert isinstance(json.loads(content)["error"], str)

    def broken_json(self) -> None:
        whole = json.dumps({"instances": [{"head": "entity 1", "relation": "relation 1", "tail": "entity 2"}]})
        self.rejected(whole[: self.random.randrange(len(whole))].encode() + b"{", 400)

    def wrong_value(self) -> None:
        signature = self.random.choice(
            ["serving_default", "score_ids", "predict_new_tails", "embed", self.text(), 3, None]
        )
        body = {"signature_name": signature, self.random.choice(["instances", "inputs", self.text(4)]): self.value()}
        if self.random.random() < 0.2:
            body["inputs"] = self.value()
        self.post(json.dumps(body).encode())

    def unknown_name(self) -> None:
        query = {"head": self.text() + "?", "relation": "relation 1", "k": self.random.randrange(-5, 200)}
        status, content = self.post(json.dumps({"signature_name": "predict_tails", "instances": [query]}).encode())
        assert status == 200, content
        assert json.loads(content)["predictions"][0]["known"] is False

    def huge_batch(self) -> None:
        rows = [{"head": "entity 1", "relation": "relation 1", "tail": "entity 2"}] * self.random.randrange(501, 4000)
        self.rejected(json.dumps({"instances": rows}).encode(), 400)

    def huge_body(self) -> None:
        self.rejected(b" " * self.random.randrange(1_000_001, 1_200_000), 413)

    def wrong_path(self) -> None:
        known = ["/v1/models/graph", "/v1/models/graph/versions/9", "/v1/models/nope", "/v1/models/graph/labels/x"]
        path = self.random.choice([*known, "/v2", "/%00", "/v1/models/graph/names?kind=x&limit=-1", "/static/../x"])
        action = self.random.choice([":predict", ":classify", ":regress", "/metadata", "", "/x"])
        self.post(b"{}", path + action, self.random.choice(["GET", "POST", "PUT", "DELETE", "HEAD"]))

    def junk_bytes(self) -> None:
        with socket.create_connection(self.address, timeout=30) as client:
            start = self.random.choice(
                [b"", b"POST /v1/models/graph:predict HTTP/1.1\r\nContent-Length: -3\r\n\r\n", b"GET "]
            )
            client.sendall(start + self.random.randbytes(self.random.randrange(1, 3000)) + b"\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            content = b"".join(iter(lambda: client.recv(65536), b""))
            assert not LEAKS.search(content), content[:500]
            assert b" 500 " not in content.split(b"\r\n")[0]

    def slow(self) -> None:
        client = socket.create_connection(self.address, timeout=30)
        client.sendall(
            b"POST /v1/models/graph:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"[
                : self.random.randrange(100)
            ]
        )
        self.waiting.append(client)

    def call(self, content: bytes) -> grpc.StatusCode:
        call = self.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        try:
            call(content, timeout=30)
            code, said = grpc.StatusCode.OK, ""
        except grpc.RpcError as error:
            code, said = error.code(), error.details()
        self.codes[code] += 1
        assert not LEAKS.search(said.encode()), said
        return code

    def junk_message(self) -> None:
        code = self.call(self.random.randbytes(self.random.randrange(1, 2000)))
        assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), code

    def wrong_message(self) -> None:
        import tensorflow as tf
        from tensorflow_serving.apis.predict_pb2 import PredictRequest

        request = PredictRequest()
        request.model_spec.name = self.random.choice(["graph", "graph", "graph", "nope"])
        request.model_spec.signature_name = self.random.choice(["", "score_ids", "predict_heads", "embed", "x"])
        values = [[1, 2], ["a"], [["entity 1"]], [1.5], "entity 1", [True], [b"\xff\x00"], [10**6]]
        for name in self.random.sample(["head", "relation", "tail", "entity", "k", "x"], self.random.randrange(1, 4)):
            request.inputs[name].CopyFrom(tf.make_tensor_proto(self.random.choice(values)))
        if self.random.random() < 0.3:
            tensor = request.inputs["head"]
            tensor.tensor_shape.dim.add().size = self.random.choice([2**40, -5, 0, 7])
            tensor.dtype = self.random.randrange(30)
        code = self.call(request.SerializeToString())
        if request.model_spec.name == "nope":
            assert code == grpc.StatusCode.NOT_FOUND, code
        elif request.model_spec.signature_name == "x":
            assert code == grpc.StatusCode.FAILED_PRECONDITION, code
        else:
            assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OK), code

    def right(self) -> None:
        body = {"instances": [{"head": "entity 1", "relation": "relation 1", "tail": "entity 2"}]}
        status, content = self.post(json.dumps(body).encode())
        assert status == 200, content
        assert json.loads(content)["predictions"][0]["known"] is True

    def close(self) -> None:
        for client in self.waiting:
            client.settimeout(10)
            try:
                while client.recv(4096):
                    pass
            except ConnectionError:
                pass
            client.close()
        self.connection.close()
        self.channel.close()


def fuzz(server: tuple[subprocess.Popen, int, int], count: int, seed: int) -> tuple[float, float]:
    """Sends `count` requests; returns the resident memory of the server in MB after the first fifth, and at the end."""
    process, *ports = server
    fuzzer = Fuzzer(*ports, seed)
    settled = 0.0
    for number in range(count):
        fuzzer.send()
        if number == count // 5:
            settled = resident(process)
    time.sleep(2.5)  # longer than the server waits for slow ones
    fuzzer.close()
    assert process.poll() is None
    assert fuzzer.codes[200]
    assert fuzzer.codes[400]
    fuzzer = Fuzzer(*ports, seed)
    fuzzer.right()
    fuzzer.close()
    return settled, resident(process)


def test_three_hundred(server):
    fuzz(server, 300, seed=1)


@pytest.mark.slow
def test_thirty_thousand(server):
    settled, at_the_end = fuzz(server, 30_000, seed=0)
    assert at_the_end - settled < MOST_GROWTH
