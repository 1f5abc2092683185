"""`jobi-tf data build`: a data set made of any files of triples."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from .command import Command
from .show import print_table
from .signals import ended_as_interrupted

_ROUNDS = 20


class Size(click.ParamType):
    """A whole number, or a share."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> int | float:
        """Returns the number or the share."""
        try:
            return int(value) if str(value).isdecimal() else float(value)
        except ValueError:
            self.fail(f"expected a number of triples or a share between 0 and 1, got {value!r}", param, context)


def column_options(command: Callable) -> Callable:
    """Adds the options that describe the columns of files."""
    columns = click.option("--columns", metavar="H,R,T", help="Names or positions of the head, relation, tail columns.")
    header = click.option("--header/--no-header", default=None, help="Whether files have a header  [default: detect]")
    return columns(header(command))


@click.command(cls=Command)
@click.option(
    "--from",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    metavar="FILE",
    help="File of triples: .tsv, .txt (with tabs) or .csv, each also .gz; may be repeated.",
)
@click.option(
    "--min-triples",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Leave out entities in fewer triples, repeatedly until there is none.",
)
@click.option("--valid", type=Size(), metavar="N|SHARE", help="Validation triples  [default: 0.01, at most 5000]")
@click.option("--test", type=Size(), metavar="N|SHARE", help="Test triples  [default: 0.01, at most 5000]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random split.")
@column_options
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write  [default: NAME-minN]")
def build(
    files: tuple[Path, ...],
    min_triples: int,
    valid: int | float | None,
    test: int | float | None,
    seed: int,
    columns: str | None,
    header: bool | None,
    out: Path | None,
) -> None:
    """Make a data set of any triples: no repeats, no rare entities, three splits.

    The recipe of FB1.9M. Every entity and relation of valid and test occurs in train.
    """
    from jobi_tf.datasets.build import Recipe, build_files

    recipe = Recipe(min_triples, valid, test, seed)
    folder = out or Path(f"{files[0].name.split('.')[0]}-min{min_triples}")
    fields = None if columns is None else columns.split(",")
    with ended_as_interrupted():
        report = build_files(files, folder, recipe, fields, header, progress=partial(click.echo, err=True))
    rows = [(x.name, f"{x.entities:,}", f"{x.relations:,}", f"{x.triples:,}") for x in report.steps]
    if len(rows) > _ROUNDS + 3:  # beside the rounds: what was read, what is distinct, and what was kept
        rows[2 + _ROUNDS : -1] = [("…", "", "", f"({len(rows) - _ROUNDS - 3} more)")]
    rows += [(f"in {split}", "", "", f"{count:,}") for split, count in report.splits.items()]
    print_table(("", "entities", "relations", "triples"), rows)
    counts = ", ".join(f"{count:,} {split}" for split, count in report.splits.items())
    click.echo(f"{counts} triples in {folder}; train on them with --dataset {folder}")
