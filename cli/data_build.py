"""`jobi-tf data build`: a data set out of any file of triples."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobi_tf.errors import DataError, UsageError

from .command import Command
from .show import print_table
from .signals import ended_as_interrupted

if TYPE_CHECKING:
    import numpy as np

    from jobi_tf.data.build_files import TripleText


class Size(click.ParamType):
    """A whole number, or a share."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> int | float:
        """Returns what was meant."""
        try:
            return int(value) if str(value).isdecimal() else float(value)
        except ValueError:
            self.fail(f"expected a number of triples, or a share between 0 and 1, got {value!r}", param, context)


@click.command(cls=Command)
@click.option(
    "--from",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    metavar="TRIPLES",
    help="File of triples: .tsv, .txt (with TABs) or .csv, each also .gz; may be repeated.",
)
@click.option(
    "--min-triples",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Leave out entities in fewer triples, again and again until none is left.",
)
@click.option("--valid", type=Size(), metavar="N|SHARE", help="Validation triples  [default: 0.01, at most 5000]")
@click.option("--test", type=Size(), metavar="N|SHARE", help="Test triples  [default: 0.01, at most 5000]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Which random split.")
@click.option("--columns", metavar="H,R,T", help="Names or positions of the head, relation, tail columns.")
@click.option("--header/--no-header", default=None, help="Whether files have a header  [default: look]")
@click.option("--output", type=click.Path(path_type=Path), help="Folder to make  [default: NAME-minN]")
def build(
    files: tuple[Path, ...],
    min_triples: int,
    valid: int | float | None,
    test: int | float | None,
    seed: int,
    columns: str | None,
    header: bool | None,
    output: Path | None,
) -> None:
    """Make a data set of any triples: no repeats, no rare entities, three splits.

    The recipe of FB1.9M. Every entity and relation of valid and test occurs in train.
    """
    from jobi_tf.data.build import Recipe
    from jobi_tf.data.build_files import build_files

    recipe = Recipe(min_triples, valid, test, seed)
    text = _triple_text(files, columns, header)
    folder = output or Path(f"{files[0].name.split('.')[0]}-min{min_triples}")
    with ended_as_interrupted():
        report = build_files(files, folder, recipe, text, partial(click.echo, err=True))
    print_table(("", "entities", "relations", "triples"), report.lines())
    counts = ", ".join(f"{count:,} {split}" for split, count in report.splits.items())
    click.echo(f"{counts} triples in {folder}; train on them by --dataset {folder}")


def _triple_text(files: Sequence[Path], columns: str | None, header: bool | None) -> "TripleText":
    """Returns the reader of the files of data sets, with the user's options."""
    from jobi_tf.data.build_files import TripleText
    from jobi_tf.datasets.layout import Layout
    from jobi_tf.datasets.local import SUFFIXES

    for path in files:
        if not path.exists():
            raise UsageError(f"expected a file of triples at {path}, found nothing there")
        if not path.is_file():
            raise DataError(f"expected a file of triples, got {path}, which is not a file")
        if not path.name.endswith(SUFFIXES):
            raise UsageError(f"expected a file whose name ends in {', '.join(SUFFIXES)}, got {path}")
    layout = Layout.of(None if columns is None else columns.split(","), header)

    def is_header(fields: list[str]) -> bool:
        return Layout().resolve(fields, "")[0]

    return TripleText(partial(_read, layout=layout), is_header, {"columns": columns, "header": header})


def _read(files: Sequence[Path], layout: Any) -> "tuple[np.ndarray, list[str], list[str]]":
    """Reads triples, int32 [N, 3], the names of their entities, and of their relations."""
    import numpy as np

    from jobi_tf.datasets.text import Names, Text, open_file

    entities, relations, parts = Names(), Names(), []
    for path in files:
        click.echo(f"reading {path}", err=True)
        separator = "," if path.name.endswith((".csv", ".csv.gz")) else "\t"
        with open_file(path) as stream:
            parts.append(Text(str(path), separator, layout).read(stream, entities, relations)[0])
    return parts[0] if len(parts) == 1 else np.concatenate(parts), list(entities), list(relations)
