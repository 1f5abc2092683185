"""`jobi-tf evaluate`."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobi_tf.errors import UsageError
from jobi_tf.evaluation.metrics import METRICS, TIES

from .command import Command
from .show import print_table
from .start import start_tensorflow

if TYPE_CHECKING:
    from jobi_tf.evaluation.evaluate import Evaluation
    from jobi_tf.training.run import Run

SPLITS = ("test", "valid", "train")
SIDES = ("both", "head", "tail")
GAP_WORTH_A_WORD = 0.01


@click.command(cls=Command)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--split", type=click.Choice(SPLITS), default="test", show_default=True, help="Triples to rank.")
@click.option("--side", type=click.Choice(SIDES), default="both", show_default=True, help="Entity that is sought.")
@click.option("--ties", type=click.Choice(TIES), default="realistic", show_default=True, help="Rule for equal scores.")
@click.option("--by-relation", is_flag=True, help="Also print the metrics of each relation.")
@click.option("--raw", is_flag=True, help="Keep other true answers as candidates.")
@click.option("--filter-with-test", is_flag=True, help="Filter ranks of valid or train with test triples too.")
@click.option(
    "--candidates",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with one entity name per line; only these are candidates.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--devices", default="all", show_default=True, metavar="all|0,1,…", help="Devices to rank on.")
@click.option("--logical-devices", type=click.IntRange(1, 64), default=1, help="Split the CPU into that many devices.")
@click.option(
    "--memory-budget", type=click.IntRange(min=1), metavar="MB", help="For the scores of a block  [default: 512]"
)
def evaluate(
    run: Path,
    split: str,
    side: str,
    ties: str,
    by_relation: bool,
    raw: bool,
    filter_with_test: bool,
    candidates: Path | None,
    as_json: bool,
    devices: str,
    logical_devices: int,
    memory_budget: int | None,
) -> None:
    """Rank every triple of a split among all entities, and print the metrics.

    RUN is the folder of a training run. Ranks are filtered: other true answers of train and valid, and of test when
    test is ranked, are no candidates.
    """
    if filter_with_test and raw:
        raise UsageError(
            "--raw keeps true answers as candidates, --filter-with-test leaves them out: expected one of them"
        )
    if filter_with_test and split == "test":
        raise UsageError(
            "--filter-with-test is for --split valid or train: ranks of test are filtered with test anyway"
        )
    _check_devices(devices)
    start_tensorflow()
    from jobi_tf import load_run
    from jobi_tf.training.devices import strategy_for

    with strategy_for(devices, logical_devices).scope():
        trained = load_run(run)
        filter_with = ("train", "valid", "test") if filter_with_test else None
        budget = {} if memory_budget is None else {"memory_budget": memory_budget * 2**20}
        allowed = None if candidates is None else trained.graph.entities.ids_in_file(candidates)
        options = {"raw": raw, "filter_with": filter_with, "candidates": allowed, **budget}
        evaluation = _rank(trained, split, side, **options)
    if as_json:
        click.echo(json.dumps(_as_dict(evaluation, trained, ties, by_relation), ensure_ascii=False, allow_nan=False))
    else:
        _print(evaluation, trained, ties, raw)
        if by_relation:
            _print_relations(evaluation, trained, ties)
    gap = evaluation.ties_gap()
    if gap > GAP_WORTH_A_WORD:
        click.echo(f"Warning: equal scores decide {gap:.1%} of MRR: see --ties optimistic and pessimistic", err=True)


def _check_devices(devices: str) -> None:
    from jobi_tf.training.config import TrainConfig

    TrainConfig.create({"dataset": "any", "devices": devices}, "--devices")


def _rank(trained: "Run", split: str, side: str, **options: Any) -> "Evaluation":
    """Ranks, with a bar on a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    from jobi_tf import evaluate as rank

    console = Console(stderr=True)
    with ExitStack() as stack:
        if console.is_terminal:
            bar = stack.enter_context(Progress(console=console, transient=True))
            queries = len(trained.graph.split(split)) * (2 if side == "both" else 1)
            task = bar.add_task("ranking", total=queries)
            options["progress"] = lambda count: bar.advance(task, count)
        return rank(trained, None, split, side, **options)


def _as_dict(evaluation: "Evaluation", trained: "Run", ties: str, by_relation: bool) -> dict[str, Any]:
    result = evaluation.to_dict(ties)
    if by_relation:
        rows = evaluation.by_relation(ties).items()
        result["by_relation"] = [{"relation": trained.graph.relations[r], **metrics} for r, metrics in rows]
    return result


def _print(evaluation: "Evaluation", trained: "Run", ties: str, raw: bool) -> None:
    result = evaluation.to_dict(ties)
    kind = "raw" if raw else "filtered"
    title = (
        f"{trained.graph.name}, {evaluation.split} split, {kind} ranks among {trained.graph.num_entities:,} entities"
    )
    sides = {"both": result, **{side: result[side] for side in evaluation.ranks}}
    if len(evaluation.ranks) == 1:
        del sides["both"]
    print_table(["side", *METRICS.values()], [[side, *_cells(row)] for side, row in sides.items()], title)
    unseen = result["unseen_triples"]
    of_them = f", {unseen:,} of them with names unseen in training" if unseen else ""
    click.echo(f"{result['triples']:,} triples{of_them}; ties {ties}; {result['triples_per_second']:,.0f} triples/s")


def _print_relations(evaluation: "Evaluation", trained: "Run", ties: str) -> None:
    from rich.table import Column

    click.echo()
    rows = evaluation.by_relation(ties).items()
    cells = [[trained.graph.relations[r], f"{row['triples']:,.0f}", *_cells(row)] for r, row in rows]
    print_table([Column("relation"), "triples", *METRICS.values()], cells)


def _cells(row: dict[str, float]) -> list[str]:
    return [f"{row[name]:,.1f}" if name == "mean_rank" else f"{row[name]:.4f}" for name in METRICS]
