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
    help="Split to rank: valid to choose settings, test for final results.",
)
@cloup.option("--limit", type=COUNT, help="Rank a random sample of at most N triples.")
def report(runs: tuple[Path, ...], out: Path, split: str, limit: int | None) -> None:
    """Write an HTML page that evaluates and compares runs.

    RUN is the folder of a run. All runs must be on the same graph; the others are compared with the first. The page is
    self-contained and needs no network. It shows metrics by side, relation and relation category, settings, curves,
    gains by relation, implausible answers, predictions and calibration.
    """
    start_tensorflow()
    from jobi_tf.report.page import write_report

    with Bar(0, "ranks", "ranking") as bar:
        path = write_report(runs, out, split=split, limit=limit, progress=bar.update)
    click.echo(f"report of {len(runs)} run{'s' if len(runs) > 1 else ''} on the {split} split: {path}")
