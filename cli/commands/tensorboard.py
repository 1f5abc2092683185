"""`jobi-tf tensorboard`."""

import subprocess
import sys
from pathlib import Path

import cloup

from ..options import FOLDER, PORT, Command, argument_or_option


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
    if len(runs) > 1:
        from jobi_tf.report.runs import labels

        where = ["--logdir_spec", ",".join(f"{name}:{path}" for name, path in zip(labels(runs), runs, strict=True))]
    else:
        where = ["--logdir", str(runs[0] if runs else "runs")]
    command = [sys.executable, "-m", "tensorboard.main", *where, "--host", host, "--port", str(port)]
    raise SystemExit(subprocess.run(command).returncode)
