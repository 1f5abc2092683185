import subprocess
import sys

import click
import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.cli import main
from jobi_tf.cli.options import SETTINGS, parse_assignments
from jobi_tf.errors import DataError, JobiError, UsageError
from jobi_tf.training.config import TrainConfig


def test_help_imports_nothing_heavy(tmp_path):
    code = """if True:
        import sys
        from jobi_tf.cli.main import cli
        try:
            cli.main(sys.argv[1:], prog_name="jobi-tf")
        except SystemExit as end:
            assert not end.code
        print(sorted({"tensorflow", "keras", "numpy", "rich", "pydantic", "grpc", "httpx"} & set(sys.modules)))
    """
    for arguments, imported in (
        (["--help"], []),
        (["--version"], []),
        (["predict", "-h"], []),
        (["serve", "-h"], []),
        (["train", "-h"], ["pydantic"]),
    ):
        command = [sys.executable, "-c", code, *arguments]
        output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert output.splitlines()[-1] == str(imported)


def test_module_and_version(tmp_path):
    command = [sys.executable, "-m", "jobi_tf", "--version"]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert output == f"jobi-tf {jobi_tf.__version__}\n"


@pytest.mark.processes
def test_closed_streams(tmp_path):
    command = f"{sys.executable} -m jobi_tf predict world --head France --relation capital"
    for closed in (">&-", "<&- >&- 2>&-"):
        assert subprocess.run(["sh", "-c", f"{command} {closed}"], cwd=tmp_path).returncode == 0


def commands(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(name, command)]
    context = click.Context(command)
    parts = [(part, command.get_command(context, part)) for part in command.list_commands(context)]
    return [found for part, child in parts for found in commands(child, f"{name} {part}".strip())]


@pytest.mark.parametrize(("name", "command"), commands(main.cli, ""))
def test_every_command_has_help_with_one_word_for_numbers(call, name, command):
    text = call(*name.split(), "--help").stdout
    assert text == call(*name.split(), "-h").stdout
    assert name.split()[0] in call("-h").stdout
    assert "INTEGER" not in text
    assert "FLOAT" not in text


@pytest.mark.parametrize(("name", "command"), commands(main.cli, ""))
def test_no_command_takes_an_option_twice(call, name, command):
    for option in command.params:
        if isinstance(option, click.Option) and not option.multiple and not option.is_flag:
            flag = option.opts[-1]
            stderr = call(*name.split(), flag, "1", flag, "1", status=2).stderr
            assert f"{flag} was given 2 times" in stderr


def test_every_setting_of_a_training_is_in_one_group():
    grouped = " ".join(SETTINGS.values()).split()
    assert sorted([*grouped, "merged_from", "extended_by", "own_program"]) == sorted(TrainConfig.model_fields)


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["evaluat"], "evaluate"),
        (["train", "--lr", "1"], "--learning-rate"),
        (["train", "--embedding-dim", "1"], "--dim"),
        (["train", "--negative", "1"], "--negatives"),
        (["train", "--dataset", "world", "--set", "lr=1"], "learning_rate"),
        (["train", "--dataset", "world", "--set", "epoch=1"], "epochs"),
        (["export", "--top-k", "1"], "-k"),
        (["predict", "--output", "x"], "--out"),
    ],
)
def test_unknown_names_get_a_suggestion(call, arguments, suggestion):
    *before, last = call(*arguments, status=2).stderr.split("id you mean")
    assert before
    assert suggestion in last


@pytest.mark.parametrize("command", ["complete", "merge", "plot", "soft-labels"])
def test_what_is_written_has_a_name(call, command):
    assert "''" in call(command, "world", "--out", "", status=2).stderr  # a shell's variable without a value


@pytest.mark.parametrize(
    ("error", "status", "word"),
    [
        (UsageError("expected so"), 2, "expected so"),
        (DataError("expected so"), 1, "expected so"),
        (JobiError("expected so"), 1, "expected so"),
        (PermissionError(13, "Permission denied", "/a/b"), 1, "/a/b: Permission denied"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (OSError("8000 requested and 36 written"), 1, "No space left on device"),
        (MemoryError(), 1, "out of memory"),
        (KeyboardInterrupt(), 130, "Interrupted"),
        (BrokenPipeError(32, "Broken pipe"), 1, ""),
    ],
)
def test_failures_are_one_sentence_and_a_status(call, monkeypatch, error, status, word):
    monkeypatch.setattr("jobi_tf.datasets.loading.listing", lambda: (_ for _ in ()).throw(error))
    stderr = call("data", "list", status=status).stderr
    assert word in stderr
    assert len(stderr.strip().splitlines()) <= 1


@pytest.mark.parametrize("where", ['  File "a.py", line 1, in f\n\n', "<stack traces unavailable>\n"])
@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("a/b.data; No space left on device", "a/b.data; No space left on device"),
        ("OOM when allocating a tensor", "out of memory: OOM when allocating a tensor"),
    ],
)
def test_errors_of_graphs_are_one_sentence(where, reason, sentence):
    text = "Graph execution error:\n\nDetected at node A defined at (most recent call last):\n" + where + reason
    assert main.explain(tf.errors.ResourceExhaustedError(None, None, text + "\n\t [[{{A}}]]")) == sentence


def test_tracebacks_of_faults_and_on_request(call, monkeypatch):
    monkeypatch.setattr("jobi_tf.datasets.loading.listing", lambda: 1 / 0)
    assert isinstance(call("data", "list", status=1).exception, ZeroDivisionError)
    monkeypatch.setattr("jobi_tf.datasets.loading.listing", lambda: np.load("nowhere.npy"))
    monkeypatch.setenv("JOBI_TF_TRACEBACK", "1")
    assert isinstance(call("data", "list", status=1).exception, FileNotFoundError)


def test_assignments():
    texts = ["eval-every=3", "joint = false", "dataset=a=b"]
    assert parse_assignments(texts) == {"eval_every": 3, "joint": False, "dataset": "a=b"}
    for texts, value in (
        (["joint"], "'joint'"),
        (["p=["], r"p=.*\["),
        (["p=2026-02-30"], "p=.*30"),
        (["p=1", "p=2"], "p="),
    ):
        with pytest.raises(UsageError, match=value):
            parse_assignments(texts)


@pytest.mark.parametrize("given", [None, "glibc.malloc.check=0"])
def test_training_starts_again_with_large_pages(tmp_path, monkeypatch, given):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if given:
        monkeypatch.setenv("GLIBC_TUNABLES", given)
    code = "import os; from jobi_tf.cli import main; print(os.environ.get('GLIBC_TUNABLES'), flush=True); main.main()"
    command = [sys.executable, "-c", code, "train", "--epochs", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "--epochs" in done.stderr
    first, *again = done.stdout.splitlines()
    assert first == str(given)
    assert bool(again) == (given is None)
    assert all("hugetlb=1" in line for line in again)
