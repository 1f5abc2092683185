"""`jobi-tf plan`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
import cloup

from jobi_tf.console import duration, print_json, print_table
from jobi_tf.errors import UsageError
from jobi_tf.training.config import TrainConfig

from ..options import COUNT, IDS, POSITIVE, Command, add_dataset, given, json_option, settings_options
from ..start import start_tensorflow

if TYPE_CHECKING:
    from jobi_tf.training.plan import Plan

_DATA = ("dataset", "split", "columns", "header", "weights")
_SETTINGS = (
    *("model", "dim", "joint", "reciprocal", "loss", "answers_per_query", "pair_entities"),
    *("negatives", "negatives_mode", "chunk", "optimizer", "learning_rate", "batch_size"),
    *("average_epochs", "eval_every", "precision", "table_dtype"),
)


@cloup.command(cls=Command)
@cloup.argument("argument", metavar="[NAME|PATH]", required=False)
@cloup.option("--entities", type=IDS, help="Number of entities, without --dataset.")
@cloup.option("--relations", type=IDS, help="Number of relations, without --dataset.")
@cloup.option("--triples", type=COUNT, help="Number of training triples, without --dataset.")
@cloup.option("--devices", type=COUNT, default=1, help="Number of devices that train.")
@cloup.option("--memory", type=POSITIVE, metavar="GB", help="Memory of each device  [default: free memory]")
@cloup.option("--calibrate/--no-calibrate", default=True, help="Time some steps on this machine.")
@settings_options(*_DATA, *_SETTINGS)
@json_option
@click.pass_context
def plan(
    context: click.Context,
    entities: int | None,
    relations: int | None,
    triples: int | None,
    devices: int,
    memory: float | None,
    calibrate: bool,
    as_json: bool,
    argument: str | None,
    **options: Any,
) -> None:
    """Estimate the memory and time of a training, and choose its strategy.

    \b
      jobi-tf plan --dataset fb15k-237
      jobi-tf plan --entities 1900000 --relations 3247 --triples 19300000 \\
        --dim 100 --memory 8
    """
    import psutil

    sizes = entities, relations, triples
    settings = {name: value for name, value in given(context).items() if name in options}
    add_dataset(settings, argument)
    known = settings.get("dataset") is not None
    if known == all(sizes) or known == any(sizes):
        raise UsageError("expected either --dataset, or all of --entities, --relations and --triples")
    if not known and (idle := [name for name in _DATA if name in settings]):
        raise UsageError(f"--{idle[0]} has no effect without --dataset; remove it")
    config = TrainConfig.create({"dataset": "plan"} | settings)
    start_tensorflow()
    from jobi_tf.training.plan import graph_of_size
    from jobi_tf.training.plan import plan as make_plan

    seed = 0 if config.full_softmax else None
    graph = config.load_graph() if known else graph_of_size(entities or 0, relations or 0, triples or 0, seed)
    available = psutil.virtual_memory().available if memory is None else int(min(memory * 2**30, 2**62))
    result = make_plan(config, graph, devices, available, calibrate)
    if as_json:
        numbers = asdict(result) | {"epoch_seconds": result.epoch_seconds}
        numbers["settings"] = {name: getattr(result.settings, name) for name in _SETTINGS}
        numbers["memory"]["total"] = result.memory.total
        print_json(numbers)
    else:
        _print_plan(result)


def _print_plan(result: "Plan") -> None:
    rows = [(part, f"{size / 2**30:.2f}") for part, size in asdict(result.memory).items()]
    title = "memory of a device" if result.strategy != "parameter-server" else "memory without servers"
    print_table((title, "GB"), [*rows, ("peak", f"{result.memory.total / 2**30:.2f}")])
    click.echo()
    step, config = result.step, result.settings
    rows_of_a_batch = "queries" if config.full_softmax else "triples"
    rows = [
        (f"{rows_of_a_batch} of a batch, over all devices", f"{config.batch_size:,}"),
        ("rows that a device updates", f"{step.rows:,}"),
        ("bytes that it moves, at least", f"{step.bytes / 1e6:,.0f} MB"),
        ("operations, at least", f"{step.operations / 1e9:.2f} G"),
        ("gradients, if it sends them", f"{step.sent / 1e6:,.0f} MB"),
    ]
    if result.step_seconds is not None:
        rows.append(("time on a device like this one", f"{1e3 * result.step_seconds:,.0f} ms"))
    print_table(("step", ""), rows)
    time = "" if result.epoch_seconds is None else f", about {duration(result.epoch_seconds)}"
    click.echo(f"\nepoch    {result.steps:,} steps{time}")
    names = ["optimizer", "table_dtype", *["average_epochs"] * (result.strategy != "parameter-server")]
    options = [f" --{x.replace('_', '-')} {getattr(config, x)}" for x in names if x in config.model_fields_set]
    click.echo(f"strategy {result.strategy}{''.join(options)}")
    for sentence in result.advice:
        click.echo(f"         {sentence}")
