import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

import jobi_tf
from jobi_tf.export import export_run
from jobi_tf.serving.config import read_models_config

# Stands in for TensorFlow Serving, which no package registry has: notes its arguments and the files they name, and
# waits until it is told to end.
STAND_IN = """#!/bin/sh
out={out}
trap 'kill "$pid"; echo told > "$out/told"; exit 143' TERM INT
for argument in "$@"; do printf '%s\\n' "$argument" >> "$out/arguments.part"; done
for argument in "$@"; do
    file=${{argument#*=}}
    [ -f "$file" ] && cp "$file" "$out"
done
mv "$out/arguments.part" "$out/arguments"
{then}
"""
# Its sleep holds no pipe: told to end before it knows the sleep's number, it would leave the pipe open for a minute.
WAIT = 'sleep 60 > /dev/null 2>&1 & pid=$!; wait "$pid"'


@pytest.fixture(scope="session")
def exports(run, tmp_path_factory) -> Path:
    """The export of a run, as versions 1 and 2; not to be changed."""
    folder = tmp_path_factory.mktemp("exports") / "towns"
    for _ in range(2):
        export_run(jobi_tf.load_run(run), folder, warmup=False)
    return folder


@pytest.fixture
def stand_in(tmp_path):
    """Puts a stand-in for TensorFlow Serving on the PATH: gives its folder of notes and the environment."""

    def make(then: str = WAIT) -> tuple[Path, dict[str, str]]:
        out, programs = tmp_path / "out", tmp_path / "bin"
        for folder in (out, programs):
            folder.mkdir(exist_ok=True)
        program = programs / "tensorflow_model_server"
        program.write_text(STAND_IN.format(out=shlex.quote(str(out)), then=then))
        program.chmod(0o755)
        return out, {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}

    return make


@contextmanager
def serving(
    *arguments: object, environment: dict[str, str] | None = None, status: int = 0
) -> Iterator[subprocess.Popen]:
    """Runs `jobi-tf serve` until the block ends, which ends it by SIGTERM; then what it said on stderr is in `said`."""
    command = [sys.executable, "-m", "jobi_tf.cli", "serve", *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == status
            process.said = process.stderr.read()
        finally:
            process.kill()


def ready(process: subprocess.Popen) -> str:
    """The address of REST, once the server says it."""
    assert process.stdout is not None
    line = next(line for line in process.stdout if line.startswith("serving "))
    return re.search(r"http://[\d.:]+", line)[0]


def appears(path: Path) -> str:
    end = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)
    return path.read_text()


def test_the_embedded_server(exports):
    with serving(exports, "--rest-port", 0, "--grpc-port", 0, "--label", "old=1") as process:
        url = ready(process)
        with urllib.request.urlopen(f"{url}/v1/models") as answer:
            assert json.load(answer) == {"models": ["towns"]}
        with urllib.request.urlopen(f"{url}/v1/models/towns/labels/old") as answer:
            assert json.load(answer)["model_version_status"][0]["version"] == "1"
        with urllib.request.urlopen(url) as answer:
            assert b"Complete a fact" in answer.read()


@pytest.mark.slow
def test_models_of_a_file(exports, tmp_path):
    file = tmp_path / "models.config"
    file.write_text(
        f"model_config_list {{ config {{ name: 'a' base_path: '{exports}' }} config {{ name: 'b' base_path: '{exports}'"
        " model_version_policy { specific { versions: 1 } } } }"
    )
    with serving("--config", file, "--rest-port", 0, "--no-grpc") as process:
        url = ready(process)
        with urllib.request.urlopen(f"{url}/v1/models") as answer:
            assert json.load(answer) == {"models": ["a", "b"]}
        with urllib.request.urlopen(f"{url}/v1/models/b") as answer:
            assert [x["version"] for x in json.load(answer)["model_version_status"]] == ["1"]


def test_tensorflow_serving_is_run_where_it_is(exports, stand_in):
    out, environment = stand_in()
    with serving(exports, "--rest-port", 18501, "--no-grpc", "--timeout", 2, environment=environment) as process:
        flags = dict(line.removeprefix("--").split("=", 1) for line in appears(out / "arguments").splitlines())
        assert (flags["port"], flags["rest_api_port"]) == ("0", "18501")
        assert flags["rest_api_timeout_in_ms"] == "2000"
        assert "enable_batching" not in flags
        assert Path(flags["model_config_file"]).exists()
        (model,) = read_models_config(out / "models.config")
        assert (model.name, model.folder, model.latest, model.labels) == ("towns", exports.resolve(), 1, {})
        assert "enable: true" in (out / "prometheus.config").read_text()
    assert (out / "told").exists()
    assert not Path(flags["model_config_file"]).exists()
    assert "tensorflow_model_server listens on all addresses of this machine" in process.said


def test_options_for_tensorflow_serving(exports, stand_in):
    out, environment = stand_in()
    options = ["--name", "other", "--label", "stable=1", "--batch-rows", 2048, "--batch-wait", 0.002, "--poll", 5]
    with serving(exports, *options, "--host", "0.0.0.0", "--tf-serving", environment=environment):
        flags = dict(line.removeprefix("--").split("=", 1) for line in appears(out / "arguments").splitlines())
        assert (flags["port"], flags["rest_api_port"]) == ("8500", "8501")
        assert flags["file_system_poll_wait_seconds"] == "5"
        assert flags["enable_batching"] == "true"
        batching = (out / "batching.conf").read_text()
        assert "max_batch_size { value: 2048 }" in batching
        assert "batch_timeout_micros { value: 2000 }" in batching
        (model,) = read_models_config(out / "models.config")
        assert (model.name, model.versions, model.labels) == ("other", (1, 2), {"stable": 1})


def test_a_file_of_models_goes_to_tensorflow_serving_as_it_is(exports, stand_in, tmp_path):
    out, environment = stand_in()
    file = tmp_path / "mine.config"
    file.write_text(f"model_config_list {{ config {{ name: 'a' base_path: '{exports}' }} }}")
    with serving("--config", file, environment=environment):
        assert f"--model_config_file={file}\n" in appears(out / "arguments")


def test_tensorflow_serving_that_ends_by_itself(exports, stand_in):
    _, environment = stand_in(then="exit 7")
    command = [sys.executable, "-m", "jobi_tf.cli", "serve", exports]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Error: tensorflow_model_server ended by itself, with status 7" in done.stderr


@pytest.mark.slow
def test_the_embedded_server_does_what_tensorflow_serving_cannot(exports, stand_in, tmp_path):
    out, environment = stand_in()
    token = tmp_path / "token"
    token.write_text("secret\n")
    options = ["--grpc-port", 0, "--rest-port", 0, "--token-file", token]
    with serving(exports, *options, environment=environment) as process:
        request = urllib.request.Request(f"{ready(process)}/v1/models", headers={"Authorization": "Bearer secret"})
        with urllib.request.urlopen(request) as answer:
            assert json.load(answer) == {"models": ["towns"]}
    assert "The embedded server, for --token-file: tensorflow_model_server asks for no token." in process.said
    assert not (out / "arguments").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "127.0.0.1"], "--tf-serving cannot keep --host: it listens on all addresses of the machine"),
        (["--max-rows", "9"], "cannot keep --max-rows: it has no limit on rows"),
        (["--certificate", "c", "--key", "k"], "cannot keep --certificate: it has no TLS for REST"),
        (["--rest-port", "0"], "cannot keep --rest-port: it cannot let the system choose a port"),
        (["--poll", "0.5"], "cannot keep --poll: it looks for versions after whole seconds"),
    ],
)
def test_tensorflow_serving_cannot(exports, call, stand_in, monkeypatch, options, words):
    monkeypatch.setenv("PATH", stand_in()[1]["PATH"])
    assert words in call("serve", exports, "--tf-serving", *options, status=2).stderr


def test_tensorflow_serving_is_not_there(exports, call, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = call("serve", exports, "--tf-serving", status=1).stderr
    assert "expected tensorflow_model_server on the PATH, found none" in said


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        ([], 2, "expected DIR or --config, got neither"),
        (["DIR", "--config", "x"], 2, "expected DIR or --config, got both"),
        (["--config", "x", "--name", "y"], 2, "--config names its models: leave out --name"),
        (["--config", "x", "--label", "y=1"], 2, "--config names its models: leave out --label"),
        (["--config", "nowhere"], 1, "expected a file of models at nowhere: No such file"),
        (["DIR", "--no-rest", "--rest-port", "1"], 2, "expected --no-rest or --rest-port, got both"),
        (["DIR", "--no-rest", "--no-grpc"], 2, "expected a port for REST, for gRPC or for both, got neither"),
        (["DIR", "--label", "stable"], 2, "expected --label LABEL=VERSION, each label once, got 'stable'"),
        (["DIR", "--label", "a=1", "--label", "a=2"], 2, "each label once, got 'a=2'"),
        (["DIR", "--name", "a/b"], 2, "expected a model's name without / and :, got 'a/b'"),
        (["DIR", "--key", "k"], 2, "expected a certificate together with its key, got only one of them"),
        (["DIR", "--token-file", "nowhere"], 1, "expected a file with a token at nowhere: No such file"),
        (["nowhere"], 1, "expected a folder of exported versions at nowhere: no such folder; `jobi-tf export RUN DIR`"),
        (["RUN"], 1, "found none; `jobi-tf export RUN DIR` makes one"),
        (["DIR/1"], 1, "got one version: give its parent"),
        (["DIR", "--write", "x"], 2, "--write is for the files of --print, which is missing"),
        (["--config", "x", "--print", "k8s"], 2, "--print is for DIR, not for --config"),
        (["DIR", "--print", "k8s", "--grpc-port", "1"], 2, "--grpc-port has no place in the files of --print k8s"),
        (["DIR", "--print", "compose", "--embedded"], 2, "--embedded or --tf-serving has no place in the files"),
        (["DIR", "--print", "compose", "--max-rows", "1"], 2, "--max-rows has no place in the files"),
        (["DIR", "--print", "compose", "--rest-port", "0"], 2, "expected ports to write into files, got 0"),
        (["DIR", "--print", "compose", "--batch-rows", "9"], 2, "expected at least 1024 rows at a time"),
        (["DIR", "--print", "compose", "--label", "a=9"], 1, "expected version 9 in"),
    ],
)
def test_refuses(exports, run, call, options, status, words):
    places = {"DIR": str(exports), "DIR/1": str(exports / "1"), "RUN": str(run)}
    said = call("serve", *[places.get(option, option) for option in options], status=status).stderr
    assert words in said
    assert said.startswith("Error: ")


@pytest.mark.parametrize("content", ["", "two words", "two\nlines"])
def test_bad_tokens(exports, call, tmp_path, content):
    file = tmp_path / "token"
    file.write_text(content)
    said = call("serve", exports, "--embedded", "--token-file", file, status=1).stderr
    assert f"expected one line with a token of letters, digits and signs in {file}" in said


def test_print(exports, call, tmp_path):
    said = call("serve", exports, "--print", "compose").stdout
    parts = dict(zip(*[iter(re.split(r"^# ---- file: (.*)\n", said, flags=re.MULTILINE)[1:])] * 2, strict=True))
    assert set(parts) == {"compose.yaml", "models.config", "batching.conf", "prometheus.config", "prometheus.yml"}
    (tmp_path / "models.config").write_text(parts["models.config"])
    (model,) = read_models_config(tmp_path / "models.config")
    assert (model.name, model.labels) == ("towns", {"stable": 1, "canary": 2})
    assert len(list(yaml.safe_load_all(call("serve", exports, "--print", "k8s").stdout))) == 4


def test_write(exports, call, tmp_path):
    folder = tmp_path / "deep" / "files"
    result = call(
        "serve", exports, "--print", "tf-serving", "--write", folder, "--label", "best=2", "--batch-rows", 4096
    )
    assert result.stdout == ""
    names = ["batching.conf", "docker.sh", "models.config", "prometheus.config", "prometheus.yml"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert f"written to {folder}: " in result.stderr
    (model,) = read_models_config(folder / "models.config")
    assert (model.folder, model.versions, model.labels) == (exports.resolve(), (2,), {"best": 2})
    assert "--enable_batching=true" in (folder / "models.config").read_text()
    said = call("serve", exports, "--print", "k8s", "--write", folder / "docker.sh", status=1).stderr
    assert f"cannot write into {folder}/docker.sh: File exists" in said


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from jobi_tf.cli.main import cli\n"
        "try: cli.main(['serve', '--help'], prog_name='jobi-tf')\n"
        "except SystemExit: print(sorted({'tensorflow', 'keras', 'numpy', 'grpc', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
