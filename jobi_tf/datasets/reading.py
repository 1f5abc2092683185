"""Reading triples from TSV, TXT and CSV files, plain or gzipped, and from RDF and Parquet, into ids."""

import csv
import gzip
import io
import math
import os
import re
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from jobi_tf.data.graph import SPLITS, Graph, Source, checked_weights, columns_of_table, known_header
from jobi_tf.data.occurrences import distinct_triples
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.datasets import formats
from jobi_tf.errors import DataError, UsageError

_KINDS = (".tsv", ".txt", ".csv")
SUFFIXES = (*(kind + packed for kind in _KINDS for packed in ("", ".gz")), *formats.SUFFIXES)

_SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons", " ": "spaces"}
_PART = 2**20  # triples
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # how the error handler `surrogateescape` reads other bytes
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)


class Columns:
    """Which columns of a file hold head, relation, tail and weight, and whether it has a header.

    The arguments are `columns`, `weights` and `header` of `load_graph`. Without `triple`, these are the columns of a
    known header, else the first three.
    """

    def __init__(
        self,
        triple: str | Sequence[str | int] | None = None,
        weight: str | int | None = None,
        header: bool | None = None,
    ):
        triple = triple.split(",") if isinstance(triple, str) else triple
        self.triple = None if triple is None else [_selector(column) for column in triple]
        self.weight = [] if weight is None else [_selector(weight)]
        if not isinstance(header, bool | np.bool_ | None):
            raise UsageError(f"expected header to be True, False or None, got {header!r}")
        self.header = None if header is None else bool(header)
        given = [*(self.triple or ()), *self.weight]
        self.named = any(isinstance(column, str) for column in given)
        shown = repr(",".join(map(str, given)))
        if self.triple is not None and len(self.triple) != 3:
            raise UsageError(f"expected three columns (head, relation, tail), got {len(self.triple)}: {shown}")
        if len(set(given)) < len(given) or "" in given or 0 in given:
            raise UsageError(f"expected different column names, or positions from 1, got {shown}")
        if self.named and header is False:
            raise UsageError(f"columns {shown} include names, which need a header: use positions without one")

    def locate(self, first: list[str], where: str, header: bool = False) -> tuple[bool, int, list[int]]:
        """Finds the columns in the first row of a file; `header` is whether its format always begins with one.

        Returns whether that row is a header, the number of fields in every row, and the indices of head, relation, tail
        and, if there is one, weight.
        """
        fields = [field.strip().casefold() for field in first]
        known = known_header(fields)
        is_text = not header
        if is_text:
            header = self.named or (known is not None if self.header is None else self.header)
        found: Sequence[str | int] = known if header and known else [1, 2, 3]
        if not is_text and not self.triple:
            found = [place + 1 for place in columns_of_table(fields, where)]
        if is_text and not self.triple:
            if not header and not self.weight:
                return False, 3, [0, 1, 2]
            by_name, wanted = self.weight and found is known, 3 + len(self.weight)
            too_few = self.weight and len(first) < wanted  # `_indices` says which is missing
            if len(first) != wanted and not by_name and not too_few:
                hint = f"choose three by 'columns', such as {','.join(map(str, found))}"
                raise DataError(f"{where}:1: expected {wanted} columns, got {len(first)}: {hint}")
        triple = self.triple or found
        return header, len(first), _indices([*triple, *self.weight], fields, where)


def _selector(column: str | int) -> str | int:
    text = str(column).strip().casefold()
    return int(text) if text.isdecimal() else text


def _indices(columns: Sequence[str | int], fields: list[str], where: str) -> list[int]:
    """Returns the index of every column, given by position from 1 or by name, in the fields of the first row."""
    indices = []
    for column in columns:
        if isinstance(column, int):
            if column > len(fields):
                raise DataError(f"{where}:1: expected at least {column} columns, got {len(fields)}")
            indices.append(column - 1)
        else:
            if fields.count(column) != 1:
                raise DataError(
                    f"{where}:1: expected one column {column!r} in the header, "
                    f"found {fields.count(column)} in {_shown(fields)}"
                )
            indices.append(fields.index(column))
    if len(set(indices)) < len(indices):
        raise DataError(f"{where}:1: expected different columns, got {', '.join(map(str, columns))}")
    return indices


def _shown(fields: Sequence[str]) -> str:
    text = ", ".join(repr(x.encode("utf-8", "surrogateescape").decode("utf-8", "replace")) for x in fields)
    return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True)
class Rows:
    """The triples of one file, or of one split of it, int32 [N, 3], and their weights, float32 [N], if it has them."""

    triples: np.ndarray
    source: Source | None  # None: of RDF, whose triples are in no order
    weights: np.ndarray | None = None


class Names(dict[str, int]):
    """Ids of names by first appearance: looking up a new name gives it the next id.

    Args:
        tabs: whether names may contain tabs, which separate the names in files of this library.
    """

    def __init__(self, tabs: bool = False):
        super().__init__()
        self._refused = "\0\r\n" + "\t" * (not tabs)

    def __missing__(self, name: str) -> int:
        # Every distinct name comes here exactly once, so the loop over the rows need not check any.
        if odd := _NOT_UTF8.search(name):
            byte = ord(odd[0]) - 0xDC00
            raise ValueError(f"expected UTF-8, got byte 0x{byte:02x}{' (is it UTF-16?)' * (byte in (0xFE, 0xFF))}")
        if not name or name.isspace():
            raise ValueError("expected a head, a relation and a tail, got an empty field")
        if any(x in name for x in self._refused):
            raise ValueError("expected names without NUL bytes, line breaks and tabs (is the file not UTF-8 text?)")
        self[name] = identity = len(self)
        return identity


class TripleReader:
    """Reads files of triples; entities and relations get ids in the order of their first appearance in all of them.

    Args:
        columns: the columns of the files; None: the usual ones.
        tabs: whether names may contain tabs.
    """

    def __init__(self, columns: Columns | None = None, tabs: bool = False):
        self.columns = columns or Columns()
        self.entities = Names(tabs)
        self.relations = Names(tabs)

    def read_file(self, path: Path, sink: Callable[[np.ndarray], None] | None = None) -> Rows:
        """Reads a file whose name ends in one of `SUFFIXES`.

        A sink gets the triples, int32 [n, 3], some at a time, instead of their being kept in memory. A `DataError`
        names the file and the line that is not a triple.
        """
        separator = "," if path.name.removesuffix(".gz").endswith(".csv") else "\t"
        try:
            if path.suffix in formats.SUFFIXES:
                if self.columns.header is not None:
                    raise UsageError(f"option 'header' applies to files of text only, got {path}")
                weight = 4 if self.columns.weight else None
                columns = Columns((1, 2, 3), weight, header=False)
                rows = self.read(formats.as_csv(path, self.columns), str(path), ",", sink, columns)
            else:
                with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
                    rows = self.read(stream, str(path), separator, sink)  # type: ignore[arg-type]
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
        in_order = path.suffix not in formats.RDF
        source = Source(str(path.absolute()), rows.source.first_line) if rows.source and in_order else None
        return replace(rows, source=source)

    def read(
        self,
        stream: BinaryIO,
        where: str,
        separator: str = "\t",
        sink: Callable[[np.ndarray], None] | None = None,
        columns: Columns | None = None,
    ) -> Rows:
        """Reads triples from a stream, as `read_file`; `where` is its name in error messages.

        The separator is a tab for text without quotes, a comma for CSV; `columns` are by default those of the reader.
        """
        text = io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="\n")
        quotes: dict = {} if separator == "," else {"quoting": csv.QUOTE_NONE}
        rows = csv.reader(text, delimiter=separator, strict=True, **quotes)
        # Rows and lines run in step, so the line of a row needs no bookkeeping; `number` is that of the current row.
        number, fields = 0, list[str]()
        ids, weights, blank = array("i"), array("d"), 0
        try:
            first = next(rows, None)
            if first is None:
                raise DataError(f"{where}: expected triples, the file is empty")
            header, width, (head, relation, tail, *weight) = (columns or self.columns).locate(first, where)
            start, number = 1 + header, int(header)
            entities, relations, extend = self.entities, self.relations, ids.extend
            for number, fields in enumerate(rows if header else chain([first], rows), start):
                if len(fields) != width or rows.line_num != number or blank:
                    if rows.line_num == number and not "".join(fields).strip():
                        blank = blank or number
                        continue
                    if blank:
                        raise DataError(f"{where}:{blank}: expected a triple, got a blank line inside the file")
                    raise ValueError(_irregular(fields, width, separator))
                if sink and len(ids) == 3 * _PART:
                    sink(_triples(ids))
                    ids = array("i")
                    extend = ids.extend
                extend((entities[fields[head]], relations[fields[relation]], entities[fields[tail]]))
                if weight:
                    weights.append(_weight(fields[weight[0]]))
        except DataError:
            raise
        except csv.Error as error:  # raised by the row after `number`
            kind = "CSV" if separator == "," else "tab-separated text"
            reason = ", got lines that end with CR alone" if "new-line" in str(error) else f": {error}"
            raise DataError(f"{where}:{number + 1}: expected {kind}{reason}") from None
        except ValueError as error:
            raise DataError(f"{where}:{number}: {error}: {_shown([separator.join(fields)])}") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(
                f"{where}: expected a complete gzip file, got one that is truncated or corrupt after line "
                f"{rows.line_num} ({error})"
            ) from None
        finally:
            text.detach()  # the caller closes the stream; otherwise Python would warn of an open file
        if not ids:
            raise DataError(f"{where}: expected triples, found only {'a header' if header else 'blank lines'}")
        triples = _triples(ids)
        if sink:
            sink(triples)
        return Rows(triples, Source(where, start), np.array(weights, np.float32) if weight else None)

    def graph(self, name: str, parts: Mapping[str, Rows]) -> Graph:
        """Returns the graph of splits that were read by this reader; raises a DataError if all weights are 0."""
        if (weights := parts["train"].weights) is not None:
            checked_weights(weights, len(weights))
        return Graph(
            name,
            Vocabulary(list(self.entities), kind="entity"),
            Vocabulary(list(self.relations), kind="relation"),
            {split: rows.triples for split, rows in parts.items()},
            {split: rows.source for split, rows in parts.items() if rows.source},
            {split: rows.weights for split, rows in parts.items() if rows.weights is not None},
        )


def _triples(ids: array) -> np.ndarray:
    return np.frombuffer(ids, np.int32).reshape(-1, 3)


def _irregular(fields: list[str], width: int, separator: str) -> str:
    """Returns what is wrong with a row that spans lines or has another number of fields than `width`."""
    if len(fields) == width:
        return "expected one row per line, got a quoted field with a line break"
    expected = "3 fields (head, relation, tail)" if width == 3 else f"{width} fields as in line 1"
    others = [name for sign, name in _SEPARATORS.items() if fields and fields[0].count(sign) == width - 1]
    hint = ""
    if len(fields) == 1 and others:
        hint = f" (are they separated by {others[0]}?)"
    elif len(fields) > width == 3:
        hint = ": choose three by 'columns', such as 1,2,3"
    return f"expected {expected} separated by {_SEPARATORS[separator]}, got {len(fields)}{hint}"


def _weight(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _LARGEST_WEIGHT:
        raise ValueError(f"expected a finite weight of at least 0, got {text!r}")
    return value


def find_splits(folder: Path) -> dict[str, Path]:
    """Returns the files of train, valid and test in a folder; a DataError if one is missing, or there are two."""
    files = {}
    for split in SPLITS:
        found = [path for suffix in SUFFIXES if (path := folder / f"{split}{suffix}").is_file()]
        if len(found) != 1:
            if (folder / "config.yaml").is_file() and not found:
                raise DataError(f"{folder}: expected files of triples, found the folder of a run")
            if any(re.fullmatch(r"train-\d+-of-\d+", name) for name in os.listdir(folder)):
                raise DataError(
                    f"{folder}: expected graph.json beside the shards, found none: copy the whole folder again"
                )
            names = " and ".join(path.name for path in found) or f"none among {_shown(sorted(os.listdir(folder)))}"
            one = " (to split one file, give its path and split)" if split != "train" and not found else ""
            raise DataError(
                f"{folder}: expected one file for {split} ({', '.join(_KINDS)}, each also with .gz, "
                f"{', '.join(formats.SUFFIXES)}), found {names}{one}"
            )
        files[split] = found[0]
    return files


def read_folder(name: str, files: Mapping[str, Path], columns: Columns) -> Graph:
    """Reads the files of train, valid and test."""
    reader = TripleReader(columns)
    return reader.graph(name, {split: reader.read_file(files[split]) for split in SPLITS})


def read_and_split(path: Path, shares: Sequence[float], seed: int, columns: Columns) -> Graph:
    """Reads one file and splits its distinct triples at random by `parse_shares`, in the order of the file.

    Rows that repeat a triple go to the same split, or a test triple would also be a training triple.
    """
    reader = TripleReader(columns)
    everything = reader.read_file(path)
    weights = everything.weights
    first, numbers = distinct_triples(everything.triples)
    same, count = first[numbers], len(first)  # the first row with the triple of each row
    ends = np.rint(np.cumsum(shares) * count).astype(int)
    if any(share and not size for share, size in zip(shares, np.diff(ends, prepend=0), strict=True)):
        raise DataError(
            f"{path}: expected enough distinct triples for shares of {'/'.join(map(str, shares))}, got {count}"
        )
    shuffled = np.random.default_rng(seed).permutation(np.sort(first))
    split_of = np.empty(len(same), np.int8)
    for i, rows in enumerate(np.split(shuffled, ends[:2])):
        split_of[rows] = i
    parts = {}
    for i, split in enumerate(SPLITS):
        chosen = np.flatnonzero(split_of[same] == i)
        source = everything.source
        if source:
            source = replace(source, lines=(chosen + source.first_line).astype(np.int32))
        parts[split] = Rows(everything.triples[chosen], source, None if weights is None else weights[chosen])
    return reader.graph(path.name.split(".")[0], parts)


def parse_shares(text: str | Sequence[float]) -> tuple[float, ...]:
    """Returns the shares of train, valid and test, such as those of `0.8/0.1/0.1`, or raises a UsageError."""
    try:
        shares = tuple(float(share) for share in (text.split("/") if isinstance(text, str) else text))
    except (TypeError, ValueError):
        shares = ()
    if len(shares) != 3 or not (shares[0] > 0 and min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-6):
        raise UsageError(f"expected shares of train, valid and test with the sum 1, such as 0.8/0.1/0.1, got {text!r}")
    return shares
