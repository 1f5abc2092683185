"""Graphs in formats of other programs, as the CSV that `TripleReader` reads: RDF and Parquet."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from jobi_tf.errors import DataError, MissingExtraError

RDF = {".nt": "nt", ".ttl": "turtle"}
SUFFIXES = (*RDF, ".parquet")


def as_csv(path: Path, named: bool) -> BinaryIO:
    """Returns the triples of a file as CSV.

    Of RDF only triples whose object is a resource are taken, since literals are no entities. Of Parquet all columns are
    taken with their names; or without `named` the first three, as head, relation and tail.

    Args:
        path: a file whose name ends in one of `SUFFIXES`.
        named: whether columns were chosen.

    Raises:
        MissingExtraError: rdflib, or pandas and pyarrow, are not installed.
        DataError: the file cannot be read.
    """
    rows = _parquet(path, named) if path.suffix == ".parquet" else _rdf(path)
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return io.BytesIO(text.getvalue().encode())


def _rdf(path: Path) -> Iterable[tuple[Any, ...]]:
    try:
        import rdflib
    except ImportError:
        raise MissingExtraError("RDF needs rdflib: pip install 'jobi-tf[rdf]'") from None
    graph = rdflib.Graph()
    try:
        graph.parse(path, format=RDF[path.suffix])
    except OSError:
        raise
    except Exception as error:  # the parsers of rdflib raise errors of many kinds
        raise DataError(f"{path}: expected RDF ({RDF[path.suffix]}): {' '.join(str(error).split())[:200]}") from None
    # A set has no order, and ids follow the order of rows.
    return sorted((str(s), str(p), str(o)) for s, p, o in graph if not isinstance(o, rdflib.Literal))


def _parquet(path: Path, named: bool) -> Iterable[tuple[Any, ...]]:
    try:
        import pandas as pd

        frame = pd.read_parquet(path)
    except ImportError:
        raise MissingExtraError("Parquet needs pandas and pyarrow: pip install 'jobi-tf[parquet]'") from None
    except ValueError as error:  # pyarrow's errors are such
        raise DataError(f"{path}: expected Parquet: {error}") from None
    if not named:
        if frame.shape[1] < 3:
            raise DataError(f"{path}: expected at least 3 columns, got {frame.shape[1]}")
        frame = frame.iloc[:, :3].set_axis(["head", "relation", "tail"], axis=1)
    return [tuple(frame.columns), *frame.itertuples(index=False)]
