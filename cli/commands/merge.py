"""`jobi-tf merge`."""

from pathlib import Path

import click
import cloup

from jobi_tf.console import print_table
from jobi_tf.evaluation.metrics import BETTER_IF_HIGHER, METRICS, metric_texts

from ..options import Command, evaluation_of, out_option, run_name, runs_option
from ..start import start_tensorflow


@cloup.command(cls=Command)
@runs_option()
@out_option("Folder of the merged run.", required=True)
@cloup.option(
    "--weights",
    type=click.Choice(["fitted", "equal"]),
    default="fitted",
    help="Weights of the runs: fitted on the validation split for each relation, or equal.",
)
def merge(runs: tuple[Path, ...], out: Path, weights: str) -> None:
    """Merge runs of one graph into a run whose scores are the weighted sum of theirs.

    \b
      jobi-tf merge runs/seed-0 runs/seed-1 --out runs/merged

    All runs must have the same scorer: complex, distmult, simple or rescal. Their embeddings are concatenated, so the
    result is an ordinary run, without a pair head, whose embedding size is the sum of the sizes.
    """
    start_tensorflow()
    import jobi_tf
    from jobi_tf.report.runs import run_values

    merged = jobi_tf.merge_runs(runs, out, weights)
    names = [f"val_{name}" for name in BETTER_IF_HIGHER]
    found = {path: run_values(path) for path in (*runs, out)}
    rows = [[run_name(path), values["dim"], *metric_texts(values, names)] for path, values in found.items()]
    print_table(["run", "d", *(METRICS[name] for name in BETTER_IF_HIGHER)], rows, "validation split")
    mrr = {path: values[names[0]] for path, values in found.items() if values[names[0]] is not None}
    best = max(mrr, key=lambda path: mrr[path], default=out)
    if best != out:
        click.echo(f"no better than {run_name(best)} on the validation split", err=True)
    click.echo(f"run folder {merged.path}")
    click.echo(f"next: {evaluation_of(merged.graph, out)}", err=True)
