import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import jobi_tf
from jobi_tf.export import export_run


@pytest.fixture(scope="session")
def exports(run, tmp_path_factory) -> Path:
    """The export of a run; not to be changed."""
    folder = tmp_path_factory.mktemp("exports") / "towns"
    export_run(jobi_tf.load_run(run), folder, warmup=False)
    return folder


@contextmanager
def serving(*arguments: object) -> Iterator[str]:
    """Runs `jobi-tf serve` until the block ends, which sends SIGTERM; gives the address of REST."""
    command = [sys.executable, "-m", "jobi_tf", "serve", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = next(line for line in process.stdout if line.startswith("serving "))
            yield re.search(r"http://[\d.:]+", line)[0]
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


@pytest.mark.processes
def test_serve(exports, tmp_path, monkeypatch):
    """It is not TensorFlow Serving's program that runs, even if there is one on the PATH."""
    program = tmp_path / "tensorflow_model_server"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    token = tmp_path / "token"
    token.write_text("secret\n")
    with serving(exports, "--rest-port", 0, "--grpc-port", 0, "--name", "other", "--token-file", token) as url:
        assert url.startswith("http://127.0.0.1:")
        request = urllib.request.Request(f"{url}/v1/models", headers={"Authorization": "Bearer secret"})
        with urllib.request.urlopen(request) as answer:
            assert json.load(answer) == {"models": ["other"]}
        with urllib.request.urlopen(url) as answer:
            assert b"Complete a fact" in answer.read()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("options", "status", "word"),
    [
        ([], 2, "DIR"),
        (["DIR", "--name", "a/b"], 2, "a/b"),
        (["DIR", "--key", __file__], 2, "--certificate"),
        (["DIR", "--timeout", "0"], 2, "--timeout"),
        (["DIR", "--timeout", "nan"], 2, "--timeout"),
        (["DIR", "--config", "x"], 2, "--config"),
        (["DIR", "--token-file", "nowhere"], 2, "nowhere"),
        (["nowhere", "--rest-port", "0", "--grpc-port", "0"], 2, "nowhere"),
        (["RUN", "--rest-port", "0", "--grpc-port", "0"], 1, "towns"),
    ],
)
def test_what_cannot_be_served(exports, run, call, options, status, word):
    places = {"DIR": str(exports), "RUN": str(run)}
    stderr = call("serve", *[places.get(option, option) for option in options], status=status).stderr
    assert word in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("content", ["", "two words", "two\nlines"])
def test_bad_tokens(exports, call, tmp_path, content):
    file = tmp_path / "token"
    file.write_text(content)
    assert str(file) in call("serve", exports, "--token-file", file, status=1).stderr


@pytest.mark.processes
def test_a_library_is_missing(exports):
    name = "uvicorn"
    code = f"import sys; sys.modules[{name!r}] = None\nfrom jobi_tf.cli.main import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code, "serve", exports], capture_output=True, text=True)
    assert done.returncode == 1
    assert name in done.stderr
    assert "jobi-tf[serving]" in done.stderr
    assert "Traceback" not in done.stderr
