"""`jobi-tf complete`."""

from pathlib import Path

import cloup

from ..options import COUNT, Command, open_run, opened, out_option, run_option


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
