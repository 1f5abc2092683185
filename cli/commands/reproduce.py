"""`jobi-tf reproduce`."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Column

from jobi_tf.console import JobDisplay, duration, print_table
from jobi_tf.errors import JobiError, UsageError
from jobi_tf.evaluation.metrics import METRICS

from ..main import INTERRUPTED, ended_as_interrupted
from ..options import Command

if TYPE_CHECKING:
    from jobi_tf.jobs import Epoch
    from jobi_tf.reproduce.experiment import Experiment
    from jobi_tf.reproduce.runs import Plan, PlannedRun, Source
    from jobi_tf.reproduce.session import Session

ALL = "all"


@click.command(cls=Command)
@click.argument("names", nargs=-1, metavar="EXPERIMENT…")
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
@click.option("--dry-run", is_flag=True, help="Print which runs are complete and which would be trained.")
@click.option("--tables-only", is_flag=True, help="Train nothing; write tables from the runs that are complete.")
@click.option("--list", "list_", is_flag=True, help="List the experiments that come with the library and do nothing.")
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
    list_: bool,
) -> None:
    """Run experiments of the paper and others, and write their tables, the paper's figures beside ours.

    EXPERIMENT is one of those that --list shows, all, or a YAML file. Complete runs are only read, interrupted ones
    continued, missing ones trained. Writes NAME.md, NAME.csv and NAME.png.
    """
    if list_:
        _list_experiments()
        return
    if not names:
        raise UsageError("expected the name of an experiment, or a YAML file (see `jobi-tf reproduce --list`)")
    if dry_run and tables_only:
        raise UsageError("--dry-run writes nothing, --tables-only writes tables: expected one of them")
    if jobs > 1 and (dry_run or tables_only):
        raise UsageError("--jobs is for training, which --dry-run and --tables-only leave out: expected one of them")
    from jobi_tf.reproduce.session import Session

    experiments = _experiments(names)
    sources = _sources(datasets, experiments)
    display = _Display()
    command = ["jobi-tf", *sys.argv[1:]]
    session = Session(runs, out, seeds, quick, jobs, command, display.update, display.print)
    plans = [session.plan(x, _chosen(x, experiments, sources, ALL in names)) for x in experiments]
    plans = [plan for plan in plans if plan.all_runs]
    for plan in plans:
        for run in plan.all_runs:
            _ = run.record  # whose error comes before anything is trained
    if dry_run:
        _foretell(plans)
        return
    try:
        with display.jobs, ended_as_interrupted():
            written = [_carry_out(session, plan, display, tables_only) for plan in plans]
    except KeyboardInterrupt:
        click.echo("Interrupted. The same command continues from here.", err=True)
        sys.exit(INTERRUPTED)
    for run, reason in session.failed.items():
        click.echo(f"failed: {_name(run)}: {reason}", err=True)
    if session.failed or not any(written):
        sys.exit(1)


def _experiments(names: tuple[str, ...]) -> list["Experiment"]:
    from jobi_tf.reproduce.experiment import built_in, read_experiment

    chosen = [other for name in names for other in (built_in() if name == ALL else [name])]
    experiments = [read_experiment(name) for name in dict.fromkeys(chosen)]
    for experiment in experiments:
        if sum(other.name == experiment.name for other in experiments) > 1:
            raise UsageError(f"expected experiments with different names, got two called {experiment.name!r}")
    return experiments


def _sources(datasets: tuple[str, ...], experiments: list["Experiment"]) -> list["Source"]:
    from jobi_tf.reproduce.runs import Source

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
    from jobi_tf.reproduce.runs import Source

    if not sources:
        return [Source(name, name) for name in experiment.datasets]
    elsewhere = {name for other in experiments for name in other.datasets if of_all} - set(experiment.datasets)
    return [source for source in sources if source.name not in elsewhere]


def _list_experiments() -> None:
    from jobi_tf.reproduce.experiment import built_in, read_experiment

    rows = [(name, read_experiment(name).title, ", ".join(read_experiment(name).datasets)) for name in built_in()]
    print_table([Column("experiment"), Column("shows"), Column("data sets")], rows)


def _carry_out(session: "Session", plan: "Plan", display: "_Display", tables_only: bool) -> bool:
    """Trains what is missing, writes and prints the tables; returns whether there was anything to write."""
    name = plan.experiment.name
    if not tables_only:
        missing = session.missing(plan)
        display.begin(name, missing, [run for run in plan.all_runs if run.record is not None], session.jobs)
        session.train(missing)
    display.jobs.close()
    written = session.write(plan)
    if written is None:
        click.echo(f"{name}: no run is complete, so there is no table", err=True)
        return False
    shown, tables, files = written
    for table in tables:
        print_table(table.columns, table.rows, table.title)
        click.echo()
    done = sum(run.record is not None for run in shown.all_runs)
    click.echo(f"{done} of {len(shown.all_runs)} runs complete; written: {', '.join(map(str, files))}")
    return True


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
        if not source.is_available_offline():
            click.echo(f"{source.name} would be downloaded, or left out if that fails")
    about = _time_for(missing, complete)
    words = f", in about {about} one after another" if about else ""
    click.echo(f"{len(complete)} of {len(every)} runs complete; {len(missing)} would be trained{words}")


def _time_for(missing: Sequence["PlannedRun"], complete: Sequence["PlannedRun"], jobs: int = 1) -> str:
    """Returns the time that missing runs may take; nothing where there are none or it cannot be told."""
    from jobi_tf.reproduce.runs import estimate

    seconds = estimate(missing, complete) if missing else None
    return "" if seconds is None else duration(seconds / min(jobs, len(missing)))


def _state(runs: Sequence["PlannedRun"]) -> str:
    done = f"{sum(run.record is not None for run in runs)} of {len(runs)}"
    begun = [run for run in runs if run.record is None and run.epochs_done]
    return ", ".join([done, *(f"seed {run.config.seed} at epoch {run.epochs_done}" for run in begun)])


class _Display:
    """Prints a line where a run begins, is ranked and ends; a terminal shows every epoch too."""

    def __init__(self) -> None:
        self.jobs = JobDisplay()
        self.print = self.jobs.print
        self._count = 1
        self._missing: list[PlannedRun] = []
        self._complete: list[PlannedRun] = []
        self._labels: dict[Path, str] = {}
        self._begun: dict[Path, tuple[int, float]] = {}

    def begin(self, name: str, missing: Sequence["PlannedRun"], complete: Sequence["PlannedRun"], jobs: int) -> None:
        """Begins an experiment: `missing` are trained, `jobs` at a time; `complete` show how long that takes."""
        self._missing, self._complete, self._count = list(missing), list(complete), jobs
        places = enumerate(missing, 1)
        self._labels = {run.path: f"{name} [{i}/{len(missing)}] {_name(run)}" for i, run in places}
        if missing:
            self.print(f"{name}: {self._left()}")

    def update(self, run: "PlannedRun", event: "Epoch | str | None") -> None:
        """Shows that a run has begun, finished an epoch, or ended with the reason of a failure or ""."""
        label = self._labels[run.path]
        if event is None:
            self._begun[run.path] = run.epochs_done, time.monotonic()
            if run.epochs_done:
                self.print(f"{label}: continues after epoch {run.epochs_done}")
            self.jobs.update(label, "starting")
        elif isinstance(event, tuple):
            value = event.logs.get(f"val_{run.config.monitor}")
            state = self._epoch(run, event, value)
            self.jobs.update(label, state)
            if value is not None and not self.jobs.console.is_terminal:
                self.print(f"{label}: {state}")
        else:
            self.jobs.update(label, None)
            self._missing.remove(run)
            result = f"failed: {event}" if event else self._result(run)
            self.print(f"{label}: {result}; {self._left()}")

    def _epoch(self, run: "PlannedRun", event: "Epoch", value: float | None) -> str:
        """Returns an epoch, with the time left if the run does not stop early."""
        before, begun = self._begun[run.path]
        ranked = "" if value is None else f", validation {METRICS[run.config.monitor]} {value:.4f}"
        seconds = (time.monotonic() - begun) / (event.epoch - before) * (event.epochs - event.epoch)
        return f"epoch {event.epoch}/{event.epochs}{ranked}" + (f", left ≤ {duration(seconds)}" if seconds else "")

    def _result(self, run: "PlannedRun") -> str:
        """Returns the results of a complete run, by whose time that of others is estimated."""
        try:
            record = run.record
        except JobiError as error:
            return str(error)
        assert record is not None
        self._complete.append(run)
        metrics = f"test MRR {record.metric('mrr'):.4f}, Hits@10 {record.metric('hits@10'):.4f}"
        return f"{metrics}; {duration(record.seconds)}"

    def _left(self) -> str:
        """Returns the number of runs that are left, with the estimated time."""
        about = _time_for(self._missing, self._complete, self._count)
        return f"{len(self._missing)} left" + (f", about {about}" if about else "")


def _name(run: "PlannedRun") -> str:
    return f"{run.label}, seed {run.config.seed}"
