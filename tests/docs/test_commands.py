"""The commands and the example programs in the documentation work."""

import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import click
import pytest

from jobi_tf.cli.main import cli

from .pages import PAGES, ROOT, all_commands

EXAMPLES = ROOT / "examples"
SERVER = "http://127.0.0.1:8501"
NEED_A_SERVER = {"client.py", "grpc_client.py"}
TESTED_ELSEWHERE = {"tutorial.py", "own_training.py", "own_data.py"}  # the last one is run by the fixture
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in NEED_A_SERVER | TESTED_ELSEWHERE)


def option_errors(words: list[str], values_too: bool = True) -> str | None:
    """Checks the options of a `jobi-tf` command, and the values that are no paths, without running it."""
    command, context = cli, click.Context(cli, info_name="jobi-tf", help_option_names=["-h", "--help"])
    while isinstance(command, click.Group) and words and not words[0].startswith("--h"):
        found = command.get_command(context, words[0])
        if found is None and (found := command.get_command(context, "list")) is None:
            return f"no command {words[0]}"
        words = words[1:] if found.name == words[0] else words  # a group without a command means `list`
        command, context = found, click.Context(found, info_name=found.name, parent=context)
    try:
        values, _, _ = command.make_parser(context).parse_args(list(words))
        for parameter in command.get_params(context):
            value = values.get(parameter.name)
            if values_too and isinstance(value, str) and not isinstance(parameter.type, click.Path | click.File):
                parameter.type_cast_value(context, value)
    except click.UsageError as error:
        return error.format_message()
    return None


def test_every_command_of_every_page_has_options_that_exist():
    lines = [x.text for x in all_commands() if x.text.startswith("jobi-tf ")]
    assert len(lines) > 40
    wrong = {x: error for x in lines if (error := option_errors(shlex.split(x, comments=True)[1:]))}
    assert wrong == {}
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    mentions = set(re.findall(r"`(jobi-tf [^`\n…]+)`", text)) | set(
        re.findall(r"^    \$ (jobi-tf .*)$", text, re.MULTILINE)
    )
    wrong = {x: error for x in mentions if (error := option_errors(shlex.split(x)[1:], values_too=False))}
    assert wrong == {}
    assert option_errors(["train", "--dataste", "world"])
    assert option_errors(["evaluate", "runs/x", "--split", "tset"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with small runs in place of those that the pages train, and the files that the examples write."""
    import jobi_tf

    path = tmp_path_factory.mktemp("docs")
    shutil.copytree(EXAMPLES, path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    before = Path.cwd()
    os.chdir(path)
    small = {"dim": 10, "epochs": 2, "eval_every": 1, "tensorboard": "none", "callbacks": ()}
    os.environ["JOBI_TF_HOME"] = str(path / "cache")
    jobi_tf.train("world", run_dir="runs/world", **small)
    shutil.copytree("runs/world", "runs/joint")
    jobi_tf.train("world", run_dir="runs/plain", joint=False, p=0, **small)
    runpy.run_path("examples/own_data.py")
    yield path
    os.chdir(before)


@pytest.mark.processes
def test_the_short_commands_of_all_pages_run(folder, call):
    for command in (x for x in all_commands() if not x.when):
        if command.text.startswith("jobi-tf "):
            call(*shlex.split(command.text, comments=True)[1:])
        else:
            subprocess.run(command.text, shell=True, check=True)
    assert (folder / "report.html").stat().st_size > 10_000
    assert (folder / "exports" / "world" / "2" / "saved_model.pb").exists()
    assert len((folder / "answers.tsv").read_text("utf-8").splitlines()) > 4


@pytest.mark.processes
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_example_runs(folder, capsys, name):
    if name == "load_export.py" and not (folder / "exports").exists():
        from jobi_tf import load_run
        from jobi_tf.export import export_run

        export_run(load_run("runs/world"), "exports/world")
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.slow
def test_all_commands_run_in_a_shell(tmp_path):
    """What a reader gets who copies each block, page after page; a server runs until the end of its page."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "3", "JOBI_TF_HOME": str(tmp_path / "cache")}

    def run(text: str) -> None:
        done = subprocess.run(text, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        assert '{"error"' not in done.stdout, text

    def serve(text: str) -> subprocess.Popen:
        server = subprocess.Popen(shlex.split(text), cwd=tmp_path, env=environment)
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{SERVER}/healthz")
                return server
            except OSError:
                assert server.poll() is None
                time.sleep(0.5)
        raise TimeoutError(text)

    start = [x for x in all_commands() if x.page == "docs/start.md"]
    others = [x for x in all_commands() if x.page != "docs/start.md"]
    servers: dict[str, subprocess.Popen] = {}
    try:
        for command in (x for x in start if x.when != "not run"):
            run(command.text)
        run("python examples/own_data.py")
        for command in (x for x in others if x.when != "not run"):
            if command.text.startswith("jobi-tf serve "):
                servers[command.page] = serve(command.text)
                for name in sorted(NEED_A_SERVER):
                    run(f"python examples/{name}")
            else:
                run(command.text)
    finally:
        for server in servers.values():
            server.send_signal(signal.SIGTERM)
            server.wait(30)
