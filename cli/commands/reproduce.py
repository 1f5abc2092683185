"""`jobi-tf reproduce`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup
from cloup.constraints import mutually_exclusive

from jobi_tf.console import JobDisplay, duration, print_table
from jobi_tf.errors import UsageError
from jobi_tf.evaluation.metrics import METRICS

from ..options import COUNT, OUT_FOLDER, Command, jobs_option, out_option

if TYPE_CHECKING:
    from jobi_tf.jobs import Epoch
    from jobi_tf.reproduce.runs import Plan, PlannedRun, Source

ALL = "all"


@cloup.command(cls=Command)
@cloup.argument("names", nargs=-1, metavar="EXPERIMENT…", help="Names of experiments, all, or YAML files.")
@cloup.option("--dataset", "datasets", multiple=True, metavar="NAME|PATH|NAME=PATH", help="Data set; may be repeated.")
@cloup.option("--row", "rows", multiple=True, metavar="NAME", help="Only this row and those it needs; may be repeated.")
@cloup.option("--seeds", type=COUNT, help="Seeds 0 to N - 1  [default: the experiment's]")
@cloup.option("--quick", is_flag=True, help="Train small models briefly with one seed, to test the setup.")
@jobs_option
@cloup.option("--runs", type=OUT_FOLDER, metavar="DIR", default="runs/reproduce", help="Folder of the runs.")
@out_option("Folder of the tables.", default="results")
@cloup.option("--dry-run", is_flag=True, help="Print which runs are complete and which are missing.")
@cloup.option("--tables-only", is_flag=True, help="Write tables from complete runs without training.")
@cloup.option("--list", "list_", is_flag=True, help="List the built-in experiments and exit.")
@cloup.constraint(mutually_exclusive, ["dry_run", "tables_only"])
def reproduce(
    names: tuple[str, ...],
    datasets: tuple[str, ...],
    rows: tuple[str, ...],
    seeds: int | None,
    quick: bool,
    jobs: int,
    runs: Path,
    out: Path,
    dry_run: bool,
    tables_only: bool,
    list_: bool,
) -> None:
    """Run experiments of the paper and others, and write tables of our results beside the paper's.

    EXPERIMENT is a name from --list, all, or a YAML file. Missing runs are trained, interrupted runs are resumed, and
    complete runs are reused. Writes NAME.md, NAME.csv and NAME.png.
    """
    from jobi_tf.reproduce.experiment import Experiment

    if list_:
        experiments = [Experiment.read(name) for name in Experiment.built_in()]
        columns = ("experiment", "shows", "data sets")
        print_table(columns, [(x.name, x.title, ", ".join(x.datasets)) for x in experiments], text=columns)
        return
    if not names:
        raise UsageError("expected the name of an experiment, or a YAML file (see `jobi-tf reproduce --list`)")
    if jobs > 1 and (dry_run or tables_only):
        raise UsageError("--jobs has no effect with --dry-run and --tables-only, which train nothing; remove it")
    from jobi_tf.reproduce.runs import Source, make_plan

    every = [other for name in names for other in (Experiment.built_in() if name == ALL else [name])]
    experiments = [Experiment.read(name) for name in every]
    if rows:  # of several experiments, those that have these rows
        having = [x for x in experiments if {*rows} <= {row.name for row in x.rows}]
        experiments = [x.only(rows) for x in having or experiments]
    _check_distinct([experiment.name for experiment in experiments], "experiments")
    known = {name for experiment in experiments for name in experiment.datasets}
    sources = [Source.parse(text, known) for text in datasets]
    _check_distinct([source.name for source in sources], "data sets (NAME=PATH)")
    plans = []
    for experiment in experiments:
        chosen = [Source(name, name) for name in experiment.datasets]
        if sources:  # with `all`, those that only other experiments are about are left out
            elsewhere = known - {*experiment.datasets} if ALL in names else ()
            chosen = [source for source in sources if source.name not in elsewhere]
        plan = make_plan(experiment, chosen, runs, seeds, quick)
        if plan.runs:
            plans.append(plan)
        elif ALL not in names:
            click.echo(f"{plan.name} has no row to run on {', '.join(x.name for x in chosen)}", err=True)
    if not plans:
        sys.exit(1)
    for plan in plans:
        _ = plan.complete  # whose errors come before anything is trained
    if dry_run:
        _print_dry_run(plans)
        return
    session = _Session(jobs, out)
    click.get_current_context().find_root().obj = lambda: "Interrupted. The same command continues from here."
    with session.display:
        for plan in plans:
            if not tables_only:
                session.train(plan)
            session.write(plan)
    for run, reason in session.failed.items():
        click.echo(f"failed: {_name(run)}: {reason}", err=True)
    if session.failed or not session.written:
        sys.exit(1)


def _check_distinct(names: list[str], kind: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"expected {kind} with different names, got two called {name!r}")


def _print_dry_run(plans: list["Plan"]) -> None:
    """Prints what is complete and what is missing."""
    for plan in plans:
        groups: dict[tuple[str, str], list[PlannedRun]] = {}
        for run in plan.runs:
            groups.setdefault((run.label, str(run.path.parent)), []).append(run)
        rows = [(label, _state(runs), folder) for (label, folder), runs in groups.items()]
        columns = ("run", "seeds complete", "folder")
        print_table(columns, rows, plan.experiment.title, text=(columns[0], columns[2]))
        click.echo()
    every = {run.path: run for plan in plans for run in plan.runs}.values()
    missing = [run for run in every if run.record is None]
    about = _time_for(missing, [run for run in every if run.record is not None])
    words = about and f", made one after another{about.removeprefix(',')}"
    click.echo(f"{len(every) - len(missing)} of {len(every)} runs complete; {len(missing)} are missing{words}")


def _state(runs: Sequence["PlannedRun"]) -> str:
    done = f"{sum(run.record is not None for run in runs)} of {len(runs)}"
    begun = [run for run in runs if run.record is None and run.epochs_done]
    return ", ".join([done, *(f"seed {run.config.seed} at epoch {run.epochs_done}" for run in begun)])


def _time_for(missing: Sequence["PlannedRun"], complete: Sequence["PlannedRun"], jobs: int = 1) -> str:
    """Returns the time that missing runs may take; empty if it cannot be estimated."""
    from jobi_tf.reproduce.runs import estimate

    seconds = estimate(missing, complete) if missing else None
    return "" if seconds is None else f", in about {duration(seconds / min(jobs, len(missing)))}"


class _Session:
    """Trains and writes experiments; prints where a run begins, is ranked and ends, and on a terminal every epoch."""

    def __init__(self, jobs: int, out: Path):
        from jobi_tf.reproduce.writing import write  # fails before anything is trained if pandas is missing

        self.jobs, self.out, self.display, self._write = jobs, out, JobDisplay(), write
        self.failed: dict[PlannedRun, str] = {}
        self.written = False
        self._absent: dict[Source, str | None] = {}  # why a data set is not available

    def train(self, plan: "Plan") -> None:
        """Trains what is missing; data sets that are not available are left out."""
        from jobi_tf.reproduce.runs import train_runs

        failed = {run.path for run in self.failed}
        runs = [run for run in plan.distinct if run.record is None and run.path not in failed]
        for source in {run.source: None for run in runs if run.source not in self._absent}:
            self._absent[source] = reason = source.obtain()
            if reason is not None:
                self.display.print(f"{source.name} is left out: {reason}")
        runs = [run for run in runs if self._absent[run.source] is None]
        if not runs:
            return
        missing = [*runs]

        def left() -> str:
            return f"{len(missing)} left{_time_for(missing, plan.complete, self.jobs)}"

        def update(run: "PlannedRun", event: "Epoch | str | None") -> None:
            label = f"{plan.experiment.name} [{runs.index(run) + 1}/{len(runs)}] {_name(run)}"
            state: str | None = "starting"
            if event is None and run.epochs_done:
                self.display.print(f"{label}: continues after epoch {run.epochs_done}")
            elif isinstance(event, str):
                state = None
                missing.remove(run)
                self.display.print(f"{label}: {f'failed: {event}' if event else _result(run)}; {left()}")
            elif event is not None:
                state = _epoch(event, run.config.monitor)
                if f"val_{run.config.monitor}" in event.logs and not self.display.console.is_terminal:
                    self.display.print(f"{label}: {state}")
            self.display.update(label, state)

        self.display.print(f"{plan.experiment.name}: {left()}")
        self.failed |= train_runs(runs, self.jobs, update)

    def write(self, plan: "Plan") -> None:
        """Writes and prints the tables, if a run is complete."""
        if not plan.complete:
            click.echo(f"{plan.experiment.name}: no run is complete, so there is no table", err=True)
            return
        absent = {x.name: reason for x in plan.sources if (reason := self._absent.get(x)) is not None}
        shown = plan.without(absent.keys() - {run.source.name for run in plan.complete})
        tables, files = self._write(shown, self.out, absent, ["jobi-tf", *sys.argv[1:]])
        if len(files) < 3:
            click.echo(f"{plan.name}.png is left out: it needs matplotlib: pip install 'jobi-tf[reproduce]'", err=True)
        for table in tables:
            print_table(table.columns, table.rows, table.title)
            click.echo()
        done = f"{len(shown.complete)} of {len(shown.distinct)} runs complete"
        click.echo(f"{done}; written: {', '.join(map(str, files))}")
        self.written = True


def _epoch(event: "Epoch", monitor: str) -> str:
    """Returns an epoch, with the time left if the run does not stop early."""
    value = event.logs.get(f"val_{monitor}")
    ranked = "" if value is None else f", validation {METRICS[monitor]} {value:.4f}"
    epochs = event.epochs - event.epoch
    left = f", left ≤ {duration(epochs * event.logs['seconds'])}" if epochs else ""
    return f"epoch {event.epoch}/{event.epochs}{ranked}{left}"


def _result(run: "PlannedRun") -> str:
    """Returns the results of a complete run."""
    assert run.record is not None
    metrics = f"test MRR {run.record.value('mrr'):.4f}, Hits@10 {run.record.value('hits@10'):.4f}"
    return f"{metrics}; {duration(run.record.seconds)}"


def _name(run: "PlannedRun") -> str:
    return f"{run.label}, seed {run.config.seed}"
