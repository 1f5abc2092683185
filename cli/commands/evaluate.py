"""`jobi-tf evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from jobi_tf.console import Bar, duration, print_json, print_table, warn
from jobi_tf.errors import UsageError
from jobi_tf.evaluation.metrics import METRICS, TIES, metric_texts

from ..options import (
    COUNT,
    Command,
    candidates_option,
    json_option,
    open_runs,
    rules_option,
    runs_option,
    settings_options,
)
from ..start import start_tensorflow

if TYPE_CHECKING:
    from jobi_tf.evaluation.evaluate import Evaluation

WARN_OF_TIES = 0.01  # of MRR


@cloup.command(cls=Command)
@runs_option()
@rules_option
@cloup.option("--split", type=click.Choice(["test", "valid", "train"]), default="test", help="Triples to rank.")
@cloup.option("--side", type=click.Choice(["both", "head", "tail"]), default="both", help="Side to rank.")
@cloup.option("--ties", type=click.Choice(TIES), default="realistic", help="Rule for equal scores.")
@cloup.option("--by-relation", is_flag=True, help="Also print the metrics of each relation.")
@cloup.option("--raw", is_flag=True, help="Do not filter: other true answers remain candidates.")
@cloup.option("--filter-with-test", is_flag=True, help="Also filter with test triples when valid or train is ranked.")
@candidates_option
@json_option
@cloup.option("--memory-budget", type=COUNT, metavar="MB", default=1024, help="Memory for the scores of a block.")
@settings_options("devices", "logical_devices")
def evaluate(
    runs: tuple[Path, ...],
    rules: bool,
    split: str,
    side: str,
    ties: str,
    by_relation: bool,
    raw: bool,
    filter_with_test: bool,
    candidates: Path | None,
    as_json: bool,
    memory_budget: int,
    devices: str,
    logical_devices: int,
) -> None:
    """Rank every triple of a split among all entities, and print the metrics.

    \b
      jobi-tf evaluate runs/world
      jobi-tf evaluate runs/world --split valid --by-relation
      jobi-tf evaluate runs/complex runs/rescal --rules

    RUN is the folder of a run. The result is written to its folder evaluations/, for example as test.json or
    test-raw.json.

    Ranks are filtered: other true answers of train and valid are not candidates, nor are those of test when test is
    ranked.
    Several runs of one graph, with any scorers, are pooled: their scores are added with weights for each relation and
    side, which are fitted on the validation split. The result of a pool is only printed. With jobi-tf launch
    --servers 2 -- evaluate RUN, parameter servers share the tables of a run.
    """
    if filter_with_test and (raw or split == "test"):
        reason = "--raw filters nothing" if raw else "ranks of test are always filtered with test"
        raise UsageError(f"--filter-with-test has no effect here: {reason}; remove it")
    from jobi_tf.training.config import TrainConfig

    TrainConfig.create({"dataset": "any", "devices": devices}, "--devices")
    start_tensorflow()
    from jobi_tf import evaluate as rank
    from jobi_tf.report.runs import evaluation_name, store_evaluation
    from jobi_tf.training.devices import evaluation_strategy
    from jobi_tf.training.run_folder import PRETRAINED

    with evaluation_strategy(devices, logical_devices).scope():
        trained = open_runs(runs, rules)
        graph = trained.graph
        filter_with = ("train", "valid", "test") if filter_with_test else None
        allowed = None if candidates is None else graph.entities.ids_in_file(candidates)
        with Bar(len(graph.split(split)) * (2 if side == "both" else 1), "ranks", "ranking") as bar:
            evaluation = rank(
                trained,
                split=split,
                side=side,
                raw=raw,
                filter_with=filter_with,
                candidates=allowed,
                memory_budget=memory_budget * 2**20,
                progress=bar.update,
            )
    result = evaluation.to_dict(ties)
    if by_relation:
        rows = evaluation.by_relation(ties).items()
        result["by_relation"] = [{"relation": graph.relations[relation], **row} for relation, row in rows]
    if as_json:
        print_json(result)
    else:
        among = f"{graph.num_entities:,} entities" if allowed is None else f"{len(allowed):,} candidates"
        _print(evaluation, result, f"{graph.name}, {split} split, {'raw' if raw else 'filtered'} ranks among {among}")
    if (gap := evaluation.ties_gap()) > WARN_OF_TIES:
        warn(f"equal scores decide {gap:.1%} of MRR: see --ties optimistic and pessimistic")
    is_pool = len(runs) > 1 or rules
    if is_pool and split == "valid":
        warn("the weights of the pool were fitted on these triples; to compare it with other runs, use --split test")
    if is_pool or runs[0] in PRETRAINED.values():
        return
    name = evaluation_name(split, side, ties, raw, filter_with_test, allowed)
    try:
        path = store_evaluation(runs[0], name, evaluation, result)
        click.echo(f"written to {path}", err=True)
    except OSError as error:
        warn(f"the result cannot be written: {error.filename}: {error.strerror}")


def _print(evaluation: "Evaluation", result: dict[str, Any], title: str) -> None:
    sides = {"both": result} if len(evaluation.ranks) > 1 else {}
    sides |= {side: result[side] for side in evaluation.ranks}
    print_table(["side", *METRICS.values()], [[side, *metric_texts(row)] for side, row in sides.items()], title)
    unseen = result["unseen_triples"]
    of_them = f", {unseen:,} of them with names unseen in training" if unseen else ""
    seconds = duration(evaluation.seconds)
    click.echo(f"{result['triples']:,} triples{of_them}; ties {result['ties']}; ranked in {seconds}")
    if rows := result.get("by_relation"):
        click.echo()
        cells = [[row["relation"], f"{row['triples']:,.0f}", *metric_texts(row)] for row in rows]
        print_table(["relation", "triples", *METRICS.values()], cells)
