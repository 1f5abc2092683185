"""`jobi-tf export`."""

import shlex
import warnings
from pathlib import Path
from typing import Any

import click
import cloup

from jobi_tf.console import warn

from ..options import (
    COUNT,
    OUT_FOLDER,
    Command,
    argument_or_option,
    candidates_option,
    open_run,
    run_option,
    typed_option,
)


@cloup.command(cls=Command)
@run_option
@argument_or_option("out", "--out", "DIR", OUT_FOLDER, "Folder of the versions.")
@cloup.option("--version", type=COUNT, help="Version number  [default: the next one]")
@cloup.option("-k", "top_k", type=click.IntRange(1, 1000), default=100, help="Largest number of answers to a query.")
@candidates_option
@typed_option
@cloup.option("--dtype", type=click.Choice(["float32", "float16"]), default="float32", help="Type of the embeddings.")
@cloup.option("--warmup/--no-warmup", default=True, help="Write warm-up requests for the server.")
def export(run: Path, out: Path, **options: Any) -> None:
    """Export a run as a SavedModel in DIR/<version>.

    \b
      jobi-tf export runs/world --out exports/world

    TensorFlow Serving, C++ and Python load the export without jobi-tf and query it by name. Its MODEL_CARD.md
    describes the model, its quality and its signatures, with example requests.
    A pool of runs or rules cannot be exported; `jobi-tf merge` merges runs with the same scorer into one run.
    """
    trained = open_run(run)
    from rich.filesize import decimal
    from tensorflow.errors import OpError

    from jobi_tf.export import export_run
    from jobi_tf.training.run_folder import RunFolder
    from jobi_tf.training.tensorboard import write_text

    with warnings.catch_warnings(record=True) as caught:
        exported = export_run(trained, out, **options)
    fit = exported.calibration
    restrictions = [f"among {exported.candidates:,} candidates"] if exported.candidates is not None else []
    restrictions += ["seen with the relation"] if exported.typed else []
    rows = {
        "written": f"{exported.path}   ({decimal(exported.size)})",
        "tables": exported.dtype,
        "answers": " ".join([f"up to {exported.top_k} per query", *restrictions]),
        "calibration": f"error {fit.ece_before:.3f} → {fit.ece_after:.3f}, on {fit.triples:,} {fit.split} triples",
    }
    if exported.drift:
        rows["drift"] = str(exported.drift)
    rows["next"] = f"jobi-tf serve {shlex.quote(str(out))}"
    for name, value in rows.items():
        click.echo(f"{name:13}{value}")
    if (logs := RunFolder(run).logs).is_dir():
        try:
            write_text(logs, "model card", (exported.path / "MODEL_CARD.md").read_text(encoding="utf-8"))
        except OpError:  # such as that the folder cannot be written
            warn(f"the model card cannot be written to {logs} for TensorBoard")
    for text in (*fit.warnings(), *(x.message for x in caught if issubclass(x.category, UserWarning))):
        warn(text)
