"""`jobi-tf reproduce`."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobi_tf.errors import JobiError, UsageError
from jobi_tf.evaluation.metrics import METRICS

from ..console import print_table
from ..main import INTERRUPTED, ended_as_interrupted
from ..options import Command

if TYPE_CHECKING:
    from jobi_tf.experiments.reproduce.experiment import Experiment
    from jobi_tf.experiments.reproduce.plan import Plan, PlannedRun, Source
    from jobi_tf.experiments.reproduce.processes import Event
    from jobi_tf.experiments.reproduce.session import Outcome, Session

ALL = "all"


@click.command(cls=Command)
@click.argument("names", nargs=-1, required=True, metavar="EXPERIMENT…")
@click.option("--dataset", "datasets", multiple=True, metavar="NAME|PATH|NAME=PATH", help="Data set; may be repeated.")
@click.option("--seeds", type=click.IntRange(min=1), metavar="N", help="Seeds 0 to N - 1  [default: the experiment's]")
@click.option("--quick", is_flag=True, help="Small models, trained shortly, one seed: to see that everything works.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Runs at once.")
@click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/reproduce"),
    show_default=True,
    help="Where runs are kept.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    show_default=True,
    help="Where tables are written.",
)
@click.option("--dry-run", is_flag=True, help="Tell what is complete and what would be run.")
@click.option("--tables-only", is_flag=True, help="Train nothing; write tables from the runs that are complete.")
def reproduce(
    names: tuple[str, ...],
    datasets: tuple[str, ...],
    seeds: int | None,
    quick: bool,
    jobs: int,
    runs: Path,
    out: Path,
    dry_run: bool,
    tables_only: bool,
) -> None:
    """Run experiments of the paper and others, and write their tables, the paper's figures beside ours.

    EXPERIMENT is table2, table3, ablation, batch-sweep, negatives-sweep, full-softmax, typecomplex, runtime,
    qualitative, models, sides, best, all, or a YAML file. Runs that are complete are only read, interrupted ones go on,
    missing ones are made. Writes NAME.md, NAME.csv and NAME.png.
    """
    if dry_run and tables_only:
        raise UsageError("--dry-run writes nothing, --tables-only writes tables: expected one of them")
    if jobs > 1 and (dry_run or tables_only):
        raise UsageError("--jobs is for training, which --dry-run and --tables-only leave out: expected one of them")
    from jobi_tf.experiments.reproduce.session import Session

    experiments = _experiments(names)
    sources = _sources(datasets, experiments)
    display = _Display()
    command = ["jobi-tf", *sys.argv[1:]]
    session = Session(runs, out, seeds, quick, jobs, command, display.tell, display.say)
    plans = [session.plan(x, _chosen(x, experiments, sources, ALL in names)) for x in experiments]
    plans = [plan for plan in plans if plan.all_runs]
    for plan in plans:
        for run in plan.all_runs:
            _ = run.record  # a damaged one is told before anything is trained
    if dry_run:
        _foretell(plans)
        return
    try:
        with ended_as_interrupted():
            written = [_carry_out(session, plan, display, tables_only) for plan in plans]
    except KeyboardInterrupt:
        display.close()
        click.echo("Interrupted. The same command goes on from here.", err=True)
        sys.exit(INTERRUPTED)
    finally:
        display.close()
    for run, reason in session.failed.items():
        click.echo(f"failed: {_name(run)}: {reason}", err=True)
    if session.failed or not any(written):
        sys.exit(1)


def _experiments(names: tuple[str, ...]) -> list["Experiment"]:
    from jobi_tf.experiments.reproduce.experiment import built_in, read_experiment

    chosen = [other for name in names for other in (built_in() if name == ALL else [name])]
    experiments = [read_experiment(name) for name in dict.fromkeys(chosen)]
    for experiment in experiments:
        if sum(other.name == experiment.name for other in experiments) > 1:
            raise UsageError(f"expected experiments with different names, got two called {experiment.name!r}")
    return experiments


def _sources(datasets: tuple[str, ...], experiments: list["Experiment"]) -> list["Source"]:
    from jobi_tf.experiments.reproduce.plan import Source

    known = {name for experiment in experiments for name in experiment.datasets}
    sources = [Source.parse(text, known) for text in dict.fromkeys(datasets)]
    for source in sources:
        if [other.name for other in sources].count(source.name) > 1:
            raise UsageError(f"expected data sets with different names, got two called {source.name!r}: see NAME=PATH")
    return sources


def _chosen(
    experiment: "Experiment", experiments: list["Experiment"], sources: list["Source"], of_all: bool
) -> list["Source"]:
    """Returns the data sets of an experiment; with `all`, not those that only other experiments are about."""
    from jobi_tf.experiments.reproduce.plan import Source

    if not sources:
        return [Source(name, name) for name in experiment.datasets]
    elsewhere = {name for other in experiments for name in other.datasets if of_all} - set(experiment.datasets)
    return [source for source in sources if source.name not in elsewhere]


def _carry_out(session: "Session", plan: "Plan", display: "_Display", tables_only: bool) -> bool:
    """Runs what is missing, writes and prints the tables; returns whether there was anything to write."""
    name, plan = plan.experiment.name, plan.refreshed()  # an experiment before may have made its runs
    if not tables_only:
        missing = session.missing(plan)
        display.begin(name, missing, [run for run in plan.all_runs if run.record is not None], session.jobs)
        session.run(missing)
    display.close()
    outcome = session.write(plan)
    if outcome is None:
        click.echo(f"{name}: no run is complete, so there is no table", err=True)
        return False
    _print(outcome)
    return True


def _print(outcome: "Outcome") -> None:
    for sheet in outcome.sheets:
        print_table(sheet.columns, sheet.rows, sheet.title)
        click.echo()
    runs = outcome.plan.all_runs
    done = sum(run.record is not None for run in runs)
    click.echo(f"{done} of {len(runs)} runs complete; written: {', '.join(map(str, outcome.files))}")


def _foretell(plans: list["Plan"]) -> None:
    """Prints what is complete and what would be run."""
    every = {run.path: run for plan in plans for run in plan.all_runs}.values()
    complete = [run for run in every if run.record is not None]
    for plan in plans:
        rows = [(runs[0].label, _state(runs), str(runs[0].path.parent)) for runs in plan.runs.values()]
        print_table(("run", "seeds complete", "folder"), rows, plan.experiment.title)
        click.echo()
    missing = [run for run in every if run.record is None]
    for source in dict.fromkeys(run.source for run in missing):
        if not source.at_hand():
            click.echo(f"{source.name} is not at hand: it would be downloaded, or left out where it cannot be had")
    about = _time_for(missing, complete)
    words = f", in about {about} one after another" if about else ""
    click.echo(f"{len(complete)} of {len(every)} runs complete; {len(missing)} would be made{words}")


def _time_for(missing: Sequence["PlannedRun"], complete: Sequence["PlannedRun"], jobs: int = 1) -> str:
    """Returns the time that missing runs may take; nothing where there are none or it cannot be told."""
    from jobi_tf.experiments.reproduce.plan import estimate
    from jobi_tf.training.bars import duration

    seconds = estimate(missing, complete) if missing else None
    return "" if seconds is None else duration(seconds / min(jobs, len(missing)))


def _state(runs: Sequence["PlannedRun"]) -> str:
    done = f"{sum(run.record is not None for run in runs)} of {len(runs)}"
    begun = [run for run in runs if run.record is None and run.epochs_done]
    return ", ".join([done, *(f"seed {run.config.seed} at epoch {run.epochs_done}" for run in begun)])


class _Display:
    """Tells on stderr how runs go on: a line where one begins, is ranked and ends; on a terminal every epoch too."""

    def __init__(self) -> None:
        from jobi_tf.training.bars import stderr_console

        self._console = stderr_console()
        self._status = self._console.status("") if self._console.is_terminal else None
        self._jobs = 1
        self._missing: list[PlannedRun] = []
        self._complete: list[PlannedRun] = []
        self._places: dict[Path, str] = {}
        self._begun: dict[str, tuple[int, float]] = {}
        self._epochs: dict[str, str] = {}

    def begin(self, name: str, missing: Sequence["PlannedRun"], complete: Sequence["PlannedRun"], jobs: int) -> None:
        """Begins an experiment: what is missing is made, `jobs` at once; what is complete tells how long it takes."""
        self._missing, self._complete, self._jobs = list(missing), list(complete), jobs
        self._places = {run.path: f"{name} [{i}/{len(missing)}]" for i, run in enumerate(missing, 1)}
        if missing:
            self.say(f"{name}: {self._left()}")

    def say(self, sentence: str) -> None:
        """Prints a line."""
        self._console.print(sentence, soft_wrap=True)

    def tell(self, event: "Event") -> None:
        """Shows an event of a run."""
        label = f"{self._places[event.run.path]} {_name(event.run)}"
        if event.kind == "begun":
            done = event.content["epoch"]
            self.say(f"{label}" + (f": goes on after epoch {done}" if done else ""))
            self._begun[label] = done, time.monotonic()
            self._epochs[label] = "begins"
        elif event.kind == "epoch":
            self._epochs[label] = self._epoch(label, event)
            if event.content["value"] is not None and self._status is None:
                self.say(f"{label}: {self._epochs[label]}")
        else:
            self._epochs.pop(label, None)
            self._missing.remove(event.run)
            self.say(f"{label}: {self._result(event)}; {self._left()}")
        if self._status:
            from rich.text import Text

            self._status.update(Text("\n".join(f"{name}: {epoch}" for name, epoch in self._epochs.items())))
            self._status.start()

    def close(self) -> None:
        """Takes the moving part off the terminal."""
        if self._status:
            self._status.stop()

    def _epoch(self, label: str, event: "Event") -> str:
        """Returns what to tell of an epoch, with the time left if the run is not ended early."""
        from jobi_tf.training.bars import duration

        epoch, epochs, value = (event.content[name] for name in ("epoch", "epochs", "value"))
        before, begun = self._begun[label]
        ranked = "" if value is None else f", validation {METRICS[event.run.config.monitor]} {value:.4f}"
        seconds = (time.monotonic() - begun) / (epoch - before) * (epochs - epoch)
        return f"epoch {epoch}/{epochs}{ranked}" + (f", left ≤ {duration(seconds)}" if seconds else "")

    def _result(self, event: "Event") -> str:
        """Returns what came of a run that ended; from a complete one the time of others is told."""
        from jobi_tf.training.bars import duration

        if event.kind == "failed":
            return f"failed: {event.content['reason']}"
        run = event.run.refreshed()
        try:
            record = run.record
        except JobiError as error:
            return str(error)
        assert record is not None
        self._complete.append(run)
        metrics = f"test MRR {record.metric('mrr'):.4f}, Hits@10 {record.metric('hits@10'):.4f}"
        return f"{metrics}; {duration(record.seconds)}"

    def _left(self) -> str:
        """Returns how many runs are left, and for how long if that can be told."""
        about = _time_for(self._missing, self._complete, self._jobs)
        return f"{len(self._missing)} left" + (f", about {about}" if about else "")


def _name(run: "PlannedRun") -> str:
    return f"{run.label}, seed {run.config.seed}"
