"""`jobi-tf plot`."""

import warnings
from pathlib import Path

import click
import cloup

from jobi_tf.console import warn

from ..options import Command, open_run, out_option, run_option


@cloup.command(cls=Command)
@run_option
@out_option("Folder for the plots  [default: plots/ in the folder of the run; of world, ./plots]")
def plot(run: Path, out: Path | None) -> None:
    """Plot the training curves, a map of the entities and the ranks by relation, as PNG and SVG.

    \b
      jobi-tf plot runs/world
    """
    trained = open_run(run)
    from jobi_tf.report.plots import plot_run
    from jobi_tf.training.run_folder import PRETRAINED

    folder = Path() if run in PRETRAINED.values() else run  # the folder of a pretrained run is part of the package
    with warnings.catch_warnings(record=True) as caught:  # one for each character that a font lacks
        paths = plot_run(trained, out or folder / "plots")
    for path in paths:
        click.echo(path)
    if caught:
        warn(caught[0].message)
