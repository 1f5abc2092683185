"""`jobi-tf train`."""

import os
import shlex
import shutil
import signal
import sys
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import cloup

from jobi_tf.console import counts
from jobi_tf.errors import UsageError
from jobi_tf.evaluation.metrics import BETTER_IF_HIGHER, METRICS
from jobi_tf.launch import LAUNCHED
from jobi_tf.training.config import AUTO, TrainConfig, read_settings

from ..main import INTERRUPTED, SIGNALS
from ..options import (
    FILE,
    FOLDER,
    GROUPS,
    Command,
    add_dataset,
    evaluation_of,
    given,
    parse_assignments,
    settings_options,
)
from ..start import start_tensorflow

if TYPE_CHECKING:
    from jobi_tf.training.estimate import Memory
    from jobi_tf.training.progress import Progress
    from jobi_tf.training.recording import Training

_RUN = GROUPS["Run"]
SMALLEST_SHARE = 0.005  # GB, of the memory that is shown by part


@cloup.command(cls=Command)
@settings_options()
@_RUN.option("--resume", type=FOLDER, metavar="RUN", help="Resume the run in this folder from its last checkpoint.")
@_RUN.option("--config", "config_file", type=FILE, help="YAML file of settings.")
@_RUN.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A setting; may be repeated.")
@_RUN.option("--quiet", "-q", is_flag=True, help="Print the result only.")
@cloup.argument("argument", metavar="[NAME|PATH]", required=False)
@click.pass_context
def train(
    context: click.Context,
    config_file: Path | None,
    assignments: tuple[str, ...],
    resume: Path | None,
    quiet: bool,
    argument: str | None,
    **options: Any,
) -> None:
    """Train a model on a data set, or resume a run.

    \b
      jobi-tf train --dataset fb15k-237 --joint --p 0.3
      jobi-tf train --dataset facts.tsv --split 0.8/0.1/0.1 --run-dir runs/facts

    Options take precedence over --set, --set over --config, --config over the recipe, and the recipe over the defaults.
    The keys of --set and of the YAML file are the names of the options, with _ for -. The run folder contains all
    settings in config.yaml.
    """
    chosen = given(context)
    add_dataset(chosen, argument)
    settings = _settings(config_file, assignments, chosen)
    if resume is None and settings.get("dataset") is None:
        raise UsageError("expected --dataset with a name (see `jobi-tf data list`), a folder or a file")
    if resume is not None and settings.pop("run_dir", None) is not None:
        raise UsageError("--resume writes to the folder of its run: remove --run-dir")
    start_tensorflow()
    import jobi_tf

    display = _Display(quiet)
    context.find_root().obj = display.interruption
    try:
        if resume is not None:
            jobi_tf.resume(resume, callbacks=display.begin, **settings)
        elif settings.get("recipe") == AUTO:
            from jobi_tf.training.auto import train_auto

            train_auto(TrainConfig.create(settings), callbacks=display.begin, say=display.print)
        else:
            jobi_tf.train(config=TrainConfig.create(settings), callbacks=display.begin)
    except OSError as error:
        if error.filename is None:  # as for a full disk
            error.filename = display.training.folder.path if display.training else settings.get("run_dir")
        raise
    finally:
        if display.progress:
            display.progress.bar.close()
    display.print_result()


def _settings(file: Path | None, assignments: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings that were given, each source checked by itself so that an error can name it."""
    sources = [(str(file), read_settings(file))] if file else []
    settings: dict[str, Any] = {}
    for where, source in [*sources, ("--set", parse_assignments(assignments)), ("options", options)]:
        TrainConfig.create({"dataset": "any"} | source, where)
        settings |= source
    return settings


class _Display:
    """Prints what is trained, its progress and how it ended."""

    def __init__(self, quiet: bool):
        self.quiet = quiet
        self.training: Training | None = None
        self.is_chief = True  # of several workers, one prints
        self.progress: Progress | None = None

    def print(self, line: str = "") -> None:
        """Prints a line on stderr."""
        if not self.quiet:
            click.echo(line, err=True)

    def begin(self, training: "Training") -> list["Progress"]:
        """Prints what is about to be trained, and returns the progress display."""
        from jobi_tf.training.progress import Progress
        from jobi_tf.workers import is_chief

        self.training, self.is_chief = training, is_chief(training.strategy)
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.end)
        if self.quiet or not self.is_chief:
            return []
        for name, text in _describe(training):
            self.print(_wrapped(f"{name:<9} {text}", indent=10))
        self.print()
        self.progress = Progress(training)
        return [self.progress]

    def end(self, number: int, frame: object) -> NoReturn:
        """Ends the process after a signal; what it has written is complete.

        TensorFlow's C++ code calls Python, and some of it crashes if an exception, as of Ctrl-C, comes from there.
        """
        try:
            with suppress(RuntimeError):  # the signal came while this thread wrote to the terminal
                if self.progress:
                    self.progress.bar.close()
            os.write(2, f"{self.interruption()}\n".encode(errors="backslashreplace"))
        finally:  # also if the terminal has been closed
            os._exit(INTERRUPTED)

    def interruption(self) -> str:
        """Returns how to resume."""
        from jobi_tf.workers import has_servers, has_workers

        if self.training is None:
            return "Interrupted before training began."
        folder = self.training.folder
        if not folder.checkpoints():
            return f"Interrupted before the first checkpoint: nothing can be resumed, so delete {folder.path}."
        state = folder.read_state(folder.checkpoints()[-1])
        kept = f"epoch {state['epoch']}" + (f" and {state['step']:,} steps" if state["step"] else "")
        launched = os.environ.get(LAUNCHED, "")
        several = has_servers(self.training.strategy) or has_workers(self.training.strategy)
        how = "Resume by starting all processes again with" if several and not launched else "Resume with"
        command = " ".join(["jobi-tf", *launched.split(), "train --resume", shlex.quote(str(folder.path))])
        return f"Interrupted; {kept} saved. {how}:\n  {command}"

    def print_result(self) -> None:
        """Prints the best epoch on stdout, and the commands that may follow on stderr."""
        training = self.training
        if training is None or not self.is_chief:
            return
        folder, config, kept = training.folder, training.config, training.best
        rows = {row["epoch"]: row for row in folder.read_metrics()}
        last, monitor = max(rows), METRICS[config.monitor]
        rankings = f"{kept.waited} ranking{'s' * (kept.waited > 1)}"
        if kept.finished:
            reason = f": {monitor} did not improve in {rankings}"
            if training.done == last < config.epochs:
                reason += "; to train further, raise --patience too"
        elif last == config.epochs:
            reason = ", the last one"
        else:
            reason = ": the time was over" if config.recipe == AUTO else ": a callback stopped it"
        self.print(f"\ntraining {'had ended' if training.done == last else 'ended'} after epoch {last}{reason}")
        if best := rows.get(kept.best_epoch):
            values = "  ".join(f"{METRICS[name]} {best[f'val_{name}']:.4f}" for name in BETTER_IF_HIGHER)
            click.echo(f"best epoch {kept.best_epoch} of {last}, by {monitor} on the validation split:\n  {values}")
        else:
            click.echo(f"epoch {last} is kept: no epoch was ranked on the validation split")
        click.echo(f"run folder {folder.path}")
        logs = f"\n      jobi-tf tensorboard {shlex.quote(str(folder.path))}" if folder.logs.is_dir() else ""
        self.print(f"next: {evaluation_of(training.graph, folder.path)}{logs}")


def _wrapped(line: str, indent: int) -> str:
    """Returns a line as several where a terminal is too narrow."""
    if not sys.stderr.isatty():
        return line
    return click.wrap_text(line, shutil.get_terminal_size().columns, subsequent_indent=" " * indent)


def _describe(training: "Training") -> list[tuple[str, str]]:
    """Returns what is trained, on what, how and where, each with its name."""
    from jobi_tf.data.shards import Shards

    config, graph, model = training.config, training.graph, training.model
    heads = "triple and pair head" if config.joint else "triple head"
    width, parameters = model.entities.table.shape[1], model.count_params()
    entities = graph.num_entities * width
    others = "networks and relations" if model.heads[0].net else "relations"
    ranked = f"ranked every {config.eval_every}, patience {config.patience}" if config.eval_every else "never ranked"
    mean = f"; mean of the last {config.average_epochs}" if training.average else ""
    done = f"; {training.done} done" if training.done else ""
    schedule = "" if config.schedule == "constant" else f", {config.schedule} schedule"
    schedule += f", warm-up {config.warmup_epochs}" if config.warmup_epochs else ""
    shards = f", train in {len(graph.train.files):,} shards" if isinstance(graph.train, Shards) else ""
    return [
        ("data", f"{graph.name}: {graph.num_entities:,} entities, {graph.num_relations:,} relations"),
        ("", f"{counts({split: len(part) for split, part in graph.splits.items()})} triples{shards}"),
        ("model", f"{config.model}, {heads}; d = {config.dim:,}, {width:,} real numbers per entity"),
        ("", f"{parameters:,} parameters: entities {entities:,}, {others} {parameters - entities:,}"),
        *(("vectors", f"{n:,} of {graph.num_entities:,} entities from {x}") for x, n in training.copied.items()),
        ("training", f"batches of {config.batch_size:,}; {_negatives(config)}"),
        ("", f"learning rate {config.learning_rate:g}{schedule}, seed {config.seed}"),
        ("epochs", f"at most {config.epochs}, of {training.steps:,} steps; {ranked}{mean}{done}"),
        ("devices", _devices(training)),
        ("memory", _memory(training.memory)),
        ("run", str(training.folder.path)),
    ]


def _devices(training: "Training") -> str:
    from jobi_tf.training.devices import Cluster
    from jobi_tf.workers import has_servers

    strategy, table = training.strategy, training.model.entities.table.value
    if has_servers(strategy) and (cluster := Cluster.of_environment()):
        jobs = cluster.cluster
        sizes = [(len(jobs.worker), "worker"), (len(jobs.ps), "parameter server")]
        workers, servers = (f"{n} {name}{'s' * (n > 1)}" for n, name in sizes)
        return f"{workers}, with a batch each; {servers}"
    devices = [copy.device.rpartition("device:")[2] for copy in strategy.experimental_local_results(table)]
    replicas = strategy.num_replicas_in_sync
    workers = f" in each of {replicas // len(devices)} workers" if replicas > len(devices) else ""
    share = f", {(training.config.batch_size or 0) // replicas:,} of a batch on each" if replicas > 1 else ""
    return f"{', '.join(devices)}{workers}{share}"


def _memory(memory: "Memory") -> str:
    sizes = {"TensorFlow" if x.name == "runtime" else x.name: getattr(memory, x.name) / 2**30 for x in fields(memory)}
    shares = ", ".join(f"{part} {size:.2f}" for part, size in sizes.items() if size >= SMALLEST_SHARE)
    return f"about {memory.total / 2**30:.1f} GB: {shares}"


def _negatives(config: TrainConfig) -> str:
    parts = ["queries, each with all entities", f"soft labels {config.soft_labels}" if config.soft_labels else ""]
    if not config.full_softmax:
        parts = [
            f"{config.negatives} negatives per triple",
            "known ones left out" if config.filter_negatives else "",
            "half of them for each side" if config.by_side else "",
            f"shared by {config.chunk} triples" if config.shared else "",
            f"p {config.p:g}",
        ]
    return ", ".join(filter(None, [*parts, f"alpha {config.alpha:g}" if config.joint else ""]))
