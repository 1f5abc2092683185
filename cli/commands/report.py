"""`jobi-tf report`."""

from pathlib import Path

import click
import cloup

from jobi_tf.console import Bar

from ..options import COUNT, Command, out_option, runs_option
from ..start import start_tensorflow


@cloup.command(cls=Command)
@runs_option()
@out_option("File to write, or replace.", folder=False, default="report.html")
@cloup.option(
    "--split",
    type=click.Choice(["valid", "test"]),
    default="valid",
    help="Triples to rank: valid to choose by, test for what was chosen.",
)
@cloup.option("--limit", type=COUNT, help="Rank a random sample of at most N triples.")
def report(runs: tuple[Path, ...], out: Path, split: str, limit: int | None) -> None:
    """Write one HTML page that measures and compares runs.

    RUN is the folder of a training run. All must be on the same graph; the first is what the others are compared with.
    The page holds all it shows, and can be opened and sent around without a network: curves, metrics by side, relation
    and relation category, implausible answers, gains by relation, predictions in names, calibration and settings.
    """
    start_tensorflow()
    from jobi_tf.report.page import write_report

    with Bar(0, "ranks", "ranking") as bar:
        path = write_report(runs, out, split=split, limit=limit, progress=bar.update)
    click.echo(f"report of {len(runs)} run{'s' if len(runs) > 1 else ''} on the {split} split: {path}")
