"""The group of commands, and how their failures are told."""

import errno
import os
import re
import signal
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

import jobi_tf
from jobi_tf.errors import JobiError, UsageError

COMMANDS = {
    "data": "List, prepare, count, check, build and make up data sets.",
    "train": "Train a model, or go on with a run.",
    "evaluate": "Rank a split and print MRR and Hits@k.",
    "predict": "Find the best answers to queries, by name.",
    "report": "Compare runs on one HTML page.",
    "search": "Search for good settings.",
    "reproduce": "Run experiments of the paper and write their tables.",
    "export": "Export a run as a SavedModel that is queried by name.",
    "serve": "Serve exports by gRPC and REST.",
}
INTERRUPTED = 128 + signal.SIGINT


class CommandLine(click.Group):
    """Imports a command when it is called, and turns failures into one sentence and an exit status.

    Status 2: options that cannot work; 1: failure; 130: interrupted. `JOBI_TF_TRACEBACK=1` shows tracebacks.
    """

    def list_commands(self, context: click.Context) -> list[str]:
        """Returns the names of the commands."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Imports a command."""
        return getattr(import_module(f"jobi_tf.cli.{name}"), name) if name in COMMANDS else None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, *args: Any, **options: Any) -> NoReturn:
        """Runs a command and exits."""
        try:
            status = super().main(*args, **{**options, "standalone_mode": False}) or 0
            sys.stdout.flush()
            sys.exit(status)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            click.echo("Interrupted.", err=True)
            sys.exit(INTERRUPTED)
        except BrokenPipeError:  # the reader has gone, as `head` does: nothing is left to be said to it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except Exception as error:
            if os.environ.get("JOBI_TF_TRACEBACK") or (sentence := explain(error)) is None:
                raise
            click.echo(f"Error: {sentence}", err=True)
            sys.exit(2 if isinstance(error, UsageError) else 1)


def explain(error: Exception) -> str | None:
    """Returns one sentence for a failure that is not a fault of the program, else None."""
    if isinstance(error, JobiError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"out of memory: {str(error) or 'the model or the data are too large for this machine'}"
    if isinstance(error, OSError):
        reason = error.strerror or " ".join(" ".join(map(str, error.args)).split()) or type(error).__name__
        if "errno = 28" in reason or re.search(r"requested and \d+ written", reason):  # as HDF5 and NumPy say it
            reason = os.strerror(errno.ENOSPC)
        return ": ".join(str(part) for part in (error.filename, reason) if part is not None)
    return _explain_tensorflow(error)


def _explain_tensorflow(error: Exception) -> str | None:
    if "tensorflow" not in sys.modules:
        return None
    from tensorflow import errors

    message = re.sub(r"\{\{.*?\}\} |\[Op:.*?\]", "", str(error)).strip().split("\n")[0].strip()
    if isinstance(error, errors.ResourceExhaustedError):
        return f"out of memory: {message}" if "OOM" in message else message
    return message if isinstance(error, errors.PermissionDeniedError | errors.NotFoundError) else None


@click.group(cls=CommandLine)
@click.version_option(jobi_tf.__version__, package_name="jobi-tf", message="%(prog)s %(version)s")
def cli() -> None:
    """Complete knowledge graphs: train, evaluate and ask models that rank the facts a graph does not hold."""


def main() -> NoReturn:
    """Runs `jobi-tf`."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # names may not fit a terminal's encoding
    try:
        cli.main(prog_name="jobi-tf")
    except SystemExit as ended:
        if ended.code == INTERRUPTED and "tensorflow" in sys.modules:
            # TensorFlow's threads may still be at work, and crash while Python takes itself apart.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        raise
