"""`jobi-tf search`."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from jobi_tf.console import JobDisplay, duration, print_table
from jobi_tf.errors import MissingExtraError, UsageError
from jobi_tf.evaluation.metrics import BETTER_IF_HIGHER, METRICS, metric_texts

from ..options import COUNT, Command, evaluation_of, jobs_option, out_option, parse_assignments, setting_text

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from jobi_tf.jobs import Epoch
    from jobi_tf.tuning.results import Results
    from jobi_tf.tuning.spaces import Space

SHOWN = 10


@cloup.command(cls=Command)
@cloup.argument("space", required=False, metavar="SPACE", help="YAML file, or name of a built-in space.")
@out_option("Folder of the search  [default: runs/searches/SPACE]")
@cloup.option("--dataset", metavar="NAME|PATH", help="Data set, instead of the one in the space.")
@cloup.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Fix a setting instead of searching it.")
@cloup.option("--trials", type=COUNT, help="Number of trials, instead of the one in the space.")
@jobs_option
@cloup.option("--storage", metavar="URL", help="Optuna database, for a search on several machines.")
@cloup.option("--quiet", "-q", is_flag=True, help="Print the result only.")
@cloup.option("--list", "list_", is_flag=True, help="List the built-in spaces and exit.")
def search(
    space: str | None,
    out: Path | None,
    dataset: str | None,
    assignments: tuple[str, ...],
    trials: int | None,
    jobs: int,
    storage: str | None,
    quiet: bool,
    list_: bool,
) -> None:
    """Search for good settings in a space, which is a YAML file or the name of a built-in space.

    Trials are compared on the validation split; the test split is never used. Each trial is a run in the folder of the
    search. The same command continues an interrupted search.
    """
    from jobi_tf.tuning.spaces import Space

    if list_:
        for name in Space.built_in():
            click.echo(f"{name:<22} {Space.read(name).description}")
        return
    if space is None:
        raise UsageError("expected a YAML file or the name of a built-in space (see `jobi-tf search --list`)")
    settings = parse_assignments(assignments)
    if dataset is not None:
        if "dataset" in settings:
            raise UsageError("expected --dataset or --set dataset=…, got both")
        settings["dataset"] = dataset
    chosen = Space.read(space)
    if settings or trials:
        chosen = chosen.changed(settings, trials)
    from jobi_tf.tuning.search import search as run

    out = out or Path("runs") / "searches" / chosen.name
    how = f"Interrupted; the same command continues the search in {out}."
    click.get_current_context().find_root().obj = lambda: how
    if quiet:
        results = run(chosen, out, jobs, storage)
    else:
        judged = f"{chosen.size} trials, by validation {METRICS[chosen.metric]}"
        click.echo(f"search    {chosen.sampler}, {judged}\nfolder    {out}", err=True)
        with JobDisplay() as display:
            results = run(chosen, out, jobs, storage, _Progress(chosen, jobs, display))
    _print_result(results, quiet)


class _Progress:
    """Prints a line for each trial that has ended; a terminal shows the epochs of those that are running."""

    def __init__(self, space: "Space", jobs: int, display: JobDisplay):
        self.space, self.jobs, self.display = space, jobs, display
        self.start, self.ended = time.monotonic(), 0

    def __call__(self, trial: int, event: "Epoch | Results | None") -> None:
        label = f"trial {trial}"
        if event is None:
            self.display.update(label, "starting")
        elif isinstance(event, tuple):
            self.display.update(label, f"epoch {event.epoch}/{event.epochs}")
        else:
            self.display.update(label, None)
            self.display.print(self._line(trial, event))

    def _line(self, ended: int, results: "Results") -> str:
        from jobi_tf.tuning.results import last_tries, number

        self.ended += 1
        done = sum(trial.state.is_finished() for trial in last_tries(results.study).values())
        (trial,) = (trial for trial in results.trials if number(trial) == ended)
        left = (time.monotonic() - self.start) / max(self.ended, self.jobs) * (self.space.size - done)
        best = "  best so far" if results.ranked()[:1] == [trial] else ""
        time_left = f"  left ≈ {duration(left)}" if left > 0 else ""
        return f"{done}/{self.space.size}  {_describe(trial, results)}{best}{time_left}"


def _describe(trial: "FrozenTrial", results: "Results") -> str:
    """Returns a trial on one line: how it ended and its settings."""
    from jobi_tf.tuning.results import number

    settings = "  ".join(f"{name} {setting_text(value)}" for name, value in results.params(trial).items())
    found, label = trial.user_attrs, f"trial {number(trial)}"
    if trial.state.name == "FAIL":
        return f"{label}  failed: {found.get('reason')}  ({settings})"
    pruned = f"pruned at epoch {found['epochs']}  " if trial.state.name == "PRUNED" else ""
    value = f"{METRICS[results.space.metric]} {trial.value:.4f}"
    return f"{label}  {pruned}{value}  {duration(found['seconds'])}  {settings}"


def _print_result(results: "Results", quiet: bool) -> None:
    from jobi_tf.tuning.results import BEST, number, run_folder

    ranked, names = results.ranked(), [*results.space.search]

    def cells(trial: "FrozenTrial") -> list[str]:
        found, params = trial.user_attrs, results.params(trial)
        metrics = metric_texts(found["metrics"], BETTER_IF_HIGHER)
        values = [setting_text(params[name]) if name in params else "" for name in names]
        return [str(number(trial)), *metrics, str(found["best_epoch"]), duration(found["seconds"]), *values]

    states = {"complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}
    counts = ", ".join(f"{count} {name}" for name, state in states.items() if (count := results.count(state)))
    columns = ["trial", *(METRICS[name] for name in BETTER_IF_HIGHER), "epoch", "trained", *names]
    title = f"{counts}; best by validation {METRICS[results.space.metric]}:"
    print_table(columns, [cells(trial) for trial in ranked[:SHOWN]], title)
    for trial in results.trials:
        if trial.state.name == "FAIL":
            click.echo(f"trial {number(trial)} failed: {trial.user_attrs.get('reason')}", err=True)
    click.echo(f"search folder {results.path}")
    try:
        pictures = "".join(f", {picture.name}" for picture in results.draw())
    except MissingExtraError as error:
        pictures = f"; no pictures: {error}"
    if not quiet:
        click.echo(f"written: trials.csv, best.yaml{pictures}", err=True)
        best = run_folder(results.path, ranked[0]).path
        other = "" if best.exists() else "  (on the machine that trained it)"
        click.echo(f"next: {evaluation_of(results.space.config({}).load_graph(), best)}{other}", err=True)
        click.echo(f"      jobi-tf train --config {shlex.quote(str(results.path / BEST))} --seed 1", err=True)
        click.echo(f"      jobi-tf tensorboard {shlex.quote(str(results.path))}", err=True)
