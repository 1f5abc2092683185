"""Experiments, one after another: missing runs are trained, then the tables are written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobi_tf.reproduce.experiment import Experiment
from jobi_tf.reproduce.runs import OnEvent, Plan, PlannedRun, Source, make_plan, train_runs
from jobi_tf.reproduce.tables import Table
from jobi_tf.reproduce.writing import write

QUICK = "-quick"


@dataclass
class Session:
    """One call of `jobi-tf reproduce`.

    Args:
        runs: folder of the runs; a quick session has one beside it.
        out: folder of the tables.
        seeds: number of seeds instead of the experiments'.
        quick: small models, trained shortly, one seed.
        jobs: number of runs at a time.
        command: the command line, for the record.
        on_event: see `train_runs`.
        log: called with every line for the user.
    """

    runs: Path
    out: Path
    seeds: int | None = None
    quick: bool = False
    jobs: int = 1
    command: Sequence[str] = ()
    on_event: OnEvent = lambda run, event: None
    log: Callable[[str], None] = lambda line: None
    failed: dict[PlannedRun, str] = field(default_factory=dict)
    _absent: dict[Source, str | None] = field(default_factory=dict)

    def plan(self, experiment: Experiment, sources: Sequence[Source]) -> Plan:
        """Returns the runs of an experiment on data sets; trains nothing."""
        folder = self.runs.with_name(self.runs.name + QUICK) if self.quick else self.runs
        seeds = self.seeds or (1 if self.quick else experiment.seeds)
        return make_plan(experiment, sources, folder, seeds, self.quick)

    def missing(self, plan: Plan) -> list[PlannedRun]:
        """Returns the runs to train; their data sets are prepared, and those that are not available left out."""
        failed = {run.path for run in self.failed}
        runs = [run for run in plan.all_runs if run.record is None and run.path not in failed]
        return [run for run in runs if self._is_available(run.source)]

    def train(self, runs: Sequence[PlannedRun]) -> None:
        """Trains and ranks."""
        self.failed |= train_runs(runs, self.jobs, self.on_event)

    def write(self, plan: Plan) -> tuple[Plan, list[Table], list[Path]] | None:
        """Writes the tables of an experiment from the runs that are complete.

        Returns:
            The part of the plan that the tables show, the tables and the files; None if no run is complete.
        """
        with_runs = {run.source for run in plan.all_runs if run.record is not None}
        if not with_runs:
            return None
        absent = {x.name: reason for x in plan.sources if (reason := self._absent.get(x)) is not None}
        name = plan.experiment.name + (QUICK if self.quick else "")
        shown = plan.on([x for x in plan.sources if x in with_runs or x.name not in absent])
        tables, files = write(shown, self.out, name, absent, self.command)
        if len(files) < 3:
            self.log(f"{name}.png is left out: it needs matplotlib: pip install 'jobi-tf[reproduce]'")
        return shown, tables, files

    def _is_available(self, source: Source) -> bool:
        if source not in self._absent:
            self._absent[source] = source.obtain()
            if self._absent[source] is not None:
                self.log(f"{source.name} is left out: {self._absent[source]}")
        return self._absent[source] is None
