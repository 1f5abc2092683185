import subprocess
import sys

import numpy as np
import pytest

import jobi_tf
from jobi_tf.cli import evaluate, main
from jobi_tf.errors import DataError, JobiError, UsageError
from jobi_tf.evaluation.metrics import TIES


def test_help_imports_nothing_heavy(tmp_path):
    code = """if True:
        import sys
        from jobi_tf.cli.main import cli
        try:
            cli.main(sys.argv[1:], prog_name="jobi-tf")
        except SystemExit as end:
            assert not end.code
        print(sorted({"tensorflow", "keras", "numpy", "rich", "pydantic"} & set(sys.modules)))
    """
    for arguments, imported in (
        (["--help"], []),
        (["--version"], []),
        (["predict", "--help"], []),
        (["train", "--help"], ["pydantic"]),
    ):
        command = [sys.executable, "-c", code, *arguments]
        said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert said.splitlines()[-1] == str(imported)


def test_module_and_version(tmp_path):
    command = [sys.executable, "-m", "jobi_tf.cli", "--version"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said == f"jobi-tf {jobi_tf.__version__}\n"


def test_every_command_is_listed_and_helps(call):
    said = call("--help").stdout
    for name, words in main.COMMANDS.items():
        assert f"{name} " in said
        assert words in said
        assert "--help" in call(name, "--help").stdout


def test_choices_are_those_of_the_library():
    assert evaluate.TIES == TIES


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (UsageError("expected so"), 2, "Error: expected so\n"),
        (DataError("expected so"), 1, "Error: expected so\n"),
        (JobiError("expected so"), 1, "Error: expected so\n"),
        (PermissionError(13, "Permission denied", "/a/b"), 1, "Error: /a/b: Permission denied\n"),
        (OSError(28, "No space left on device"), 1, "Error: No space left on device\n"),
        (OSError("8000 requested and 36 written"), 1, "Error: No space left on device\n"),
        (MemoryError(), 1, "Error: out of memory: the model or the data are too large for this machine\n"),
        (KeyboardInterrupt(), 130, "\nInterrupted.\n"),
        (BrokenPipeError(32, "Broken pipe"), 1, ""),
    ],
)
def test_failures_are_one_sentence(call, monkeypatch, error, status, words):
    monkeypatch.setattr("jobi_tf.datasets.listing.listing", lambda: (_ for _ in ()).throw(error))
    assert call("data", "list", status=status).stderr == words


def test_faults_and_the_curious_get_a_traceback(call, monkeypatch):
    monkeypatch.setattr("jobi_tf.datasets.listing.listing", lambda: 1 / 0)
    assert isinstance(call("data", "list", status=1).exception, ZeroDivisionError)
    monkeypatch.setattr("jobi_tf.datasets.listing.listing", lambda: np.load("nowhere.npy"))
    monkeypatch.setenv("JOBI_TF_TRACEBACK", "1")
    assert isinstance(call("data", "list", status=1).exception, FileNotFoundError)


def test_unknown_command(call):
    assert "No such command 'evaluat'" in call("evaluat", status=2).stderr
