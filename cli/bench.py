"""`jobi-tf bench`."""

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobi_tf.benchmarks.registry import BENCHMARKS
from jobi_tf.errors import UsageError

from .console import print_table
from .main import INTERRUPTED, ended_as_interrupted, explain
from .options import Command
from .start import start_tensorflow

if TYPE_CHECKING:
    from jobi_tf.benchmarks.report import Report


@click.command(cls=Command)
@click.option("--only", multiple=True, type=click.Choice(list(BENCHMARKS)), help="Run this benchmark; may be repeated.")
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Measurements a figure.")
@click.option("--tiny", is_flag=True, help="Run everything in a form that takes seconds and measures nothing.")
@click.option("--peers", is_flag=True, help="Also time other libraries, in environments that are made for them.")
@click.option(
    "--peer-python", multiple=True, metavar="NAME=PATH", hidden=True, help="A Python that has a peer installed."
)
@click.option("--output", type=click.Path(path_type=Path), help="JSON file to write  [default: bench-DATE.json]")
@click.option(
    "--curves", type=click.Path(path_type=Path), help="Folder for growth.csv and .png  [default: that of --output]"
)
@click.option("--list", "list_", is_flag=True, help="List the benchmarks and do nothing.")
def bench(
    only: tuple[str, ...],
    repeats: int,
    tiny: bool,
    peers: bool,
    peer_python: tuple[str, ...],
    output: Path | None,
    curves: Path | None,
    list_: bool,
) -> None:
    """Time training, ranking and loading on this machine, beside the committed figures.

    Nothing else should run meanwhile. All of it takes about half an hour, with the peers about an hour.
    """
    if list_:
        for benchmark in BENCHMARKS.values():
            click.echo(f"{benchmark.name:<11} {benchmark.description}{' (--peers)' if benchmark.on_request else ''}")
        return
    names = only or tuple(name for name, benchmark in BENCHMARKS.items() if not benchmark.on_request)
    if peers:
        names += ("peers",)
    output = output or Path(f"bench-{time.strftime('%Y%m%d-%H%M%S')}.json")
    start_tensorflow()
    from jobi_tf.benchmarks.report import Report, committed_figures
    from jobi_tf.benchmarks.run import run
    from jobi_tf.benchmarks.setting import Setting, work_folder

    report, committed = Report(tiny), committed_figures()
    if curves is not None:
        curves.mkdir(parents=True, exist_ok=True)
    status = 0
    try:
        with ended_as_interrupted(), work_folder() as work:
            say = partial(click.echo, err=True)
            setting = Setting(work, curves or output.parent, repeats, tiny, _pythons(peer_python), say)
            run(names, setting, report, output, explain)
    except KeyboardInterrupt:
        click.echo("Interrupted; what was measured until then is kept.", err=True)
        status = INTERRUPTED
    _print(report, committed)
    if report.results:
        click.echo(f"written to {output}", err=True)
    sys.exit(status or int(report.failed))


def _print(report: "Report", committed: "Report | None") -> None:
    from rich.table import Column

    from jobi_tf.benchmarks.report import COLUMNS

    if not report.results:
        return
    numbers = ("median", "spread")
    columns = [Column(name, justify="right" if name in numbers else "left") for name in COLUMNS]
    print_table(columns, report.rows(committed), report.title())
    for line in report.lines(committed):
        click.echo(line)


def _pythons(given: tuple[str, ...]) -> dict[str, Path]:
    from jobi_tf.benchmarks.environments import PEERS

    pythons = {}
    for text in given:
        name, _, path = text.partition("=")
        if name not in PEERS or not Path(path).is_file():
            raise UsageError(f"expected --peer-python {'|'.join(PEERS)}=PATH of a Python, got {text!r}")
        pythons[name] = Path(path)
    return pythons
