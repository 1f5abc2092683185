"""`jobi-tf predict`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, NamedTuple

import click
import cloup
from cloup.constraints import AllSet, If, IsSet, accept_none, require_all, require_any, require_one

from jobi_tf.console import print_json, print_table
from jobi_tf.errors import DataError

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
    from jobi_tf.serving import Client

SIDES = ("head", "tail")
ANSWERS = 10  # to a query, by default
QUERIES_AT_A_TIME = 4096
Answer = dict[str, Any]


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
    def entity(self) -> str:
        """The known entity."""
        return str(self.head if self.side else self.tail)

    def names(self, answer: str = "") -> tuple[str, str, str]:
        """Returns head, relation and tail, with `answer` for the entity that is sought."""
        return self.head or answer, self.relation, self.tail or answer


@cloup.command(cls=Command)
@runs_option(required=False)
@rules_option
@cloup.option_group(
    "One query",
    cloup.option("--head", help="The known head; its tails are sought."),
    cloup.option("--relation", help="The relation."),
    cloup.option("--tail", help="The known tail; its heads are sought."),
    json_option,
)
@cloup.option_group(
    "A file of queries",
    cloup.option(
        "--input",
        "source",
        type=click.File("rb"),
        metavar="FILE",
        help="Lines of head TAB relation TAB tail, with ? for the entity that is sought; - is stdin.",
    ),
    out_option("TSV file of the answers  [default: stdout]", folder=False),
)
@cloup.option_group(
    "Answers",
    cloup.option("-k", type=COUNT, metavar="K", help=f"Number of answers to a query  [default: {ANSWERS}]"),
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
      jobi-tf predict runs/world --head Switzerland --relation official_language -k 5
      jobi-tf predict runs/world --input queries.tsv --out answers.tsv

    RUN is the folder of a run; several are pooled, as by `jobi-tf evaluate`. With --server a running server is queried
    instead. One query is --relation with --head or --tail; with both, the triple is scored and, by a run, ranked. Known
    facts are those of train, valid and test.
    Scores compare answers to one query; they are no probabilities, which a server gives as well.
    """
    model: _Run | _Server
    if server is None:
        model = _Run(runs, rules, typed, candidates)
    else:
        from jobi_tf.serving import Client

        client = click.get_current_context().with_resource(
            Client(server, model_name, token=token, certificate=certificate)
        )
        model = _Server(client, f"{client.model} at {server}")
    if source is not None:
        _predict_file(model, source, out, k or ANSWERS, new_only)
        return
    query = Query(head, str(relation), tail)
    if head is not None and tail is not None:
        _print_score(model, query, as_json)
    else:
        _print_answers(model, query, model.answers(query.side, [query], k or ANSWERS, new_only)[0], as_json)


class _Run:
    """A run, or a pool of runs, that answers queries; an answer has `entity`, `score`, `known` and `split`."""

    numbers: ClassVar = {"score": ".3f"}  # of an answer, and how tables show them

    def __init__(self, paths: tuple[Path, ...], rules: bool, typed: bool, candidates: Path | None):
        self._run, self._typed = open_runs(paths, rules), typed
        self.name = self._run.graph.name
        entities = self._run.graph.entities
        self._candidates = None if candidates is None else [entities[i] for i in entities.ids_in_file(candidates)]

    def check(self, query: Query) -> None:
        """Raises a DataError for a name that the graph does not hold."""
        self._run.graph.relations.id(query.relation)
        self._run.graph.entities.id(query.entity)

    def answers(self, side: int, queries: Sequence[Query], k: int, new_only: bool) -> list[list[Answer]]:
        """Returns the best answers to queries for one side."""
        pairs = [(query.entity, query.relation) for query in queries]
        tables = self._run.answers(side, pairs, k, new_only, self._typed, self._candidates)
        return [[answer._asdict() for answer in table] for table in tables]

    def score(self, triple: Query) -> dict[str, Any]:
        """Returns score, filtered ranks and whether the triple is known."""
        from jobi_tf import evaluate

        graph = self._run.graph
        score = float(self._run.score([triple.names()])[0])
        evaluation = evaluate(self._run, triples=[triple.names()])
        ranks = {f"{side}_rank": float(ranks.ranks()[0]) for side, ranks in evaluation.ranks.items()}
        known = any(bool((split == evaluation.triples).all(1).any()) for split in graph.splits.values())
        return {"score": score, "known": known, **ranks, "entities": graph.num_entities}


class _Server:
    """A server that answers queries; an answer has `entity`, `score`, `probability` and `known`."""

    numbers: ClassVar = {"score": ".3f", "probability": ".4f"}

    def __init__(self, client: "Client", name: str):
        self._client, self.name = client, name

    def check(self, query: Query) -> None:
        """Does nothing: the client reports unknown names."""

    def answers(self, side: int, queries: Sequence[Query], k: int, new_only: bool) -> list[list[Answer]]:
        """Returns the best answers to queries for one side."""
        if side:
            found = self._client.tails_of([(query.entity, query.relation) for query in queries], k, new_only)
        else:
            found = self._client.heads_of([(query.relation, query.entity) for query in queries], k, new_only)
        return [[dict(zip(("entity", *self.numbers, "known"), row, strict=True)) for row in rows] for rows in found]

    def score(self, triple: Query) -> dict[str, Any]:
        """Returns score and probability."""
        head, relation, tail = triple.names()
        scores = self._client.score([(head, relation, tail)])
        if not scores.known[0]:
            self._client.tails(head, relation, 1)  # raises a DataError if one of them is unknown
            raise DataError(f"unknown entity: {tail}")
        return {"score": float(scores.score[0]), "probability": float(scores.probability[0])}


def _print_answers(model: _Run | _Server, query: Query, answers: list[Answer], as_json: bool) -> None:
    if as_json:
        print_json({**query._asdict(), "answers": [{"rank": rank, **answer} for rank, answer in enumerate(answers, 1)]})
        return
    rows = []
    for rank, x in enumerate(answers, 1):
        held_out = f", held out ({x['split']})" if x.get("split") in ("valid", "test") else ""
        values = [format(x[name], form) for name, form in model.numbers.items()]
        rows.append([rank, x["entity"], *values, f"known fact{held_out}" if x["known"] else ""])
    columns = ("rank", SIDES[query.side], *model.numbers, "")
    print_table(columns, rows, f"{', '.join(query.names('?'))}   ({model.name})", text=(SIDES[query.side], ""))


def _print_score(model: _Run | _Server, triple: Query, as_json: bool) -> None:
    values = model.score(triple)
    if as_json:
        print_json({**triple._asdict(), **values})
        return
    click.echo(f"{', '.join(triple.names())}   ({model.name})")
    parts = [f"{name} {values[name]:{form}}" for name, form in model.numbers.items()]
    if "known" not in values:
        click.echo(", ".join(parts))
        return
    click.echo(", ".join([*parts, "a known fact" if values["known"] else "not a known fact"]))
    ranks = ", ".join(f"{values[f'{side}_rank']:,g} as {side}" for side in SIDES)
    click.echo(f"filtered rank among {values['entities']:,} entities: {ranks}")


def _predict_file(model: _Run | _Server, source: BinaryIO, target: Path | None, k: int, new_only: bool) -> None:
    queries = _read_queries(source, model.check)
    with opened(target) as file:
        columns = ("head", "relation", "tail", "score", "known", "rank", *[*model.numbers][1:])
        file.write("\t".join(columns) + "\n")
        for start in range(0, len(queries), QUERIES_AT_A_TIME):
            part = queries[start : start + QUERIES_AT_A_TIME]
            answers: dict[Query, list[Answer]] = {}
            for side in range(len(SIDES)):
                if distinct := [query for query in dict.fromkeys(part) if query.side == side]:
                    answers |= zip(distinct, model.answers(side, distinct, k, new_only), strict=True)
            for query in part:
                for rank, x in enumerate(answers[query], 1):
                    score, *others = (f"{x[name]:.6g}" for name in model.numbers)
                    row = [*query.names(x["entity"]), score, "yes" if x["known"] else "no", str(rank), *others]
                    file.write("\t".join(row) + "\n")
    if target is not None:
        click.echo(f"{len(queries):,} queries answered in {target}", err=True)


def _read_queries(source: BinaryIO, check: Callable[[Query], None]) -> list[Query]:
    """Reads a file of queries; errors name file and line."""
    queries = []
    for number, line in enumerate(source.read().removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        try:
            queries.append(_parse_query(line.decode()))
            check(queries[-1])
        except UnicodeDecodeError as error:
            raise DataError(f"{source.name}:{number}: expected UTF-8, got byte 0x{line[error.start]:02x}") from None
        except DataError as error:
            raise DataError(f"{source.name}:{number}: {error}") from None
    if not queries:
        raise DataError(f"expected one query per line in {source.name}, got an empty file")
    return queries


def _parse_query(line: str) -> Query:
    fields = line.split("\t")
    if len(fields) != 3:
        raise DataError(f"expected head, relation and tail with tabs between them, got {line!r}")
    head, relation, tail = fields
    if (head in ("", "?")) == (tail in ("", "?")):
        raise DataError(f"expected either head or tail to be ? or empty, got {head!r} and {tail!r}")
    return Query(None, relation, tail) if head in ("", "?") else Query(head, relation, None)
