"""`jobi-tf tensorboard`."""

import subprocess
import sys
import tempfile
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
    runs = runs or (Path("runs"),)
    if not any(next(path.rglob("events.out.tfevents.*"), None) for path in runs):
        click.echo("There are no logs yet; merged runs and those with --tensorboard none write none.", err=True)
    with tempfile.TemporaryDirectory() as links:
        logs = str(runs[0])
        if len(runs) > 1 or (runs[0] / "logs").is_dir():  # not a folder of runs
            from jobi_tf.report.runs import labels

            logs = links
            for name, path in zip(labels(runs), runs, strict=True):
                # Without /, since a link inside another one would be made in the folder of that run.
                Path(links, name.replace("/", " ")).symlink_to(path.absolute(), target_is_directory=True)
        command = [sys.executable, "-c", _QUIETLY, "--logdir", logs, "--host", host, "--port", str(port)]
        raise SystemExit(subprocess.run(command).returncode != 0)
