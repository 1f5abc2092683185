"""`jobi-tf neighbors`."""

from pathlib import Path

import click
import cloup

from jobi_tf.console import print_json, print_table

from ..options import COUNT, RUN, Command, json_option, open_run


@cloup.command(cls=Command)
@cloup.argument("values", nargs=-1, metavar="[RUN] ENTITY")
@cloup.option("--run-dir", "run", type=RUN, metavar="RUN", help="Folder of the run, or world.")
@cloup.option("-k", type=COUNT, default=10, help="Number of neighbors.")
@json_option
@click.pass_context
def neighbors(context: click.Context, values: tuple[str, ...], run: Path | None, k: int, as_json: bool) -> None:
    """Print the entities whose embeddings are most similar to that of an entity, by cosine.

    \b
      jobi-tf neighbors runs/world Switzerland
    """
    expected = "ENTITY" if run else "RUN and ENTITY"
    if len(values) != (1 if run else 2):
        raise click.UsageError(f"Expected {expected}, got {' '.join(values) or 'nothing'}.", context)
    found = open_run(run or RUN.convert(values[0], None, context)).nearest(values[-1], k)
    if as_json:
        print_json([row._asdict() for row in found])
    else:
        print_table(["entity", "similarity"], [[row.entity, f"{row.similarity:.4f}"] for row in found], found.title)
