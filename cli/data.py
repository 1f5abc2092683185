"""`jobi-tf data`: prepare, count and check data sets."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .data_build import build
from .show import print_whole

if TYPE_CHECKING:
    from jobi_tf.datasets import Prepared


def _dataset_options(command: Callable) -> Callable:
    """Adds the argument and the options that say which graph is meant."""
    for option in reversed(
        (
            click.argument("name"),
            click.option(
                "--archive", type=click.Path(path_type=Path), help="Archive of a named data set, instead of a download."
            ),
            click.option("--split", metavar="SHARES", help="Split one file into train/valid/test, as 0.8/0.1/0.1."),
            click.option("--columns", metavar="H,R,T", help="Names or positions of the head, relation, tail columns."),
            click.option("--header/--no-header", default=None, help="Whether files have a header  [default: look]"),
            click.option("--seed", type=int, help="Which random split of one file  [default: 0]"),
        )
    ):
        command = option(command)
    return command


def _prepare(
    name: str, archive: Path | None, split: str | None, columns: str | None, header: bool | None, seed: int | None
) -> "Prepared":
    from jobi_tf.datasets import prepare
    from jobi_tf.errors import UsageError

    if seed is not None and split is None:
        raise UsageError("--seed chooses a random split: it needs --split")
    fields = None if columns is None else columns.split(",")
    return prepare(name, archive=archive, split=split, columns=fields, header=header, seed=seed or 0)


def _show(tables: list) -> None:
    from rich.console import Console

    console = Console()
    for table in tables:
        print_whole(table, console)


@click.group()
def data() -> None:
    """List, prepare, count, check and make up data sets.

    NAME is one of those that `jobi-tf data list` shows, or a folder with train, valid and test (.tsv, .txt, .csv, each
    also .gz), or one such file with --split.
    """


@data.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List the data sets that have a name."""
    from jobi_tf.datasets.listing import listing, table

    entries = listing()
    if as_json:
        click.echo(json.dumps([entry.as_dict() for entry in entries], indent=2))
    else:
        _show([table(entries)])


@data.command()
@_dataset_options
def prepare(**options: Any) -> None:
    """Read a data set, check it, and keep it as ids in the cache."""
    prepared = _prepare(**options)
    graph = prepared.graph
    counts = ", ".join(f"{len(triples):,} {split}" for split, triples in graph.splits.items())
    click.echo(f"{graph.name}: {graph.num_entities:,} entities, {graph.num_relations:,} relations; {counts} triples")
    click.echo(f"{'already kept' if prepared.was_there else 'kept'} in {prepared.folder}")


@data.command()
@click.option("--entities", type=click.IntRange(min=16), required=True, help="Number of entities.")
@click.option("--relations", type=click.IntRange(min=1), required=True, help="Number of relations.")
@click.option("--triples", type=click.IntRange(min=1), required=True, help="Number of triples over all splits.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Which graph of that size.")
@click.option("--output", type=click.Path(path_type=Path), help="Folder to make  [default: synthetic-E-R-T-SEED]")
def synthesize(entities: int, relations: int, triples: int, seed: int, output: Path | None) -> None:
    """Make up a graph of any size, with types, hubs and rules to learn."""
    from jobi_tf.datasets.synthetic import synthesize as make
    from jobi_tf.datasets.writing import write_text
    from jobi_tf.errors import UsageError

    folder = output or Path(f"synthetic-{entities}-{relations}-{triples}-{seed}")
    if folder.exists():
        raise UsageError(f"expected a new folder for the triples, {folder} exists")
    graph = make(entities, relations, triples, seed)
    write_text(graph, folder)
    counts = ", ".join(f"{len(part):,} {split}" for split, part in graph.splits.items())
    click.echo(f"{counts} triples in {folder}; train on them by --dataset {folder}")


@data.command()
@_dataset_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the figures of every relation.")
def stats(as_json: bool, **options: Any) -> None:
    """Count entities, degrees and kinds of relations."""
    from jobi_tf.datasets.statistics import statistics

    figures = statistics(_prepare(**options).graph)
    if as_json:
        click.echo(json.dumps(figures.as_dict(), indent=2, ensure_ascii=False))
    else:
        _show(figures.tables())


@data.command()
@_dataset_options
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.8,
    show_default=True,
    help="List relations that share this part of their entity pairs with another one.",
)
@click.option(
    "--min-support",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="And at least so many entity pairs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--strict", is_flag=True, help="Exit with status 1 where something was found.")
@click.pass_context
def check(
    context: click.Context, threshold: float, min_support: int, as_json: bool, strict: bool, **options: Any
) -> None:
    """Find repeats, names unseen in training, leaked answers."""
    from jobi_tf.datasets.check import check as check_graph

    report = check_graph(_prepare(**options).graph, threshold=threshold, min_support=min_support)
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2, ensure_ascii=False))
    else:
        _show(report.tables())
    if strict and not report.clean:
        context.exit(1)


data.add_command(build)
