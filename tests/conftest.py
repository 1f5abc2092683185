"""What every test can ask for."""

import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jobi_tf.cli.main import cli
from jobi_tf.training.config import TrainConfig

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        # In the background of a shell, or by nohup; processes that tests start and interrupt would inherit it.
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


# Logs for TensorBoard take two seconds a run; tests of them set `tensorboard`.
TrainConfig.model_fields["tensorboard"].default = "none"
TrainConfig.model_rebuild(force=True)


def pytest_collection_finish():
    """Keeps the objects of the imported libraries, half a million, out of garbage collection, which becomes rarer."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the public archives; only developers and CI have it."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "data").is_dir():
        reason = f"needs the public archives in {folder}/data"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    """A test never reads or writes the user's own cache."""
    monkeypatch.setenv("JOBI_TF_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.delenv("JOBI_TF_ARCHIVES", raising=False)


@pytest.fixture(scope="session")
def call() -> Callable[..., Result]:
    """Calls `jobi-tf` in this process."""

    def call(*arguments: object, status: int = 0, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(cli, [str(x) for x in arguments], input=stdin, prog_name="jobi-tf")
        assert result.exit_code == status, result.output
        return result

    return call
