"""`jobi-tf export`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .command import Command
from .start import start_tensorflow

if TYPE_CHECKING:
    from jobi_tf.export import Exported

DTYPES = ("float32", "float16")


@click.command(cls=Command)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--version", type=int, metavar="N", help="Number of the version  [default: the next one]")
@click.option("--top-k", type=int, default=10, show_default=True, metavar="K", help="Answers a query.")
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="Type of the tables.")
@click.option(
    "--candidates", type=click.Path(path_type=Path), metavar="FILE", help="Names, one a line, of the only answers."
)
@click.option("--typed", is_flag=True, help="Answer only with entities seen in training with the relation.")
@click.option("--no-warmup", is_flag=True, help="Leave out the requests by which servers warm up.")
def export(
    run: Path,
    folder: Path,
    version: int | None,
    top_k: int,
    dtype: str,
    candidates: Path | None,
    typed: bool,
    no_warmup: bool,
) -> None:
    """Write a run as DIR/<version>, a SavedModel that answers by name.

    RUN is the folder of a training run. TensorFlow Serving, C++ and Python load the export without jobi-tf. Its
    MODEL_CARD.md says what it is, how good it is and how to ask it.
    """
    start_tensorflow()
    from jobi_tf import load_run
    from jobi_tf.export import export_run

    exported = export_run(load_run(run), folder, version, top_k, dtype, candidates, typed, warmup=not no_warmup)
    _print(exported, folder)


def _print(exported: "Exported", folder: Path) -> None:
    fit, drift = exported.calibration, exported.drift
    of_whom = [f"among {exported.candidates:,} candidates"] if exported.candidates is not None else []
    of_whom += ["seen with the relation"] if exported.typed else []
    rows = {
        "written": f"{exported.path}   ({_size(exported.size)})",
        "tables": exported.dtype,
        "answers": " ".join([f"{exported.top_k} a query", *of_whom]),
        "calibration": f"error {fit.ece_before:.3f} → {fit.ece_after:.3f}, on {fit.triples:,} {fit.split} triples",
    }
    if drift is not None:
        rows["drift"] = (
            f"of scores {drift.mean:.2g} on average, {drift.most:.2g} at most; "
            f"same best answer to {drift.same_best:.2%} of {drift.queries:,} queries"
        )
    rows["serve it by"] = f"jobi-tf serve {folder}"
    for name, value in rows.items():
        click.echo(f"{name:13}{value}")
    for warning in fit.warnings():
        click.echo(f"Warning: {warning}", err=True)


def _size(size: int) -> str:
    number = float(size)
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"
