"""`jobi-tf data`: list, prepare, count, check, build and make up data sets."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .data_build import build, column_options
from .show import print_table

if TYPE_CHECKING:
    from jobi_tf.datasets import Prepared
    from jobi_tf.datasets.check import Report
    from jobi_tf.datasets.statistics import Statistics

_ROWS = 20


def _dataset_options(command: Callable) -> Callable:
    """Adds the argument and the options that say which graph is meant."""
    for option in (
        click.option("--seed", type=click.IntRange(min=0), help="Seed of the random split of one file  [default: 0]"),
        click.option("--weights", metavar="COLUMN", help="Name or position of the column with the weights."),
        column_options,
        click.option("--split", metavar="SHARES", help="Split one file into train/valid/test, such as 0.8/0.1/0.1."),
        click.option("--archive", type=click.Path(path_type=Path), help="Archive of a named data set; not downloaded."),
        click.argument("name"),
    ):
        command = option(command)
    return command


def _prepare(name: str, columns: str | None, seed: int | None, **options: Any) -> "Prepared":
    from jobi_tf.datasets import prepare
    from jobi_tf.errors import UsageError

    if seed is not None and options["split"] is None:
        raise UsageError("--seed is the seed of a random split: it needs --split")
    return prepare(name, columns=None if columns is None else columns.split(","), seed=seed or 0, **options)


def _left(*names: str) -> list:
    """Returns columns of text, which are aligned to the left and wrapped on a terminal."""
    from rich.table import Column

    return [Column(name) for name in names]


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


@click.group()
def data() -> None:
    """List, prepare, count, check, build and make up data sets.

    NAME is a name that `jobi-tf data list` shows, or a folder with train, valid and test (.tsv, .txt, .csv, each also
    .gz), or one such file with --split.
    """


@data.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List the data sets that have a name."""
    from jobi_tf.datasets.listing import listing

    entries = listing()
    if as_json:
        _print_json([asdict(entry) for entry in entries])
        return
    rows = [
        (x.name, *(f"{count:,}" for count in (x.entities, x.relations, *x.triples.values())), x.state, x.description)
        for x in entries
    ]
    columns = ("name", "entities", "relations", "train", "valid", "test", *_left("state", "description"))
    print_table(columns, rows)


@data.command()
@_dataset_options
def prepare(**options: Any) -> None:
    """Read a data set and keep it as ids in the cache."""
    prepared = _prepare(**options)
    graph = prepared.graph
    counts = ", ".join(f"{len(triples):,} {split}" for split, triples in graph.splits.items())
    click.echo(f"{graph.name}: {graph.num_entities:,} entities, {graph.num_relations:,} relations; {counts} triples")
    click.echo(f"{'already kept' if prepared.cached else 'kept'} in {prepared.folder}")


@data.command()
@click.option("--entities", type=click.IntRange(min=16), required=True, help="Number of entities.")
@click.option("--relations", type=click.IntRange(min=1), required=True, help="Number of relations.")
@click.option("--triples", type=click.IntRange(min=1), required=True, help="Number of triples over all splits.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the graph.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write  [default: synthetic-E-R-T-SEED]")
def synthesize(entities: int, relations: int, triples: int, seed: int, out: Path | None) -> None:
    """Make up a graph of any size, with types, hubs and rules to learn."""
    from jobi_tf.datasets.synthetic import synthesize as make
    from jobi_tf.datasets.writing import require_new, write_text

    folder = out or Path(f"synthetic-{entities}-{relations}-{triples}-{seed}")
    require_new(folder)
    graph = make(entities, relations, triples, seed)
    write_text(graph, folder)
    counts = ", ".join(f"{len(part):,} {split}" for split, part in graph.splits.items())
    click.echo(f"{counts} triples in {folder}; train on them with --dataset {folder}")


@data.command()
@_dataset_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the statistics of every relation.")
def stats(as_json: bool, **options: Any) -> None:
    """Count entities, degrees and categories of relations."""
    from jobi_tf.datasets.statistics import statistics

    result = statistics(_prepare(**options).graph)
    if as_json:
        _print_json(asdict(result))
    else:
        _print_statistics(result)


def _print_statistics(result: "Statistics") -> None:
    sizes = {"entities": result.entities, "relations": result.relations}
    sizes |= {f"triples in {split}": count for split, count in result.triples.items()}
    print_table(("", "number"), [(name, f"{count:,}") for name, count in sizes.items()], title=result.name)
    spreads = {
        "triples of an entity": result.degree,
        "distinct heads of a relation": result.heads,
        "distinct tails of a relation": result.tails,
    }
    click.echo()
    print_table(
        ("in training", "mean", "median", "max"),
        [(name, f"{x.mean:,.1f}", f"{x.median:,.1f}", f"{x.max:,}") for name, x in spreads.items()],
    )
    click.echo()
    print_table(
        ("heads-tails", "relations", *(f"triples in {split}" for split in result.triples)),
        [
            (kind, f"{row['relations']:,}", *(f"{row[split]:.1%}" for split in result.triples))
            for kind, row in result.categories.items()
        ],
    )


@data.command()
@_dataset_options
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.8,
    show_default=True,
    help="List relations that share at least this part of their entity pairs with another one.",
)
@click.option(
    "--min-support",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="List relations that share at least this many entity pairs with another one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--strict", is_flag=True, help="Exit with status 1 if anything was found.")
@click.pass_context
def check(
    context: click.Context, threshold: float, min_support: int, as_json: bool, strict: bool, **options: Any
) -> None:
    """Find repeated triples, names unseen in training, and leaked answers."""
    from jobi_tf.datasets.check import check as check_graph

    report = check_graph(_prepare(**options).graph, threshold=threshold, min_support=min_support)
    if as_json:
        _print_json({**asdict(report), "clean": report.clean})
    else:
        _print_report(report)
    if strict and not report.clean:
        context.exit(1)


def _print_report(report: "Report") -> None:
    rows = [
        (
            finding.check,
            finding.where,
            f"{finding.count:,}",
            f"{finding.total:,}",
            f"{finding.count / finding.total:.2%}" if finding.count else "",
            finding.examples[0] if finding.examples else "",
        )
        for finding in report.findings
    ]
    columns = ("check", *_left("split"), "found", "of", "share", *_left("for example"))
    print_table(columns, rows, title=f"Checks of {report.name}")
    if not report.relation_pairs:
        return
    click.echo()
    print_table(
        (*_left("relation", "is", "other relation"), "share", "of the other", "pairs", *_left("for example")),
        [
            (
                pair.relation,
                pair.kind,
                pair.other if pair.other != pair.relation else "itself",
                f"{pair.share:.1%}",
                f"{pair.share_of_other:.1%}",
                f"{pair.support:,}",
                pair.example,
            )
            for pair in report.relation_pairs[:_ROWS]
        ],
        title=f"Relations with {report.threshold:.0%} or more of their entity pairs also linked by another relation",
    )
    if len(report.relation_pairs) > _ROWS:
        click.echo(f"and {len(report.relation_pairs) - _ROWS:,} more; --json lists all")


data.add_command(build)
