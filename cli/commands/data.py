"""`jobi-tf data`."""

import shlex
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup
from cloup.constraints import all_or_none

from jobi_tf.console import counts, print_json, print_table

from ..options import (
    COUNT,
    FILE,
    IDS,
    MOST_IDS,
    FloatRange,
    Group,
    dataset_options,
    json_option,
    out_option,
    seed_option,
    settings_options,
)

if TYPE_CHECKING:
    from jobi_tf.data.graph import Graph
    from jobi_tf.datasets.check import Report

RELATION_PAIRS = 20  # rows of a table
ROUNDS = 20


@cloup.group(cls=Group)
def data() -> None:
    """List, prepare, check, build and generate data sets.

    A data set is a name listed by `jobi-tf data list`, a folder with train, valid and test (.tsv, .txt, .csv, each also
    .gz; .nt, .ttl, .parquet), or one such file with --split.
    """


@data.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the named data sets."""
    from jobi_tf.datasets.loading import listing

    entries = listing()
    if as_json:
        print_json(entries)
        return
    rows = [(x["name"], x["entities"], x["relations"], *x["triples"].values(), x["state"]) for x in entries]
    print_table(("name", "entities", "relations", "train", "valid", "test", "state"), rows, text=("name", "state"))
    click.echo()
    columns = ("name", "description")
    print_table(columns, [[x[column] for column in columns] for x in entries], text=columns)


@data.command()
@dataset_options
@cloup.option("--shards", type=COUNT, help="Write the training triples as up to N files to stream from.")
@out_option("Folder of the shards, which is a data set.")
@cloup.constraint(all_or_none, ["shards", "out"])
def prepare(source: dict[str, Any], shards: int | None, out: Path | None) -> None:
    """Prepare a data set for training.

    It is written to the cache or, with --shards, to files that training streams from.
    """
    from jobi_tf.datasets import prepare as prepare_graph
    from jobi_tf.datasets.writing import write_shards

    if shards is None or out is None:
        prepared = prepare_graph(**source)
        graph, place = prepared.graph, f"{'already in' if prepared.cached else 'written to'} {prepared.folder}"
    else:
        graph = write_shards(folder=out, files=shards, **source)
        files = len(graph.splits["train"].files)
        place = f"training triples written to {files} file{'s' * (files > 1)} in {out}"
    sizes = counts(_sizes(graph))
    click.echo(f"{graph.name}: {graph.num_entities:,} entities, {graph.num_relations:,} relations; {sizes} triples")
    click.echo(place)


@data.command()
@dataset_options
@json_option
def stats(source: dict[str, Any], as_json: bool) -> None:
    """Print counts, degrees and relation categories.

    --json adds the statistics of each relation.
    """
    from jobi_tf.datasets import load_graph
    from jobi_tf.datasets.statistics import statistics

    result = statistics(load_graph(**source))
    if as_json:
        print_json(asdict(result))
        return
    sizes = {"entities": result.entities, "relations": result.relations}
    sizes |= {f"triples in {split}": count for split, count in result.triples.items()}
    print_table(("", "number"), list(sizes.items()), title=result.name)
    click.echo()
    spreads = {
        "triples of an entity": result.degree,
        "distinct heads of a relation": result.heads,
        "distinct tails of a relation": result.tails,
    }
    rows = [(name, f"{x.mean:,.1f}", f"{x.median:,.1f}", x.max) for name, x in spreads.items()]
    print_table(("in training", "mean", "median", "max"), rows)
    click.echo()
    kinds = [
        (kind, row["relations"], *(f"{row[split]:.1%}" for split in result.triples))
        for kind, row in result.categories.items()
    ]
    print_table(("heads-tails", "relations", *(f"triples in {split}" for split in result.triples)), kinds)


@data.command()
@dataset_options
@cloup.option(
    "--threshold",
    type=FloatRange(0, 1, min_open=True),
    default=0.8,
    help="Smallest share of common entity pairs for which two relations are listed.",
)
@cloup.option("--min-support", type=COUNT, default=10, help="Smallest number of such pairs.")
@json_option
@cloup.option("--strict", is_flag=True, help="Exit with status 1 if anything is found.")
def check(source: dict[str, Any], threshold: float, min_support: int, as_json: bool, strict: bool) -> None:
    """Find repeated triples, unseen names and leaked answers.

    Unseen names are those in valid or test that do not occur in train.
    """
    from jobi_tf.datasets import load_graph
    from jobi_tf.datasets.check import check as check_graph

    report = check_graph(load_graph(**source), threshold=threshold, min_support=min_support)
    print_json({**asdict(report), "clean": report.clean}) if as_json else _print_report(report)
    if strict and not report.clean:
        click.get_current_context().exit(1)


def _print_report(report: "Report") -> None:
    rows: list = [
        (x.check, x.where, x.count, x.total, f"{x.count / x.total:.2%}" if x.count else "") for x in report.findings
    ]
    columns = ("check", "split", "found", "of", "share")
    print_table(columns, rows, f"Checks of {report.name}", text=columns[:2])
    for finding in report.findings:
        if finding.examples:
            click.echo(f"\n{finding.check} in {finding.where}, for example:\n  {finding.examples[0]}")
    if not report.relation_pairs:
        return
    click.echo()
    rows = []
    for x in report.relation_pairs[:RELATION_PAIRS]:
        other = x.other if x.other != x.relation else "itself"
        rows.append((x.relation, x.kind, other, f"{x.share:.1%}", f"{x.share_of_other:.1%}", x.support))
    text = ("relation", "is", "other relation")
    title = f"Relations with {report.threshold:.0%} or more of their entity pairs also linked by another relation"
    print_table((*text, "share", "of the other", "pairs"), rows, title, text)
    if len(report.relation_pairs) > RELATION_PAIRS:
        click.echo(f"and {len(report.relation_pairs) - RELATION_PAIRS:,} more; --json lists all")


@data.command()
@cloup.option("--entities", type=click.IntRange(16, MOST_IDS), required=True, help="Number of entities.")
@cloup.option("--relations", type=IDS, required=True, help="Number of relations.")
@cloup.option("--triples", type=COUNT, required=True, help="Number of triples over all splits.")
@seed_option
@out_option("Folder to write  [default: synthetic-E-R-T-SEED]")
def synthesize(entities: int, relations: int, triples: int, seed: int, out: Path | None) -> None:
    """Generate a graph of any size.

    It has types, hubs and rules that a model can learn.
    """
    from jobi_tf.datasets.synthetic import synthesize as generate
    from jobi_tf.datasets.writing import write_text
    from jobi_tf.files import check_new

    folder = out or Path(f"synthetic-{entities}-{relations}-{triples}-{seed}")
    check_new(folder)
    graph = generate(entities, relations, triples, seed)
    write_text(graph, folder)
    _print_written(_sizes(graph), folder)


def _sizes(graph: "Graph") -> dict[str, int]:
    return {split: len(triples) for split, triples in graph.splits.items()}


def _print_written(sizes: dict[str, int], folder: Path) -> None:
    click.echo(f"{counts(sizes)} triples in {folder}; train on them with --dataset {shlex.quote(str(folder))}")


def _size(text: str) -> int | float:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise click.BadParameter(f"expected a number of triples or a share between 0 and 1, got {text!r}") from None


@data.command()
@cloup.option(
    "--from",
    "files",
    type=FILE,
    multiple=True,
    required=True,
    help="File of triples: .tsv, .txt (with tabs) or .csv, each also .gz; .nt, .ttl or .parquet; may be repeated.",
)
@cloup.option("--min-triples", type=COUNT, default=5, help="Remove entities in fewer triples, repeatedly.")
@cloup.option("--valid", type=_size, metavar="N|SHARE", help="Validation triples  [default: 0.01, at most 5000]")
@cloup.option("--test", type=_size, metavar="N|SHARE", help="Test triples  [default: 0.01, at most 5000]")
@seed_option
@settings_options("columns", "header")
@out_option("Folder to write  [default: NAME-minN]")
def build(files: tuple[Path, ...], columns: str | None, header: bool | None, out: Path | None, **recipe: Any) -> None:
    """Build a data set from files of triples.

    Repeated triples and rare entities are left out. FB1.9M was built in this way. Every entity and relation of the
    splits valid and test occurs in train.
    """
    from jobi_tf.datasets.build import Recipe, build_files

    folder = out or Path(f"{files[0].name.split('.')[0]}-min{recipe['min_triples']}")
    progress = partial(click.echo, err=True)
    chosen = None if columns is None else columns.split(",")
    sizes, steps = build_files(files, folder, Recipe(**recipe), chosen, header, progress)
    rows: list = [*steps]
    if len(rows) > ROUNDS + 3:  # beside the rounds: what was read, what is distinct, and what was kept
        rows[2 + ROUNDS : -1] = [("…", "", "", f"({len(rows) - ROUNDS - 3} more)")]
    rows += [(f"in {split}", "", "", count) for split, count in sizes.items()]
    print_table(("", "entities", "relations", "triples"), rows)
    _print_written(sizes, folder)
