"""`jobi-tf tensorboard`."""

import subprocess
import sys
from pathlib import Path

import click
import cloup

from jobi_tf.errors import UsageError

from ..options import FOLDER, PORT, Command, argument_or_option

_QUIETLY = """
from jobi_tf.cli.start import start_tensorflow
start_tensorflow(keras=False)
from tensorboard.main import run_main
run_main()
"""


@cloup.command(cls=Command)
@argument_or_option("runs", "--run-dir", "RUN…", FOLDER, "Folder of a run or of several runs.", required=False)
@cloup.option("--host", default="127.0.0.1", help="Address to listen on.")
@cloup.option("--port", type=PORT, default=6006, help="Port; 0: any free one.")
def tensorboard(runs: tuple[Path, ...], host: str, port: int) -> None:
    """Start TensorBoard for runs, by default for all runs in runs/.

    \b
      jobi-tf tensorboard
      jobi-tf tensorboard runs/umls runs/umls-plain --port 6007

    Stop it with Ctrl-C.
    """
    if not runs and not Path("runs").is_dir():
        raise UsageError("expected folders of runs, or a folder called runs in the current one")
    if len(runs) > 1:
        from jobi_tf.report.runs import labels

        named = [*zip(labels(runs), runs, strict=True)]
        if odd := [str(path) for name, path in named if "," in str(path) or ":" in name]:
            raise UsageError(f"expected folders without commas and colons, to show several of them, got {odd[0]}")
        where = ["--logdir_spec", ",".join(f"{name}:{path}" for name, path in named)]
    else:
        where = ["--logdir", str(runs[0] if runs else "runs")]
    if not any(next(path.rglob("events.out.tfevents.*"), None) for path in runs or [Path("runs")]):
        click.echo("There are no logs yet; merged runs and those with --tensorboard none write none.", err=True)
    command = [sys.executable, "-c", _QUIETLY, *where, "--host", host, "--port", str(port)]
    raise SystemExit(subprocess.run(command).returncode != 0)
