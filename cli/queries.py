"""Files of queries, and of their answers."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from jobi_tf.errors import DataError, JobiError
from jobi_tf.files import written_beside

if TYPE_CHECKING:
    from jobi_tf.training.run import Answer

OPEN = ("", "?")
COLUMNS = ("head", "relation", "tail", "score", "known", "rank")
SERVED_COLUMNS = (*COLUMNS, "probability")
STREAM = Path("-")


@dataclass(frozen=True)
class Query:
    """A relation with one known entity; the entity on the other side is sought.

    Args:
        side: the side that is sought, 0 for head and 1 for tail.
        entity: the known entity.
        relation: the relation.
    """

    side: int
    entity: str
    relation: str

    def triple(self, answer: str) -> tuple[str, str, str]:
        """Returns head, relation and tail, with `answer` in the open place."""
        head, tail = (self.entity, answer) if self.side else (answer, self.entity)
        return head, self.relation, tail


def read_queries(path: Path, check: Callable[[Query], None]) -> list[Query]:
    """Reads lines of head TAB relation TAB tail, one of head and tail being empty or `?`.

    Args:
        path: the file; `-` is stdin.
        check: raises a DataError for a query whose names are unknown.

    Raises:
        DataError: the file cannot be read, holds no query, or a line is none; the message names file and line.
    """
    where = "stdin" if path == STREAM else str(path)
    try:
        content = sys.stdin.buffer.read() if path == STREAM else path.read_bytes()
    except OSError as error:
        raise DataError(f"expected a file of queries at {where}: {error.strerror}") from None
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise DataError(f"expected a query a line in {where}, got an empty file")
    return [_query(line, f"{where}:{number}", check) for number, line in enumerate(lines, 1)]


def _query(line: bytes, where: str, check: Callable[[Query], None]) -> Query:
    try:
        fields = line.removesuffix(b"\r").decode().split("\t")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: expected text in UTF-8, got byte 0x{line[error.start]:02x}") from None
    if len(fields) != 3:
        came = f"{len(fields)} fields" if len(fields) > 1 else "one field" if fields[0].strip() else "a blank line"
        raise DataError(f"{where}: expected head, relation and tail with TABs between them, got {came}")
    head, relation, tail = fields
    if (head in OPEN) == (tail in OPEN):
        raise DataError(f"{where}: expected one of head and tail to be ? or empty, got {head!r} and {tail!r}")
    query = Query(0, tail, relation) if head in OPEN else Query(1, head, relation)
    try:
        check(query)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    return query


class Served(NamedTuple):
    """An answer of a server; of a known fact it does not say which split holds it."""

    entity: str
    score: float
    probability: float
    known: bool


@contextmanager
def answers_file(path: Path) -> Iterator[TextIO]:
    """Opens a file that appears under its name when everything is written, and not before; `-` is stdout.

    Raises:
        JobiError: it cannot be written.
    """
    if path == STREAM:
        yield sys.stdout
        return
    if path.is_dir():
        raise JobiError(f"expected a file to write answers to, {path} is a folder")
    try:
        with written_beside(path) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
            yield file
    except OSError as error:
        raise JobiError(f"cannot write {path}: {error.strerror or error}") from None


def write_answers(file: TextIO, queries: Sequence[Query], answers: Iterable[Sequence["Answer | Served"]]) -> None:
    """Writes a line for each answer, in the order of the queries, best first."""
    for query, row in zip(queries, answers, strict=True):
        for rank, answer in enumerate(row, 1):
            cells = [*query.triple(answer.entity), f"{answer.score:.6g}", "yes" if answer.known else "no", str(rank)]
            if isinstance(answer, Served):
                cells.append(f"{answer.probability:.6g}")
            file.write("\t".join(cells) + "\n")
