"""`jobi-tf convert`."""

from pathlib import Path

import click
import cloup

from ..options import Command, open_run, out_option, run_option


@cloup.command(cls=Command)
@run_option
@cloup.option("--of", type=click.Choice(["entities", "relations"]), default="entities", help="Embeddings to write.")
@out_option("File to write: .npz (arrays names and vectors), .txt (word2vec) or .parquet.", folder=False, required=True)
def convert(run: Path, of: str, out: Path) -> None:
    """Write embeddings with their names to a file for other programs.

    \b
      jobi-tf convert runs/world --out world.npz

    The numbers of ComplEx are the real parts, then the imaginary parts. Of reciprocal relations, "NAME (inverse)" is
    the one that answers (?, NAME, tail). In word2vec text, underscores replace the spaces in names. `jobi-tf train
    --entity-vectors` reads .npz and .txt.
    """
    trained = open_run(run)
    from jobi_tf.training.vectors import write_vectors
    from jobi_tf.workers import parts_of, read_in_blocks

    graph, model = trained.graph, trained.model
    if of == "entities":
        names, table = graph.entities.names, model.entities.table
    else:
        names, table = graph.relation_names(model.reciprocal), model.heads[0].relations.table
    write_vectors(out, names, read_in_blocks(*parts_of(table)))
    click.echo(f"written {len(names):,} vectors of {table.shape[1]:,} numbers to {out}", err=True)
