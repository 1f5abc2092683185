"""`jobi-tf export`."""

import warnings
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
@click.option("--version", type=int, metavar="N", help="Version number  [default: the next one]")
@click.option(
    "--top-k", type=int, default=100, show_default=True, metavar="K", help="Greatest number of answers per query."
)
@click.option(
    "--candidates",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with one entity name per line; only these are returned as answers.",
)
@click.option("--typed", is_flag=True, help="Only return entities that training saw on that side of the relation.")
@click.option(
    "--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="Type of the stored embeddings."
)
@click.option("--no-warmup", is_flag=True, help="Do not write warm-up requests for the server.")
def export(
    run: Path,
    folder: Path,
    version: int | None,
    top_k: int,
    candidates: Path | None,
    typed: bool,
    dtype: str,
    no_warmup: bool,
) -> None:
    """Export the run in RUN as a SavedModel in DIR/<version>.

    TensorFlow Serving, C++ and Python load the export without jobi-tf and query it by name. Its MODEL_CARD.md
    describes the model, its quality and its signatures, with example requests.
    """
    start_tensorflow()
    from jobi_tf import load_run
    from jobi_tf.export import export_run

    with warnings.catch_warnings(record=True) as caught:
        exported = export_run(load_run(run), folder, version, top_k, dtype, candidates, typed, warmup=not no_warmup)
    _print(exported, folder)
    for text in (*exported.calibration.warnings(), *(x.message for x in caught if issubclass(x.category, UserWarning))):
        click.echo(f"Warning: {text}", err=True)


def _print(exported: "Exported", folder: Path) -> None:
    fit, drift = exported.calibration, exported.drift
    restrictions = [f"among {exported.candidates:,} candidates"] if exported.candidates is not None else []
    restrictions += ["seen with the relation"] if exported.typed else []
    rows = {
        "written": f"{exported.path}   ({_size(exported.size)})",
        "tables": exported.dtype,
        "answers": " ".join([f"up to {exported.top_k} per query", *restrictions]),
        "calibration": f"error {fit.ece_before:.3f} → {fit.ece_after:.3f}, on {fit.triples:,} {fit.split} triples",
    }
    if drift is not None:
        rows["drift"] = (
            f"scores differ by {drift.mean:.2g} on average, {drift.most:.2g} at most; "
            f"same best answer for {drift.same_best:.2%} of {drift.queries:,} queries"
        )
    rows["next"] = f"jobi-tf serve {folder}"
    for name, value in rows.items():
        click.echo(f"{name:13}{value}")


def _size(size: int) -> str:
    number = float(size)
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"
