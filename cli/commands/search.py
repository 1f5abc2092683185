"""`jobi-tf search`."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobi_tf.errors import MissingExtraError, UsageError
from jobi_tf.evaluation.metrics import BETTER_IF_HIGHER, METRICS
from jobi_tf.training.config import parse_assignment

from ..console import print_table
from ..main import INTERRUPTED, ended_as_interrupted
from ..options import Command

if TYPE_CHECKING:
    from jobi_tf.experiments.search_results import Results, Trial

BEST = 10


@click.command(cls=Command)
@click.argument("space", required=False, metavar="SPACE")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the search  [default: runs/searches/SPACE]")
@click.option("--dataset", metavar="NAME|PATH", help="Data set, instead of the one in the space.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A setting that is not to be searched.")
@click.option("--trials", type=click.IntRange(min=1), help="Number of trials, instead of the one in the space.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Trials at a time.")
@click.option("--quiet", "-q", is_flag=True, help="Print the result only.")
@click.option("--list", "list_", is_flag=True, help="List the ready-made spaces and do nothing.")
def search(
    space: str | None,
    out: Path | None,
    dataset: str | None,
    assignments: tuple[str, ...],
    trials: int | None,
    jobs: int,
    quiet: bool,
    list_: bool,
) -> None:
    """Search for good settings: a YAML file, or the name of a ready-made space, says which.

    The validation split judges; the test split is never looked at. The same command goes on with a search that was
    ended in any way. Each trial is a run of its own in the folder of the search.
    """
    from jobi_tf.experiments.spaces import read_space, ready_made

    if list_:
        for name in ready_made():
            click.echo(f"{name:<22} {read_space(name).description}")
        return
    if space is None:
        raise UsageError("expected a YAML file or the name of a ready-made space (see `jobi-tf search --list`)")
    settings = dict(parse_assignment(text) for text in assignments)
    if len(settings) < len(assignments):
        raise UsageError("expected each setting after --set at most once")
    if dataset is not None:
        if "dataset" in settings:
            raise UsageError("expected --dataset or --set dataset=…, got both")
        settings["dataset"] = dataset
    chosen = read_space(space)
    if settings or trials:
        chosen = chosen.changed(settings, trials)
    from jobi_tf.experiments.search import search as run
    from jobi_tf.experiments.search_progress import SearchProgress

    out = out or Path("runs") / "searches" / chosen.name
    progress = None if quiet else SearchProgress()
    try:
        with ended_as_interrupted():
            results = run(chosen, out, jobs, progress)
    except KeyboardInterrupt:
        if progress:
            progress.close()
        click.echo(f"Interrupted; the same command goes on with the search in {out}.", err=True)
        sys.exit(INTERRUPTED)
    finally:
        if progress:
            progress.close()
    _say_result(results, quiet)


def _say_result(results: "Results", quiet: bool) -> None:
    from jobi_tf.experiments.search_progress import format_value
    from jobi_tf.training.bars import duration

    space, ranked = results.space, results.ranked()
    names = [parameter.name for parameter in space.parameters]

    def cells(trial: "Trial") -> list[str]:
        metrics = [f"{(trial.metrics or {})[name]:.4f}" for name in BETTER_IF_HIGHER]
        params = [format_value(trial.params[name]) if name in trial.params else "" for name in names]
        return [str(trial.number), *metrics, str(trial.best_epoch), duration(trial.seconds or 0), *params]

    counts = ", ".join(
        f"{count} {state}" for state in ("complete", "pruned", "failed") if (count := results.count(state))
    )
    title = f"{counts}; best by validation {METRICS[space.metric]}:"
    columns = ["trial", *(METRICS[name] for name in BETTER_IF_HIGHER), "epoch", "trained", *names]
    print_table(columns, [cells(t) for t in ranked[:BEST]], title)
    for trial in results.trials:
        if trial.state == "failed":
            click.echo(f"trial {trial.number} failed: {trial.reason}", err=True)
    click.echo(f"search folder {results.folder.path}")
    picture = _draw(results)
    if not quiet:
        path, best = results.folder.path, results.folder.trial(ranked[0].number).path
        click.echo(f"written: trials.csv, best.yaml{picture}", err=True)
        click.echo(f"next: jobi-tf evaluate {shlex.quote(str(best))}", err=True)
        click.echo(f"      jobi-tf train --config {shlex.quote(str(results.folder.best))} --seed 1", err=True)
        click.echo(f"      tensorboard --logdir {shlex.quote(str(path))}", err=True)


def _draw(results: "Results") -> str:
    from jobi_tf.experiments.search_plots import plot_search

    try:
        plot_search(results)
    except MissingExtraError as error:
        return f"; no picture: {error}"
    return ", search.png"
