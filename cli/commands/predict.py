"""`jobi-tf predict`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click
import cloup
from cloup.constraints import AllSet, If, IsSet, accept_none, require_all, require_any, require_one

from jobi_tf.console import print_json, print_table, warn
from jobi_tf.errors import DataError
from jobi_tf.evaluation.metrics import rank_text

from ..options import (
    COUNT,
    FILE,
    Command,
    candidates_option,
    json_option,
    open_runs,
    opened,
    out_option,
    rules_option,
    runs_option,
    token_option,
    typed_option,
)

if TYPE_CHECKING:
    from jobi_tf.data.graph import Graph

ANSWERS = 10  # to a query, by default
QUERIES_AT_A_TIME = 4096


class Query(NamedTuple):
    """A triple whose head or tail is None, which is sought; or neither, and its score is."""

    head: str | None
    relation: str
    tail: str | None

    @property
    def side(self) -> int:
        """The side that is sought: 0 for head, 1 for tail."""
        return int(self.tail is None)

    @property
    def known(self) -> tuple[str, str]:
        """The known entity and the relation."""
        return str(self.head if self.side else self.tail), self.relation

    def names(self, answer: str = "?") -> tuple[str, str, str]:
        """Returns head, relation and tail, with `answer` for the entity that is sought."""
        return self.head or answer, self.relation, self.tail or answer


@cloup.command(cls=Command)
@runs_option(required=False)
@rules_option
@cloup.option_group(
    "One query",
    cloup.option("--head", metavar="NAME", help="The known head, to predict tails."),
    cloup.option("--relation", metavar="NAME", help="The relation."),
    cloup.option("--tail", metavar="NAME", help="The known tail, to predict heads."),
    json_option,
)
@cloup.option_group(
    "A file of queries",
    cloup.option(
        "--input",
        "source",
        type=click.File("rb"),
        metavar="FILE",
        help="Lines of head TAB relation TAB tail, with ? for the entity to predict; - is stdin.",
    ),
    out_option("TSV file of the answers  [default: stdout]", folder=False),
)
@cloup.option_group(
    "Answers",
    cloup.option("-k", type=COUNT, help=f"Number of answers to a query  [default: {ANSWERS}]"),
    cloup.option("--new-only", is_flag=True, help="Leave out answers that are known facts."),
    candidates_option,
    typed_option,
)
@cloup.option_group(
    "Server",
    cloup.option("--server", metavar="URL", help="Query a server instead of RUN: http://HOST:PORT."),
    cloup.option("--model", "model_name", help="Name of the model on the server  [default: that of `jobi-tf serve`]"),
    token_option,
    cloup.option("--certificate", type=FILE, help="Certificates to trust, for https."),
)
@cloup.constraint(require_one, ["argument_runs", "runs", "server"])
@cloup.constraint(If("server", accept_none), ["candidates", "typed", "rules"])  # a server has what `jobi-tf export` got
@cloup.constraint(If(~IsSet("server"), accept_none), ["model_name", "token", "certificate"])
@cloup.constraint(If("source", accept_none), ["head", "relation", "tail", "as_json"])
@cloup.constraint(If(~IsSet("source"), accept_none), ["out"])
@cloup.constraint(If(~IsSet("source"), require_all), ["relation"])
@cloup.constraint(If(~IsSet("source"), require_any), ["head", "tail"])
@cloup.constraint(If(AllSet("head", "tail"), accept_none), ["k", "new_only", "typed", "candidates"])
def predict(
    runs: tuple[Path, ...],
    rules: bool,
    head: str | None,
    relation: str | None,
    tail: str | None,
    as_json: bool,
    source: BinaryIO | None,
    out: Path | None,
    k: int | None,
    new_only: bool,
    candidates: Path | None,
    typed: bool,
    server: str | None,
    model_name: str | None,
    token: str | None,
    certificate: Path | None,
) -> None:
    """Find the best answers to one query, or to a file of them.

    \b
      jobi-tf predict world --head Switzerland --relation official_language -k 5
      jobi-tf predict world --input queries.tsv --out answers.tsv

    RUN is the folder of a run; several runs are pooled, as by `jobi-tf evaluate`. With --server, a running server is
    queried instead.
    A query consists of --relation and --head or --tail. With both, the triple is scored and, by a run, ranked. Known
    facts are those of train, valid and test. Only the scores of answers to one query can be compared. They are not
    probabilities, which a server also returns.
    """
    model: Any
    options: dict[str, Any] = {"new_only": new_only}
    if server is None:
        model = open_runs(runs, rules)
        title, numbers = model.graph.name, {"score": ".3f"}
        allowed = None if candidates is None else model.graph.entities.ids_in_file(candidates)
        options |= {"typed": typed, "candidates": allowed}
    else:
        from jobi_tf.serving import Client

        # A request has up to 1,024 queries, and the server takes up to 30 s to receive one and 30 s to compute it.
        client = Client(server, model_name, token=token, certificate=certificate, timeout=60)
        model = click.get_current_context().with_resource(client)
        title, numbers = f"{model.model} at {server}", {"score": ".3f", "probability": ".4f"}

    def answer(side: int, queries: list[Query]) -> list[list[dict[str, Any]]]:
        tables = model.answers(side, [query.known for query in queries], k or ANSWERS, **options)
        return [[_row(answer) for answer in table] for table in tables]

    if source is not None:
        from jobi_tf.serving import UnknownNameError

        queries = _read_queries(source, model.graph if server is None else None)
        with opened(out) as file:
            try:
                file.writelines(_lines(queries, answer, [*numbers]))
            except UnknownNameError as error:  # of a server
                line = next(i for i, query in enumerate(queries, 1) if query.known == error.query)
                raise DataError(f"{source.name}:{line}: {error}") from None
        if out is not None:
            click.echo(f"{len(queries):,} queries answered in {out}", err=True)
        return
    query = Query(head, str(relation), tail)
    entities = [name for name in (head, tail) if name is not None]
    for name in [] if server else model.graph.names_unseen_in_training(entities, query.relation):
        warn(f"{name!r} occurs in no training triple, so these results mean little")
    if head is None or tail is None:
        result = {"answers": [{"rank": i, **x} for i, x in enumerate(answer(query.side, [query])[0], 1)]}
    else:
        result = _score_by_run(model, query) if server is None else _score_by_server(model, query)
    if as_json:
        print_json({**query._asdict(), **result})
    elif "answers" in result:
        _print_answers(query, result["answers"], title, numbers)
    else:
        _print_score(query, result, title, numbers)


def _row(answer: Any) -> dict[str, Any]:
    """Returns an answer of a run or of a server: entity, score, known, and split or probability."""
    row = answer._asdict()
    return row if "known" in row else row | {"known": row.pop("seen")}


def _print_answers(query: Query, answers: list[dict[str, Any]], title: str, numbers: dict[str, str]) -> None:
    rows = []
    for x in answers:
        held_out = f", held out ({x['split']})" if x.get("split") in ("valid", "test") else ""
        values = [format(x[name], form) for name, form in numbers.items()]
        rows.append([x["rank"], x["entity"], *values, f"known fact{held_out}" if x["known"] else ""])
    side = ("head", "tail")[query.side]
    print_table(("rank", side, *numbers, ""), rows, f"{', '.join(query.names())}   ({title})", text=(side, ""))


def _score_by_run(run: Any, triple: Query) -> dict[str, Any]:
    """Returns the score of a triple, its filtered ranks, and whether it is known."""
    from jobi_tf import evaluate

    evaluation = evaluate(run, triples=[triple.names()])
    ranks = {f"{side}_rank": float(ranks.ranks()[0]) for side, ranks in evaluation.ranks.items()}
    known = any(bool((split == evaluation.triples).all(1).any()) for split in run.graph.splits.values())
    score = float(run.score([triple.names()])[0])
    return {"score": score, "known": known, **ranks, "entities": run.graph.num_entities}


def _score_by_server(client: Any, triple: Query) -> dict[str, Any]:
    """Returns the score of a triple and its probability."""
    head, relation, tail = triple.names()
    scores = client.score([(head, relation, tail)])
    if not scores.known[0]:
        client.tails(head, relation, 1)  # an unknown name raises a DataError
        client.heads(relation, tail, 1)
        raise DataError(f"unknown name in {', '.join(triple.names())}")  # unless a new version has come that knows it
    return {"score": float(scores.score[0]), "probability": float(scores.probability[0])}


def _print_score(triple: Query, values: dict[str, Any], title: str, numbers: dict[str, str]) -> None:
    click.echo(f"{', '.join(triple.names())}   ({title})")
    parts = [f"{name} {values[name]:{form}}" for name, form in numbers.items()]
    if "known" in values:  # by a run
        parts.append("a known fact" if values["known"] else "not a known fact")
    click.echo(", ".join(parts))
    if "known" in values:
        ranks = ", ".join(f"{rank_text(values[f'{side}_rank'])} as {side}" for side in ("head", "tail"))
        click.echo(f"filtered rank among {values['entities']:,} entities: {ranks}")


def _lines(queries: list[Query], answer: Callable[..., Any], numbers: list[str]) -> Iterator[str]:
    """Yields the lines of a file of answers; none if the first queries fail."""
    for start in range(0, len(queries), QUERIES_AT_A_TIME):
        part = queries[start : start + QUERIES_AT_A_TIME]
        answers: dict[Query, list[dict[str, Any]]] = {}
        for side in (0, 1):
            if distinct := [query for query in dict.fromkeys(part) if query.side == side]:
                answers |= zip(distinct, answer(side, distinct), strict=True)
        if not start:
            yield "\t".join(["head", "relation", "tail", "score", "known", "rank", *numbers[1:]]) + "\n"
        for query in part:
            for rank, x in enumerate(answers[query], 1):
                score, *others = (f"{x[name]:.6g}" for name in numbers)
                row = [*query.names(x["entity"]), score, "yes" if x["known"] else "no", str(rank), *others]
                yield "\t".join(row) + "\n"


def _read_queries(source: BinaryIO, graph: "Graph | None") -> list[Query]:
    """Reads a file of queries, whose names are checked if the graph is given; errors name file and line."""
    queries = []
    for number, line in enumerate(source.read().removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n").splitlines(), 1):
        try:
            first, relation, last = line.decode().split("\t")
            head, tail = (None if name in ("?", "") else name for name in (first, last))
            if (head is None) == (tail is None):
                raise ValueError
        except ValueError:  # a UnicodeDecodeError is one
            expected = "head, relation and tail in UTF-8 with tabs between them, and ? for either head or tail"
            found = line.decode(errors="backslashreplace")
            raise DataError(f"{source.name}:{number}: expected {expected}, got {found!r}") from None
        queries.append(Query(head, relation, tail))
        if graph is not None:
            try:
                graph.relations.id(queries[-1].relation)
                graph.entities.id(queries[-1].known[0])
            except DataError as error:
                raise DataError(f"{source.name}:{number}: {error}") from None
    if not queries:
        raise DataError(f"expected one query per line in {source.name}, got an empty file")
    return queries
