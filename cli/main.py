"""The command `jobi-tf`: its commands, and the exit status and message of failures.

Exit status: 0 success; 2 usage: unknown options, values out of range, options that contradict each other, paths that
do not exist; 1 failure, such as damaged files or a full disk; 130 interrupted by SIGINT or SIGTERM.
"""

import os
import signal
import sys
from importlib import import_module
from typing import NoReturn

import click
import cloup

import jobi_tf
from jobi_tf.errors import UsageError, explain
from jobi_tf.launch import LAUNCHED, end_with, signals_handled

from .start import keep_memory

COMMANDS = {
    "train": "Train a model, or resume a run.",
    "launch": "Train or evaluate with several processes on this machine.",
    "merge": "Merge runs into one by adding their scores.",
    "rules": "Mine rules, and rank by them alone.",
    "soft-labels": "Write soft labels, from which another run learns.",
    "plan": "Estimate the memory and time of a training.",
    "evaluate": "Rank a split and print MRR and Hits@k.",
    "predict": "Find the best answers to queries, by name.",
    "neighbors": "Find the most similar entities.",
    "explain": "Show the evidence for a triple.",
    "complete": "List the most likely triples that the graph lacks.",
    "plot": "Plot curves, a map of the entities and ranks by relation.",
    "convert": "Write embeddings for other programs.",
    "runs": "List runs, and compare two of them.",
    "tensorboard": "Start TensorBoard for runs.",
    "report": "Compare runs on one HTML page.",
    "data": "List, prepare, check, build and generate data sets.",
    "search": "Search for good settings.",
    "reproduce": "Run the experiments of the paper and write their tables.",
    "export": "Export a run as a SavedModel that is queried by name.",
    "serve": "Serve an export over REST and gRPC.",
}
TRAINING = {"train", "plan", "search", "reproduce"}  # `launch` starts processes that run `train` or `evaluate`
INTERRUPTED = 128 + signal.SIGINT
SIGNALS = [getattr(signal, x) for x in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, x)]  # not all on Windows


class CommandLine(cloup.Group):
    """Imports a command when it is called, and turns failures into one sentence and an exit status.

    With `JOBI_TF_TRACEBACK=1` failures show a traceback.
    """

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Imports a command."""
        module = name.replace("-", "_")
        return getattr(import_module(f"jobi_tf.cli.commands.{module}"), module) if name in COMMANDS else None

    def invoke(self, context: click.Context) -> None:
        """Runs a command; SIGTERM and SIGHUP interrupt it as SIGINT (Ctrl-C) does.

        What the command sets as `obj` of this context is called after an interruption, and returns how to continue.
        """
        interrupted = False

        def interrupt(number: int, frame: object) -> None:
            nonlocal interrupted
            interrupted = True
            raise KeyboardInterrupt

        try:
            with signals_handled(interrupt, *SIGNALS):
                super().invoke(context)
                sys.stdout.flush()
        except BrokenPipeError:  # a reader that has ended, as `head` does: click exits quietly
            raise
        except (KeyboardInterrupt, Exception) as error:
            # Extension modules turn an interruption into an error of another kind.
            if interrupted or isinstance(error, KeyboardInterrupt):
                click.echo(context.obj() if context.obj else "Interrupted.", err=True)
                context.exit(INTERRUPTED)
            if os.environ.get("JOBI_TF_TRACEBACK") or (sentence := explain(error)) is None:
                raise
            raise (click.UsageError if isinstance(error, UsageError) else click.ClickException)(sentence) from None


SETTINGS = cloup.Context.settings(help_option_names=["-h", "--help"], show_default=True)


# Help shows these, and imports none of them.
SECTION = cloup.Section("Commands", [cloup.Command(name, help=text) for name, text in COMMANDS.items()])


@cloup.group(cls=CommandLine, sections=[SECTION], context_settings=SETTINGS)
@cloup.version_option(jobi_tf.__version__, package_name="jobi-tf", message="%(prog)s %(version)s")
def cli() -> None:
    """Knowledge-graph completion: train, evaluate and query models that rank the facts that a graph lacks."""


def main() -> NoReturn:
    """Runs `jobi-tf`."""
    if TRAINING.intersection(sys.argv[1:2]):
        keep_memory()
    if LAUNCHED in os.environ:
        end_with(os.getppid())
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it is closed, and the next file that is opened would get its number
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - until the process ends
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # names may not fit a terminal's encoding
    sys.path.append("")  # for scorers in modules in the working directory
    try:
        cli.main(prog_name="jobi-tf")
    except OSError as error:  # of help that cannot be written
        if os.environ.get("JOBI_TF_TRACEBACK"):
            raise
        sys.exit(f"Error: {explain(error)}")
    except SystemExit as ended:
        if ended.code == INTERRUPTED and "tensorflow" in sys.modules:
            # TensorFlow's threads may still run, and crash while Python shuts down.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        raise
