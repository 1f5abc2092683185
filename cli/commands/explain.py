"""`jobi-tf explain`."""

from pathlib import Path

import click
import cloup

from jobi_tf.console import print_json, print_table

from ..options import Command, json_option, open_run, run_option


@cloup.command(cls=Command)
@run_option
@cloup.option("--head", required=True, metavar="NAME", help="The head.")
@cloup.option("--relation", required=True, metavar="NAME", help="The relation.")
@cloup.option("--tail", required=True, metavar="NAME", help="The tail.")
@json_option
def explain(run: Path, head: str, relation: str, tail: str, as_json: bool) -> None:
    """Show the evidence for a triple.

    \b
      jobi-tf explain world --head Switzerland --relation neighbour --tail Austria

    Prints the scores of both heads, the probability, the ranks of head and tail among all entities, how often both
    occur with the relation in training, the most similar training triples, and paths from head to tail. The confidence
    of a path is hits / (pairs + 5), where pairs is the number of pairs of entities with such a path, and hits is for
    how many of them the relation holds.
    """
    found = open_run(run).explain(head, relation, tail)
    if as_json:
        print_json(found.to_dict())
        return
    values, paths, similar = found.tables()
    click.echo(f"{found.title}\n")
    print_table(*values)
    click.echo()
    if found.paths:
        print_table(*paths)
    else:
        click.echo("no path of one or two steps from head to tail is evidence for it")
    click.echo()
    if found.similar:
        print_table(*similar, text=similar[0][:2])
    else:
        click.echo("training has no other triple of this relation")
