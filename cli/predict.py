"""`jobi-tf predict`."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobi_tf.errors import UsageError

from .ask import SIDES, Asked, AskedRun, AskedServer
from .command import Command
from .queries import STREAM, Query, Served, answers_file, read_queries, write_answers
from .show import print_table
from .token import read_token

if TYPE_CHECKING:
    from jobi_tf.training.run import Answer

QUERIES_AT_A_TIME = 4096


@click.command(cls=Command)
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option("--head", help="The known head; its tails are sought.")
@click.option("--relation", help="The relation.")
@click.option("--tail", help="The known tail; its heads are sought.")
@click.option("-k", "count", type=click.IntRange(min=1), help="Answers a query  [default: 10]")
@click.option("--new-only", is_flag=True, help="Drop answers that are known facts.")
@click.option(
    "--candidates",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with one entity name per line; only these are answers.",
)
@click.option("--typed", is_flag=True, help="Answer only with entities seen in training with the relation.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--input", "source", type=click.Path(path_type=Path), metavar="FILE", help="Queries; - is stdin.")
@click.option("--output", "target", type=click.Path(path_type=Path), metavar="FILE", help="Answers; - is stdout.")
@click.option("--server", metavar="URL", help="Query a server instead of RUN: http://HOST:PORT.")
@click.option("--model", help="Name of the model on the server  [default: that of `jobi-tf serve`]")
@click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE", help="Holds the token of the server.")
@click.option(
    "--certificate", type=click.Path(path_type=Path), metavar="FILE", help="Certificates to trust, for https."
)
def predict(
    run: Path | None,
    head: str | None,
    relation: str | None,
    tail: str | None,
    count: int | None,
    new_only: bool,
    candidates: Path | None,
    typed: bool,
    as_json: bool,
    source: Path | None,
    target: Path | None,
    server: str | None,
    model: str | None,
    token_file: Path | None,
    certificate: Path | None,
) -> None:
    """Find the best answers to one query, or to a file of them.

    RUN is the folder of a training run; with --server a running server is asked instead. One query is --relation with
    --head or --tail; with both, the triple is scored and, by a run, ranked. Known facts are those of the run's train,
    valid and test splits. Scores compare answers to one query; they are no probabilities, which a server gives as well.

    The lines of a file of queries are head TAB relation TAB tail, where ? or nothing stands for the entity that is
    sought. The answers come as TSV with the columns head, relation, tail, score, known and rank, and of a server
    probability.
    """
    one = {"--head": head, "--relation": relation, "--tail": tail, "--json": as_json or None}
    if (run is None) == (server is None):
        raise UsageError("expected RUN or --server, got " + ("neither" if run is None else "both"))
    if server is None:
        access = {"--model": model, "--token-file": token_file, "--certificate": certificate}
        if given := [name for name, value in access.items() if value is not None]:
            raise UsageError(f"{given[0]} is for --server, which is missing")
    elif typed or candidates:
        option = "--typed" if typed else "--candidates"
        raise UsageError(f"{option} is for RUN: for a server, it is an option of `jobi-tf export`")
    if source is not None:
        if given := [name for name, value in one.items() if value is not None]:
            raise UsageError(f"--input asks the queries of a file: {given[0]} is for a single query")
    else:
        if target is not None:
            raise UsageError("--output is for the answers to --input, which is missing")
        if relation is None or (head is None and tail is None):
            raise UsageError("expected --relation with --head or --tail, or --input with a file of queries")
        if head is not None and tail is not None and (count is not None or new_only or typed or candidates):
            options = {"-k": count is not None, "--new-only": new_only, "--typed": typed, "--candidates": candidates}
            option = next(name for name, value in options.items() if value)
            raise UsageError(f"{option} is for an open side: leave out --head or --tail")
    with closing(_asked(run, candidates, typed, server, model, token_file, certificate)) as asked:
        if source is not None:
            _predict_file(asked, source, target or STREAM, count, new_only)
        elif head is not None and tail is not None:
            _print_score(asked, (head, relation or "", tail), as_json)
        else:
            query = Query(0, tail, relation or "") if tail is not None else Query(1, head or "", relation or "")
            _print(asked, query, asked.answers(query.side, [query], count, new_only)[0], as_json)


def _asked(
    run: Path | None,
    candidates: Path | None,
    typed: bool,
    server: str | None,
    model: str | None,
    token_file: Path | None,
    certificate: Path | None,
) -> Asked:
    if server is None:
        assert run is not None
        return AskedRun(run, typed, candidates)
    return AskedServer(server, model, None if token_file is None else read_token(token_file), certificate)


def _predict_file(asked: Asked, source: Path, target: Path, count: int | None, new_only: bool) -> None:
    queries = read_queries(source, asked.check)
    with answers_file(target) as file:
        file.write("\t".join(asked.columns) + "\n")
        for start in range(0, len(queries), QUERIES_AT_A_TIME):
            part = queries[start : start + QUERIES_AT_A_TIME]
            answers: dict[Query, Sequence[Answer | Served]] = {}
            for side in range(len(SIDES)):
                distinct = [query for query in dict.fromkeys(part) if query.side == side]
                if distinct:
                    found = asked.answers(side, distinct, count, new_only)
                    answers.update(zip(distinct, found, strict=True))
            write_answers(file, part, (answers[query] for query in part))
    if target != STREAM:
        click.echo(f"{len(queries):,} queries answered in {target}", err=True)


def _print(asked: Asked, query: Query, answers: Sequence["Answer | Served"], as_json: bool) -> None:
    if as_json:
        head, relation, tail = query.triple("")
        names: dict[str, Any] = {"head": head or None, "relation": relation, "tail": tail or None}
        rows = [{"rank": rank, **answer._asdict()} for rank, answer in enumerate(answers, 1)]
        click.echo(json.dumps({**names, "answers": rows}, ensure_ascii=False, allow_nan=False))
        return
    from rich.table import Column

    numbers = [name for name in ("score", "probability") if name in asked.columns]
    columns = [Column("rank", justify="right"), Column(SIDES[query.side])]
    columns += [*(Column(name, justify="right") for name in numbers), Column("")]
    cells = []
    for rank, answer in enumerate(answers, 1):
        probability = [f"{answer.probability:.4f}"] if isinstance(answer, Served) else []
        cells.append([str(rank), answer.entity, f"{answer.score:.3f}", *probability, _fact(answer)])
    print_table(columns, cells, f"{', '.join(query.triple('?'))}   ({asked.name})")


def _fact(answer: "Answer | Served") -> str:
    split = None if isinstance(answer, Served) else answer.split
    held_out = f", held out ({split})" if split in ("valid", "test") else ""
    return f"known fact{held_out}" if answer.known else ""


def _print_score(asked: Asked, triple: tuple[str, str, str], as_json: bool) -> None:
    values, lines = asked.score(triple)
    if as_json:
        names = dict(zip(("head", "relation", "tail"), triple, strict=True))
        click.echo(json.dumps({**names, **values}, ensure_ascii=False, allow_nan=False))
        return
    click.echo(f"{', '.join(triple)}   ({asked.name})")
    for line in lines:
        click.echo(line)
