"""Reading triples from text, line by line, into ids."""

import csv
import gzip
import io
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from jobi_tf.datasets.layout import Layout
from jobi_tf.errors import DataError

_MAGIC = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x1f\x8b": "gzip data", b"PK\x03\x04": "a zip archive"}
_SEPARATOR_NAMES = {"\t": "TABs", ",": "commas"}


class Names(dict[str, int]):
    """Ids of names by first appearance: looking up a new name gives it the next id."""

    def __missing__(self, name: str) -> int:
        # Every name passes here exactly once, so that the loop over the lines need not check any.
        if not name or name.isspace():
            raise ValueError("expected a head, a relation and a tail, got an empty field")
        if "\0" in name:
            raise ValueError("expected text, got NUL bytes (a binary file, or UTF-16?)")
        if "\n" in name or "\r" in name:
            raise ValueError("expected names without line breaks, got one (do lines end in CR only?)")
        self[name] = identity = len(self)
        return identity


@dataclass(frozen=True)
class Text:
    """One file of triples.

    Args:
        where: its name in messages.
        separator: TAB, or a comma for CSV with quotes.
        layout: which columns hold the triple, and whether there is a header.
    """

    where: str
    separator: str = "\t"
    layout: Layout = field(default_factory=Layout)

    def read(self, stream: BinaryIO, entities: Names, relations: Names) -> tuple[np.ndarray, int]:
        """Reads all triples and adds their names to `entities` and `relations`.

        Returns:
            The triples as int32 [N, 3], and the number of the line that the first of them stands on.

        Raises:
            DataError: a line is not a triple; the message says which and why.
        """
        rows = self._rows(stream)
        first = next(rows, None)
        if first is None:
            raise DataError(f"{self.where}: expected triples, the file is empty")
        header, width, columns = self.layout.resolve(first, self.where)
        start = 2 if header else 1
        ids = self._ids(rows if header else chain([first], rows), start, width, columns, entities, relations)
        if not ids:
            raise DataError(f"{self.where}: expected triples, found only {'a header' if header else 'blank lines'}")
        return np.frombuffer(ids, np.int32).reshape(-1, 3), start

    def _ids(
        self,
        rows: Iterable[list[str]],
        start: int,
        width: int,
        columns: tuple[int, int, int],
        entities: Names,
        relations: Names,
    ) -> array:
        """Returns head, relation and tail ids of all rows, one after the other."""
        ids = array("i")
        extend = ids.extend
        head, relation, tail = columns
        blank = 0
        number, fields = start, list[str]()
        try:
            for number, fields in enumerate(rows, start):
                if len(fields) != width or blank:
                    if len(fields) <= 1 and not "".join(fields).strip():
                        blank = blank or number
                        continue
                    if blank:
                        raise DataError(f"{self.where}:{blank}: expected a triple, got a blank line inside the file")
                    raise ValueError(self._wrong_count(fields, width))
                extend((entities[fields[head]], relations[fields[relation]], entities[fields[tail]]))
        except DataError:
            raise
        except ValueError as problem:
            raise DataError(f"{self.where}:{number}: {problem}: {self._shown(fields)}") from None
        return ids

    def _wrong_count(self, fields: list[str], width: int) -> str:
        """Returns what is wrong with a row that has another number of fields than `width`."""
        line = self.separator.join(fields)
        what = "3 fields (head, relation, tail)" if width == 3 else f"{width} fields as in line 1"
        hint = ""
        if "\0" in line:
            hint = " (it holds NUL bytes: a binary file, or UTF-16?)"
        elif "\r" in line:
            hint = " (do lines end in CR only?)"
        elif len(fields) == 1:
            others = {",": "commas", "\t": "TABs", ";": "semicolons", " ": "spaces"}
            hint = next((f" (are they separated by {others[s]}?)" for s in others if line.count(s) == width - 1), "")
        return f"expected {what} separated by {_SEPARATOR_NAMES[self.separator]}, got {len(fields)}{hint}"

    def _shown(self, fields: list[str]) -> str:
        line = self.separator.join(fields)
        return repr(line if len(line) <= 80 else line[:77] + "...")

    def _rows(self, stream: BinaryIO) -> Iterator[list[str]]:
        lines = self._lines(stream)
        return self._csv_rows(lines) if self.separator == "," else (line.split("\t") for line in lines)

    def _csv_rows(self, lines: Iterator[str]) -> Iterator[list[str]]:
        reader = csv.reader(lines, strict=True)
        number = 0
        while True:
            number += 1
            try:
                row = next(reader, None)
            except csv.Error as problem:
                raise DataError(f"{self.where}:{number}: expected CSV, got a line that is not ({problem})") from None
            if row is None:
                return
            if reader.line_num != number:
                # Rows and lines run in step, so that a row's line is known without keeping a number for each.
                raise DataError(
                    f"{self.where}:{number}: expected one row a line, got quotes that are closed only in line "
                    f"{reader.line_num}"
                )
            yield row

    def _lines(self, stream: BinaryIO) -> Iterator[str]:
        number = 0
        try:
            for number, raw in enumerate(stream, 1):
                if number == 1:
                    self._refuse_other_formats(raw)
                    raw = raw.removeprefix(b"\xef\xbb\xbf")  # byte order mark
                try:
                    line = raw.decode("utf-8")
                except UnicodeDecodeError as problem:
                    raise DataError(
                        f"{self.where}:{number}: expected UTF-8, got byte 0x{raw[problem.start]:02x} "
                        f"at position {problem.start + 1} of the line"
                    ) from None
                yield line.rstrip("\r\n")
        except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
            raise DataError(
                f"{self.where}: expected a whole gzip file, got one that is truncated or corrupt after line {number} "
                f"({problem})"
            ) from None
        except OSError as problem:
            raise DataError(f"{self.where}: cannot be read: {problem.strerror or problem}") from None

    def _refuse_other_formats(self, raw: bytes) -> None:
        for magic, kind in _MAGIC.items():
            if raw.startswith(magic):
                advice = {"UTF-16": "convert it, as with iconv -f UTF-16 -t UTF-8", "gzip data": "name the file .gz"}
                how = f" ({advice[kind]})" if kind in advice else ""
                raise DataError(f"{self.where}:1: expected text in UTF-8, got {kind}{how}")


def open_file(path: Path) -> BinaryIO:
    """Opens a file for reading bytes; one whose name ends in .gz is decompressed on the way.

    Raises:
        DataError: the file cannot be opened.
    """
    try:
        if path.suffix == ".gz":
            # GzipFile hands out lines in Python; the buffer around it does so in C, three times as fast.
            return io.BufferedReader(gzip.open(path), 1 << 20)
        return path.open("rb")
    except OSError as problem:
        raise DataError(f"{path}: cannot be read: {problem.strerror}") from None
