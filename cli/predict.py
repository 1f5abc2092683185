"""`jobi-tf predict`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobi_tf.errors import UsageError

from .command import Command
from .queries import COLUMNS, STREAM, Query, answers_file, read_queries, write_answers
from .show import print_table
from .start import start_tensorflow

if TYPE_CHECKING:
    from jobi_tf.training.run import Answer, Run

SIDES = ("head", "tail")
QUERIES_AT_A_TIME = 4096
_FACT = {
    None: "",
    "train": "known fact",
    "valid": "known fact, held out (valid)",
    "test": "known fact, held out (test)",
}


@click.command(cls=Command)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--head", help="The known head; its tails are sought.")
@click.option("--relation", help="The relation.")
@click.option("--tail", help="The known tail; its heads are sought.")
@click.option("-k", "count", type=click.IntRange(min=1), help="Answers a query  [default: 10]")
@click.option("--new-only", is_flag=True, help="Drop answers that are known facts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--input", "source", type=click.Path(path_type=Path), metavar="FILE", help="Queries; - is stdin.")
@click.option("--output", "target", type=click.Path(path_type=Path), metavar="FILE", help="Answers; - is stdout.")
def predict(
    run: Path,
    head: str | None,
    relation: str | None,
    tail: str | None,
    count: int | None,
    new_only: bool,
    as_json: bool,
    source: Path | None,
    target: Path | None,
) -> None:
    """Find the best answers to one query, or to a file of them.

    RUN is the folder of a training run. One query is --relation with --head or --tail; with both, the triple is scored
    and ranked. Known facts are those of the run's train, valid and test splits. Scores compare answers to one query;
    they are no probabilities.

    The lines of a file of queries are head TAB relation TAB tail, where ? or nothing stands for the entity that is
    sought. The answers come as TSV with the columns head, relation, tail, score, known and rank.
    """
    one = {"--head": head, "--relation": relation, "--tail": tail, "--json": as_json or None}
    if source is not None:
        if given := [name for name, value in one.items() if value is not None]:
            raise UsageError(f"--input asks the queries of a file: {given[0]} is for a single query")
        _predict_file(run, source, target or STREAM, count or 10, new_only)
        return
    if target is not None:
        raise UsageError("--output is for the answers to --input, which is missing")
    if relation is None or (head is None and tail is None):
        raise UsageError("expected --relation with --head or --tail, or --input with a file of queries")
    if head is not None and tail is not None:
        if count is not None or new_only:
            raise UsageError(
                f"{'-k' if count is not None else '--new-only'} is for an open side: leave out --head or --tail"
            )
        _score(_load(run), (head, relation, tail), as_json)
    else:
        query = Query(0, tail, relation) if tail is not None else Query(1, head or "", relation)
        trained = _load(run)
        answers = trained.answers(query.side, [(query.entity, query.relation)], count or 10, new_only)[0]
        _print(trained, query, answers, as_json)


def _load(run: Path) -> "Run":
    start_tensorflow()
    from jobi_tf import load_run

    return load_run(run)


def _predict_file(run: Path, source: Path, target: Path, count: int, new_only: bool) -> None:
    trained = _load(run)
    queries = read_queries(source, trained.graph)
    with answers_file(target) as file:
        file.write("\t".join(COLUMNS) + "\n")
        for start in range(0, len(queries), QUERIES_AT_A_TIME):
            part = queries[start : start + QUERIES_AT_A_TIME]
            answers: dict[Query, list[Answer]] = {}
            for side in range(len(SIDES)):
                asked = [query for query in dict.fromkeys(part) if query.side == side]
                found = trained.answers(side, [(query.entity, query.relation) for query in asked], count, new_only)
                answers.update(zip(asked, found, strict=True))
            write_answers(file, part, (answers[query] for query in part))
    if target != STREAM:
        click.echo(f"{len(queries):,} queries answered in {target}", err=True)


def _print(trained: "Run", query: Query, answers: list["Answer"], as_json: bool) -> None:
    if as_json:
        head, relation, tail = query.triple("")
        asked: dict[str, Any] = {"head": head or None, "relation": relation, "tail": tail or None}
        rows = [{"rank": rank, **answer._asdict()} for rank, answer in enumerate(answers, 1)]
        click.echo(json.dumps({**asked, "answers": rows}, ensure_ascii=False, allow_nan=False))
        return
    from rich.table import Column

    title = f"{', '.join(query.triple('?'))}   ({trained.graph.name})"
    columns = [Column("rank", justify="right"), Column(SIDES[query.side]), Column("score", justify="right"), Column("")]
    cells = [
        [str(rank), answer.entity, f"{answer.score:.3f}", _FACT[answer.split]] for rank, answer in enumerate(answers, 1)
    ]
    print_table(columns, cells, title)


def _score(trained: "Run", triple: tuple[str, str, str], as_json: bool) -> None:
    """Prints the score of a triple, and its ranks among the answers that are no known facts."""
    import numpy as np

    from jobi_tf.evaluation.ranker import Ranker

    graph = trained.graph
    score = float(trained.score([triple])[0])
    ids = np.array(
        [[graph.entities.id(triple[0]), graph.relations.id(triple[1]), graph.entities.id(triple[2])]], np.int32
    )
    ranker = Ranker(trained.model, trained.known)
    ranks = {f"{name}_rank": float(ranker.rank(ids, side).ranks()[0]) for side, name in enumerate(SIDES)}
    known = any(bool((split == ids).all(1).any()) for split in graph.splits.values())
    if as_json:
        names = dict(zip(("head", "relation", "tail"), triple, strict=True))
        result = {**names, "score": score, "known": known, **ranks, "entities": graph.num_entities}
        click.echo(json.dumps(result, ensure_ascii=False, allow_nan=False))
        return
    click.echo(f"{', '.join(triple)}   ({graph.name})")
    click.echo(f"score {score:.3f}, {'a known fact' if known else 'not a known fact'}")
    places = ", ".join(f"{ranks[f'{name}_rank']:,g} as {name}" for name in SIDES)
    click.echo(f"filtered rank among {graph.num_entities:,} entities: {places}")
