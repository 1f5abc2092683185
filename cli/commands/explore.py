"""The commands that look at one run: `jobi-tf neighbors`, `explain`, `complete`, `plot` and `convert`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from jobi_tf.console import print_json, print_table

from ..options import COUNT, RUN, Command, json_option, open_run, opened, out_option, run_option

if TYPE_CHECKING:
    from jobi_tf.evaluation.explain import Explanation


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


@cloup.command(cls=Command)
@run_option
@cloup.option("--head", required=True, metavar="NAME", help="The head.")
@cloup.option("--relation", required=True, metavar="NAME", help="The relation.")
@cloup.option("--tail", required=True, metavar="NAME", help="The tail.")
@json_option
def explain(run: Path, head: str, relation: str, tail: str, as_json: bool) -> None:
    """Show why a model believes a triple or not.

    \b
      jobi-tf explain runs/world --head Switzerland --relation neighbour --tail Austria

    Prints the scores of both heads, the probability, the ranks of head and tail among all entities, how often both
    occur with the relation in training, the training triples that are most similar, and paths from head to tail. The
    confidence of a path is that of its rule: of the pairs of entities with such a path, the share between which the
    relation holds, with five pairs added.
    """
    found = open_run(run).explain(head, relation, tail)
    if as_json:
        print_json(found.to_dict())
    else:
        _print_evidence(found)


def _print_evidence(found: "Explanation") -> None:
    where = f"a fact of the {found.split} split" if found.split else "not in the graph"
    click.echo(f"({', '.join(found.triple)}): {where}\n")
    rows = [[f"score of the {name} head", f"{score:.3f}"] for name, score in found.scores.items()]
    if found.probability is not None:
        rows.append(["probability", f"{found.probability:.1%}"])
    rows += [[f"rank of the {side}", f"{rank:,.0f} of {found.candidates:,}"] for side, rank in found.ranks.items()]
    rows += [
        [f"training triples with this {side} and relation", f"{count:,}"] for side, count in found.occurrences.items()
    ]
    print_table(["", "value"], rows)
    click.echo()
    if found.paths:
        cells = [[x.path, f"{x.confidence:.0%}", x.support] for x in found.paths]
        print_table(["path from head to tail", "confidence", "pairs"], cells)
    else:
        click.echo("no path of one or two steps from head to tail is evidence for it")
    click.echo()
    if found.similar:
        columns = ("similar training triples: head", "tail", "similarity")
        similar = [[x.head, x.tail, f"{x.similarity:.2f}"] for x in found.similar]
        print_table(columns, similar, text=columns[:2])
    else:
        click.echo("training has no other triple of this relation")


@cloup.command(cls=Command)
@run_option
@cloup.option("--relation", metavar="NAME", help="Only triples of this relation.")
@cloup.option("-k", type=COUNT, default=100, help="Largest number of triples.")
@out_option("File to write; by default stdout.", folder=False)
def complete(run: Path, relation: str | None, k: int, out: Path | None) -> None:
    """Print the triples with the greatest scores that the graph does not hold, best first.

    \b
      jobi-tf complete runs/world --relation neighbour -k 20

    Each line has head, relation, tail and score, separated by tabs. Head and tail occur on their side of the relation
    in training. Scores of different relations are comparable only roughly.
    """
    triples = open_run(run).complete(relation, k)
    with opened(out) as file:
        file.writelines(f"{x.head}\t{x.relation}\t{x.tail}\t{x.score:.4f}\n" for x in triples)


@cloup.command(cls=Command)
@run_option
@out_option("Folder for the plots; by default plots/ in the folder of the run.")
def plot(run: Path, out: Path | None) -> None:
    """Draw the curves of a training, a map of the entities, and the ranks by relation, as PNG and SVG.

    \b
      jobi-tf plot runs/world
    """
    trained = open_run(run)
    from jobi_tf.report.plots import plot_run

    for path in plot_run(trained, out or run / "plots"):
        click.echo(path)


@cloup.command(cls=Command)
@run_option
@cloup.option("--of", type=click.Choice(["entities", "relations"]), default="entities", help="Whose embeddings.")
@out_option("File to write: .npz (arrays names and vectors), .txt (word2vec) or .parquet.", folder=False, required=True)
def convert(run: Path, of: str, out: Path) -> None:
    """Write embeddings with their names to a file for other programs.

    \b
      jobi-tf convert runs/world --out world.npz

    In word2vec text, spaces in names become underscores. --entity-vectors of `jobi-tf train` reads .npz and .txt.
    """
    trained = open_run(run)
    from jobi_tf.training.vectors import write_vectors

    graph, model = trained.graph, trained.model
    if of == "entities":
        names, table = graph.entities.names, model.entities.table
    else:
        names, table = graph.relations.names, model.heads[0].relations.table
    write_vectors(out, names, table.numpy()[: len(names)])
    click.echo(f"written {len(names):,} vectors of {table.shape[1]:,} numbers to {out}", err=True)
