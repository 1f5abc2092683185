"""`python -m benchmarks`, which `make bench` calls."""

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.results import Figure, committed, report, table, title, write_growth
from benchmarks.running import MeasurementError, Setting, python, run
from benchmarks.suites import ON_REQUEST, SUITES

INTERRUPTED = 130
CHECKOUT = click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path)
OUT = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", multiple=True, type=click.Choice(list(SUITES)), help="Run this benchmark; may be repeated.")
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Rounds that count.")
@click.option("--tiny", is_flag=True, help="Run everything in a form that takes seconds and measures nothing.")
@click.option("--peers", is_flag=True, help="Also time other libraries, in environments that uv makes for them.")
@click.option("--against", metavar="PATH", type=CHECKOUT, help="Another checkout, set up: measure both in turns.")
@click.option("--out", type=OUT, help="JSON file to write  [default: bench-DATE.json]")
@click.option("--list", "list_", is_flag=True, help="List the benchmarks.")
def main(
    only: tuple[str, ...], repeats: int, tiny: bool, peers: bool, against: Path | None, out: Path | None, list_: bool
) -> None:
    """Time training, ranking, loading and serving on the CPU of this machine, beside the committed figures.

    Nothing else should run at the same time. All of it takes about an hour, with the peers about half an hour more.
    """
    if list_:
        for name, suite in SUITES.items():
            click.echo(f"{name:<9} {suite.__doc__}{' (--peers)' if name in ON_REQUEST else ''}")
        return
    if against and not python(against).exists():
        raise click.UsageError(f"expected {python(against)}, which does not exist: run `make setup` in {against}")
    out = out or Path(f"bench-{time.strftime('%Y%m%d-%H%M%S')}.json")
    folder = out.absolute().parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise click.UsageError(f"expected --out in a folder that exists and can be written, got {out}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    names = [x for x in SUITES if x in only or (x in ON_REQUEST and peers) or (not only and x not in ON_REQUEST)]
    results: list[Figure] = []
    status = 0
    with tempfile.TemporaryDirectory(prefix="jobi-tf-bench-", ignore_cleanup_errors=True) as work:
        setting = Setting(Path(work), repeats, tiny, against, lambda text: click.echo(text, err=True))
        try:
            for name in names:
                measure(name, setting, results, out)
        except KeyboardInterrupt:
            click.echo("Interrupted; the suites that were complete are kept.", err=True)
            status = INTERRUPTED
    show(save(results, setting, out))
    click.echo(f"written to {out}", err=True)
    sys.exit(status or int(any("reason" in x for x in results)))


def measure(name: str, setting: Setting, results: list[Figure], out: Path) -> None:
    """Runs a benchmark, and saves all results after each of its suites."""
    setting.log(f"{name}: {SUITES[name].__doc__}")
    try:
        for suite in SUITES[name](setting):
            results += run(name, suite, setting)
            save(results, setting, out)
    except MeasurementError as error:  # its data could not be made
        results.append({"name": name, "reason": str(error)})
    finally:
        if name == "growth":
            write_growth(results, out.absolute().parent)


def save(results: list[Figure], setting: Setting, out: Path) -> dict[str, Any]:
    """Writes the JSON file, and returns its content."""
    content = report(results, setting.tiny, setting.against)
    out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return content


def show(content: dict[str, Any]) -> None:
    """Prints the table, and below it what could not be measured."""
    before = committed()
    if rows := table(content, before):
        figures = Table(title=title(content))
        for column in rows[0]:
            figures.add_column(column, justify="right" if column in ("median", "spread") else "left")
        for row in rows:
            figures.add_row(*row.values())
        Console(width=None if sys.stdout.isatty() else 200).print(figures)
    for result in content["unmeasured"]:
        click.echo(f"not measured: {result['name']}: {result['reason']}")
    if content["tiny"]:
        click.echo("tiny forms of the benchmarks: no figure means anything")
    else:
        click.echo(f"committed: {title(before)}")


if __name__ == "__main__":
    main()
