"""`jobi-tf complete`."""

from pathlib import Path

import cloup

from jobi_tf.console import warn

from ..options import COUNT, Command, open_run, opened, out_option, run_option


@cloup.command(cls=Command)
@run_option
@cloup.option("--relation", metavar="NAME", help="Only triples of this relation.")
@cloup.option("-k", type=COUNT, default=100, help="Largest number of triples.")
@out_option("File to write; by default stdout.", folder=False)
def complete(run: Path, relation: str | None, k: int, out: Path | None) -> None:
    """Print the triples with the highest scores that the graph does not contain, best first.

    \b
      jobi-tf complete runs/world --relation neighbour -k 20

    Each line has head, relation, tail and score, separated by tabs. Only entities that training saw on that side of the
    relation are considered. Head and tail are only equal if they are in a training triple of the relation. Scores of
    different relations are only roughly comparable.
    """
    triples = open_run(run).complete(relation, k)
    if not triples:
        reason = "never saw on that side of its relation, or links an entity to itself"
        warn(f"no new triple: each other one is in the graph, has an entity that training {reason}")
    with opened(out) as file:
        file.writelines(f"{x.head}\t{x.relation}\t{x.tail}\t{x.score:.4f}\n" for x in triples)
