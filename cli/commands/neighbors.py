"""`jobi-tf neighbors`."""

from pathlib import Path

import cloup

from jobi_tf.console import print_json, print_table

from ..options import COUNT, Command, json_option, run_option
from ..start import start_tensorflow


@cloup.command(cls=Command)
@run_option()
@cloup.option("--entity", required=True, metavar="NAME", help="The entity.")
@cloup.option("-k", type=COUNT, default=10, show_default=True, help="Number of neighbors.")
@json_option
def neighbors(run: Path, entity: str, k: int, as_json: bool) -> None:
    """Print the entities whose embeddings are most similar to that of an entity, by cosine.

    \b
      jobi-tf neighbors runs/world --entity Switzerland
    """
    start_tensorflow()
    import jobi_tf

    found = jobi_tf.load_run(run).nearest(entity, k)
    if as_json:
        print_json([row._asdict() for row in found])
    else:
        print_table(["entity", "similarity"], [[row.entity, f"{row.similarity:.4f}"] for row in found], found.title)
