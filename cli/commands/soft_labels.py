"""`jobi-tf soft-labels`."""

from pathlib import Path

import click
import cloup

from jobi_tf.console import Bar

from ..options import Command, open_runs, out_option, rules_option, run_name, runs_option


@cloup.command(cls=Command)
@runs_option()
@rules_option
@out_option("File of soft labels, such as teacher.npz.", required=True, folder=False)
def soft_labels(runs: tuple[Path, ...], rules: bool, out: Path) -> None:
    """Write the most likely answers to the queries of training, by trained runs, for another run to learn from.

    \b
      jobi-tf soft-labels runs/large --out teacher.npz
      jobi-tf soft-labels runs/seed-0 runs/seed-1 --rules --out teacher.npz
      jobi-tf train umls --recipe strong --soft-labels teacher.npz

    RUN is the folder of a run that was trained with a softmax. Several runs of one graph, with any scorers, are pooled,
    as by jobi-tf evaluate. For each query with an answer in training, the file has the 32 most likely answers that are
    not in training, with their probabilities.
    """
    teacher = open_runs(runs, rules)
    import jobi_tf
    from jobi_tf.data.batches import number_of_queries

    with Bar(number_of_queries(teacher.graph, "train", teacher.graph.num_entities), "queries", "scoring") as bar:
        labels = jobi_tf.soft_labels(teacher, progress=bar.update)
    labels.save(out)
    left = labels.probabilities.sum(1).mean()
    click.echo(
        f"{len(labels.entities):,} queries of {teacher.graph.name}: {', '.join(map(run_name, runs))} "
        f"{'and rules ' * rules}give the new answers a probability of {left:.3f} on average\nwritten to {out}"
    )
