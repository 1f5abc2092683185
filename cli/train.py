"""`jobi-tf train`."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobi_tf.errors import UsageError
from jobi_tf.evaluation.metrics import BETTER_IF_HIGHER, METRICS
from jobi_tf.training.config import TrainConfig, parse_assignment, read_settings

from .command import Command
from .main import INTERRUPTED
from .options import given, settings_options
from .signals import ended_as_interrupted
from .start import keep_memory, start_tensorflow

if TYPE_CHECKING:
    from jobi_tf.training.progress import Progress
    from jobi_tf.training.recording import Training


@click.command(cls=Command)
@settings_options
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="YAML file of settings.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A setting, as in the YAML file.")
@click.option("--resume", type=click.Path(path_type=Path), metavar="RUN", help="Go on with the run in this folder.")
@click.option("--quiet", "-q", is_flag=True, help="Print the result only.")
@click.pass_context
def train(
    context: click.Context,
    config_file: Path | None,
    assignments: tuple[str, ...],
    resume: Path | None,
    quiet: bool,
    **flags: Any,
) -> None:
    """Train a model, or go on with a run.

    A flag wins over --set, --set over --config, and that over the defaults. The keys of the YAML file and of --set are
    the names of the options with _ for -. A run keeps all of its settings in config.yaml.
    """
    settings = _settings(config_file, assignments, given(context))
    if resume is None and settings.get("dataset") is None:
        raise UsageError("expected a data set: --dataset with a name, a folder or a file (see `jobi-tf data list`)")
    if resume is not None and settings.pop("run_dir", None) is not None:
        raise UsageError("--resume writes to the folder of its run: leave out --run-dir")
    keep_memory()
    start_tensorflow()
    import jobi_tf

    watch = _Watch(quiet)
    try:
        with ended_as_interrupted():
            if resume is None:
                jobi_tf.train(config=TrainConfig.create(settings), callbacks=watch.begin)
            else:
                jobi_tf.resume(resume, callbacks=watch.begin, **settings)
    except OSError as error:
        if error.filename is None:  # a full disk is told without a name
            error.filename = watch.training.folder.path if watch.training else settings.get("run_dir")
        raise
    except KeyboardInterrupt:
        watch.close()
        watch.say_interrupted()
        sys.exit(INTERRUPTED)
    finally:
        watch.close()
    watch.say_result()


def _settings(file: Path | None, assignments: tuple[str, ...], flags: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings that were given, each source checked by itself so that an error can name it."""
    pairs = [parse_assignment(text) for text in assignments]
    for key, _ in pairs:
        if [other for other, _ in pairs].count(key) > 1:
            raise UsageError(f"expected --set {key}=… at most once")
    sources = {str(file): read_settings(file) if file else {}, "--set": dict(pairs), "options": flags}
    settings: dict[str, Any] = {}
    for where, source in sources.items():
        TrainConfig.create({"dataset": "any"} | source, where)
        settings |= source
    return settings


class _Watch:
    """Tells what happens to a training: its settings before, its progress, how it ended."""

    def __init__(self, quiet: bool):
        self.quiet = quiet
        self.training: Training | None = None
        self.progress: Progress | None = None

    def begin(self, training: "Training") -> list["Progress"]:
        """Prints what is about to be trained, and returns the display."""
        from jobi_tf.training.progress import Progress

        self.training = training
        if self.quiet:
            return []
        for name, text in _describe(training):
            click.echo(f"{name:<9} {text}", err=True)
        click.echo(err=True)
        self.progress = Progress(training)
        return [self.progress]

    def close(self) -> None:
        """Takes the display off the terminal."""
        if self.progress:
            self.progress.close()

    def say_interrupted(self) -> None:
        """Says how to go on."""
        if self.training is None:
            click.echo("Interrupted before training began.", err=True)
        elif checkpoints := self.training.folder.checkpoints():
            epoch = int(checkpoints[-1].name.removeprefix("epoch-"))
            click.echo(f"Interrupted; epoch {epoch} is kept. Go on with:", err=True)
            click.echo(f"  jobi-tf train --resume {_quoted(self.training.folder.path)}", err=True)
        else:
            folder = self.training.folder.path
            click.echo(f"Interrupted before the first epoch was finished: nothing to resume in {folder}.", err=True)

    def say_result(self) -> None:
        """Prints the best epoch on stdout, and then what to do next."""
        assert self.training is not None
        folder, best_epoch = self.training.folder, self.training.best.best_epoch
        rows = {row["epoch"]: row for row in folder.read_metrics()}
        if not self.quiet:
            click.echo(f"\n{self._ending(max(rows))}", err=True)
        if best := rows.get(best_epoch):
            values = "  ".join(f"{METRICS[name]} {best[f'val_{name}']:.4f}" for name in BETTER_IF_HIGHER)
            by = METRICS[self.training.config.monitor]
            click.echo(f"best epoch {best['epoch']} of {max(rows)}, by {by} on the validation split:\n  {values}")
        else:
            click.echo(f"epoch {max(rows)} is kept: no epoch was ranked on the validation split")
        click.echo(f"run folder {folder.path}")
        if not self.quiet:
            path = _quoted(folder.path)
            click.echo(f"next: jobi-tf evaluate {path}\n      tensorboard --logdir {path}/logs", err=True)

    def _ending(self, last: int) -> str:
        """Returns why training ended after the epoch `last`."""
        assert self.training is not None
        config, waited = self.training.config, self.training.best.waited
        when = "had ended" if self.training.done == last else "ended"
        if config.eval_every and waited >= config.patience:
            metric = METRICS[config.monitor]
            return f"training {when} after epoch {last}: {metric} got no better in {waited} rankings"
        return f"training {when} after epoch {last}, the last one"


def _describe(training: "Training") -> list[tuple[str, str]]:
    """Returns what is trained, on what, how and where, each with its name."""
    config, graph, model = training.config, training.graph, training.model
    triples = ", ".join(f"{len(part):,} {split}" for split, part in graph.splits.items())
    heads = "triple and pair head" if config.joint else "triple head"
    width, parameters = model.entities.table.shape[1], model.count_params()
    entities = graph.num_entities * width
    others = "networks and relations" if model.heads[0].net else "relations"
    negatives = f"{config.negatives} negatives a triple" + (", known ones left out" if config.filter_negatives else "")
    negatives += ", half of them for each side" if config.by_side else ""
    negatives += f", shared by {config.chunk} triples" if config.shared else ""
    negatives += f", p {config.p:g}"
    if config.loss == "full-softmax":
        negatives = "queries, each with all entities"
    pair = f", alpha {config.alpha:g}" if config.joint else ""
    ranked = f"ranked every {config.eval_every}, patience {config.patience}" if config.eval_every else "never ranked"
    tables = training.strategy.experimental_local_results(model.entities.table.value)
    devices = [table.device.rpartition("device:")[2] for table in tables]
    share = f", {(config.batch_size or 0) // len(devices):,} of a batch on each" if len(devices) > 1 else ""
    begin = f"; {training.done} done" if training.done else ""
    return [
        ("data", f"{graph.name}: {graph.num_entities:,} entities, {graph.num_relations:,} relations"),
        ("", f"{triples} triples"),
        ("model", f"{config.model}, {heads}; d = {config.dim:,}, {width:,} real numbers an entity"),
        ("", f"{parameters:,} parameters: entities {entities:,}, {others} {parameters - entities:,}"),
        ("training", f"batches of {config.batch_size:,}; {negatives}{pair}"),
        ("", f"learning rate {config.learning_rate:g}, seed {config.seed}"),
        ("epochs", f"{config.epochs} at most, of {training.steps:,} steps; {ranked}{begin}"),
        ("devices", f"{', '.join(devices)}{share}"),
        ("memory", f"about {training.memory / 2**30:.1f} GB"),
        ("run", str(training.folder.path)),
    ]


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
