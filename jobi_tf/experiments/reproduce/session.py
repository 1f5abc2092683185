"""Experiments, one after another: what is missing is run, then the tables are written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from jobi_tf.experiments.reproduce.experiment import Experiment
from jobi_tf.experiments.reproduce.plan import Plan, PlannedRun, Source, make_plan
from jobi_tf.experiments.reproduce.processes import Event, carry_out
from jobi_tf.experiments.reproduce.sheets import Sheet, sheets
from jobi_tf.experiments.reproduce.writing import write

QUICK = "-quick"


@dataclass(frozen=True)
class Outcome:
    """What came of an experiment: its runs as they are now, its files, its tables."""

    plan: Plan
    files: list[Path]
    sheets: list[Sheet]


@dataclass
class Session:
    """One call of `jobi-tf reproduce`.

    Args:
        runs: folder of the runs; a quick session has one beside it.
        out: folder of the tables.
        seeds: number of seeds instead of the experiments'.
        quick: small models, trained shortly, one seed.
        jobs: runs at once.
        command: the command line, for the record.
        tell: called with every event of a run.
        say: called with every sentence for the user.
    """

    runs: Path
    out: Path
    seeds: int | None = None
    quick: bool = False
    jobs: int = 1
    command: Sequence[str] = ()
    tell: Callable[[Event], None] = lambda event: None
    say: Callable[[str], None] = lambda sentence: None
    absent: dict[Source, str] = field(default_factory=dict)
    failed: dict[PlannedRun, str] = field(default_factory=dict)
    _obtained: set[Source] = field(default_factory=set)

    def plan(self, experiment: Experiment, sources: Sequence[Source]) -> Plan:
        """Returns the runs of an experiment on data sets; trains nothing."""
        folder = self.runs.with_name(self.runs.name + QUICK) if self.quick else self.runs
        seeds = self.seeds or (1 if self.quick else experiment.seeds)
        return make_plan(experiment, sources, folder, seeds, self.quick)

    def missing(self, plan: Plan) -> list[PlannedRun]:
        """Returns what is missing of a plan, but for what failed before; its data sets are prepared, or left out."""
        missing = [run for run in plan.all_runs if run.record is None and not self._has_failed(run)]
        for source in dict.fromkeys(run.source for run in missing):
            self._obtain(source)
        return [run for run in missing if run.source not in self.absent]

    def run(self, runs: Sequence[PlannedRun]) -> None:
        """Trains and ranks."""
        self.failed |= carry_out(runs, self.jobs, self.tell)

    def write(self, plan: Plan) -> Outcome | None:
        """Writes the tables of an experiment from the runs that are complete; None if none is."""
        plan = plan.refreshed()
        with_runs = {run.source for run in plan.all_runs if run.record is not None}
        if not with_runs:
            return None
        absent = {source.name: self.absent[source] for source in plan.sources if source in self.absent}
        # Of a data set that cannot be had there is nothing to show.
        sources = tuple(x for x in plan.sources if x in with_runs or x not in self.absent)
        runs = {place: runs for place, runs in plan.runs.items() if place[1] in [x.name for x in sources]}
        plan = replace(plan, sources=sources, runs=runs)
        name = plan.experiment.name + (QUICK if self.quick else "")
        files = write(plan, self.out, name, absent, self.command)
        if len(files) < 3:
            self.say(f"{name}.png is left out: it needs matplotlib: pip install 'jobi-tf[plot]'")
        return Outcome(plan, files, sheets(plan))

    def _has_failed(self, run: PlannedRun) -> bool:
        return any(run.path == other.path for other in self.failed)

    def _obtain(self, source: Source) -> None:
        """Prepares a data set, and says once if it cannot be had."""
        if source in self.absent or source in self._obtained:
            return
        reason = source.obtain()
        if reason is None:
            self._obtained.add(source)
        else:
            self.absent[source] = reason
            self.say(f"{source.name} is left out: {reason}")
