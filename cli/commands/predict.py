"""`jobi-tf predict`."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click
import cloup
from cloup.constraints import AllSet, If, IsSet, accept_none, require_all, require_any, require_one

from jobi_tf.console import print_json, print_table
from jobi_tf.errors import DataError, JobiError
from jobi_tf.files import written_beside

from ..options import (
    COUNT,
    FILE,
    Command,
    candidates_option,
    json_option,
    open_runs,
    out_option,
    runs_option,
    token_option,
    typed_option,
)
from ..start import start_tensorflow

if TYPE_CHECKING:
    from jobi_tf.serving import Client

SIDES = ("head", "tail")
COLUMNS = ("head", "relation", "tail", "score", "known", "rank")
ANSWERS = 10  # to a query, by default
QUERIES_AT_A_TIME = 4096
STREAM = Path("-")
Answer = dict[str, Any]


class Query(NamedTuple):
    """A relation with one known entity; `side` is the one that is sought, 0 for head and 1 for tail."""

    side: int
    entity: str
    relation: str

    def triple(self, answer: str) -> tuple[str, str, str]:
        """Returns head, relation and tail, with `answer` for the entity that is sought."""
        head, tail = (self.entity, answer) if self.side else (answer, self.entity)
        return head, self.relation, tail


@cloup.command(cls=Command)
@runs_option(required=False)
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
        type=cloup.file_path(path_type=Path, exists=True, allow_dash=True),
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
    cloup.option("--certificate", type=FILE, metavar="FILE", help="Certificates to trust, for https."),
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
    source: Path | None,
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
    with ExitStack() as stack:
        if runs:
            model = _Run(runs, rules, typed, candidates)
        else:
            from jobi_tf.serving import Client

            client = Client(str(server), model_name, token=token, certificate=certificate)
            model = _Server(stack.enter_context(client), f"{client.model} at {server}")
        if source is not None:
            _predict_file(model, source, out or STREAM, k or ANSWERS, new_only)
        elif head is not None and tail is not None:
            _print_score(model, (head, str(relation), tail), as_json)
        else:
            query = Query(int(tail is None), str(head if tail is None else tail), str(relation))
            _print_answers(model, query, model.answers(query.side, [query], k or ANSWERS, new_only)[0], as_json)


class _Run:
    """A run, or a pool of runs, that answers queries; an answer has `entity`, `score`, `known` and `split`."""

    served = False

    def __init__(self, paths: tuple[Path, ...], rules: bool, typed: bool, candidates: Path | None):
        start_tensorflow()
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

    def score(self, triple: tuple[str, str, str]) -> dict[str, Any]:
        """Returns score, filtered ranks and whether the triple is known."""
        from jobi_tf import evaluate

        graph = self._run.graph
        evaluation = evaluate(self._run, triples=[triple])
        ranks = {f"{side}_rank": float(ranks.ranks()[0]) for side, ranks in evaluation.ranks.items()}
        known = any(bool((split == evaluation.triples).all(1).any()) for split in graph.splits.values())
        return {"score": float(self._run.score([triple])[0]), "known": known, **ranks, "entities": graph.num_entities}


class _Server:
    """A server that answers queries; an answer has `entity`, `score`, `probability` and `known`."""

    served = True

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
        return [[dict(zip(("entity", "score", "probability", "known"), x, strict=True)) for x in row] for row in found]

    def score(self, triple: tuple[str, str, str]) -> dict[str, Any]:
        """Returns score and probability."""
        scores = self._client.score([triple])
        if not scores.known[0]:
            head, relation, tail = triple
            self._client.tails(head, relation, 1)  # raises a DataError if the head or the relation is unknown
            raise DataError(f"unknown entity: {tail}")
        return {"score": float(scores.score[0]), "probability": float(scores.probability[0])}


def _print_answers(model: _Run | _Server, query: Query, answers: list[Answer], as_json: bool) -> None:
    if as_json:
        names = [name or None for name in query.triple("")]
        rows = [{"rank": rank, **answer} for rank, answer in enumerate(answers, 1)]
        print_json({**dict(zip(("head", "relation", "tail"), names, strict=True)), "answers": rows})
        return
    from rich.table import Column

    numbers = ["score", *(["probability"] if model.served else [])]
    columns = [Column("rank", justify="right"), Column(SIDES[query.side])]
    columns += [*(Column(name, justify="right") for name in numbers), Column("")]
    cells = []
    for rank, x in enumerate(answers, 1):
        values = [f"{x['score']:.3f}", *([f"{x['probability']:.4f}"] if model.served else [])]
        held_out = f", held out ({x['split']})" if x.get("split") in ("valid", "test") else ""
        cells.append([str(rank), x["entity"], *values, f"known fact{held_out}" if x["known"] else ""])
    print_table(columns, cells, f"{', '.join(query.triple('?'))}   ({model.name})")


def _print_score(model: _Run | _Server, triple: tuple[str, str, str], as_json: bool) -> None:
    values = model.score(triple)
    if as_json:
        print_json({**dict(zip(("head", "relation", "tail"), triple, strict=True)), **values})
        return
    click.echo(f"{', '.join(triple)}   ({model.name})")
    if model.served:
        click.echo(f"score {values['score']:.3f}, probability {values['probability']:.4f}")
        return
    click.echo(f"score {values['score']:.3f}, {'a known fact' if values['known'] else 'not a known fact'}")
    ranks = ", ".join(f"{values[f'{side}_rank']:,g} as {side}" for side in SIDES)
    click.echo(f"filtered rank among {values['entities']:,} entities: {ranks}")


def _predict_file(model: _Run | _Server, source: Path, target: Path, k: int, new_only: bool) -> None:
    queries = _read_queries(source, model.check)
    with _answers_file(target) as file:
        file.write("\t".join([*COLUMNS, *(["probability"] if model.served else [])]) + "\n")
        for start in range(0, len(queries), QUERIES_AT_A_TIME):
            part = queries[start : start + QUERIES_AT_A_TIME]
            answers: dict[Query, list[Answer]] = {}
            for side in range(len(SIDES)):
                if distinct := [query for query in dict.fromkeys(part) if query.side == side]:
                    answers |= zip(distinct, model.answers(side, distinct, k, new_only), strict=True)
            for query in part:
                for rank, x in enumerate(answers[query], 1):
                    cells = [*query.triple(x["entity"]), f"{x['score']:.6g}", "yes" if x["known"] else "no", str(rank)]
                    file.write("\t".join([*cells, *([f"{x['probability']:.6g}"] if model.served else [])]) + "\n")
    if target != STREAM:
        click.echo(f"{len(queries):,} queries answered in {target}", err=True)


def _read_queries(path: Path, check: Callable[[Query], None]) -> list[Query]:
    """Reads a file of queries; errors name file and line."""
    where = "stdin" if path == STREAM else str(path)
    content = sys.stdin.buffer.read() if path == STREAM else path.read_bytes()
    lines = content.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").split(b"\n")
    if not content:
        raise DataError(f"expected one query per line in {where}, got an empty file")
    queries = []
    for number, line in enumerate(lines, 1):
        try:
            queries.append(_parse_query(line.removesuffix(b"\r").decode()))
            check(queries[-1])
        except UnicodeDecodeError as error:
            raise DataError(f"{where}:{number}: expected UTF-8, got byte 0x{line[error.start]:02x}") from None
        except DataError as error:
            raise DataError(f"{where}:{number}: {error}") from None
    return queries


def _parse_query(line: str) -> Query:
    fields = line.split("\t")
    if len(fields) != 3:
        raise DataError(f"expected head, relation and tail with tabs between them, got {line!r}")
    head, relation, tail = fields
    if (head in ("", "?")) == (tail in ("", "?")):
        raise DataError(f"expected either head or tail to be ? or empty, got {head!r} and {tail!r}")
    return Query(0, tail, relation) if head in ("", "?") else Query(1, head, relation)


@contextmanager
def _answers_file(path: Path) -> Iterator[TextIO]:
    """Opens a file that appears when everything is written; `-` is stdout."""
    if path == STREAM:
        yield sys.stdout
        return
    try:
        with written_beside(path) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
            yield file
    except OSError as error:
        raise JobiError(f"cannot write {path}: {error.strerror or error}") from None
