"""Graphs in formats of other programs, as the CSV that `TripleReader` reads: RDF and Parquet."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from jobi_tf.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from jobi_tf.datasets.reading import Columns

RDF = {".nt": "nt", ".ttl": "turtle"}
SUFFIXES = (*RDF, ".parquet")

Table = tuple[list[str], Iterable[tuple[Any, ...]]]  # names of the columns, and rows


def as_csv(path: Path, columns: "Columns") -> BinaryIO:
    """Returns the chosen columns of a file as CSV without a header: head, relation, tail and, if there is one, weight.

    Of RDF only triples whose object is a resource are taken, since literals are no entities.

    Args:
        path: a file whose name ends in one of `SUFFIXES`.
        columns: which columns; by default those of a known header, else the first three.

    Raises:
        MissingExtraError: rdflib, or pandas and pyarrow, are not installed.
        DataError: the file cannot be read, or does not have these columns.
    """
    names, rows = _parquet(path) if path.suffix == ".parquet" else _rdf(path)
    _, _, chosen = columns.locate(names, str(path), header=True)
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([_text(row[i]) for i in chosen] for row in rows)
    return io.BytesIO(text.getvalue().encode("utf-8", "surrogateescape"))


def _text(value: Any) -> Any:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _rdf(path: Path) -> Table:
    try:
        import rdflib
        from rdflib.compare import to_canonical_graph
    except ImportError:
        raise MissingExtraError("RDF needs rdflib: pip install 'jobi-tf[rdf]'") from None
    graph = rdflib.Graph()
    try:
        graph.parse(path, format=RDF[path.suffix])
    except OSError:
        raise
    except Exception as error:  # the parsers of rdflib raise errors of many kinds
        raise DataError(f"{path}: expected RDF ({RDF[path.suffix]}): {' '.join(str(error).split())[:200]}") from None
    if any(isinstance(node, rdflib.BNode) for node in graph.all_nodes()):
        graph = to_canonical_graph(graph)  # nodes without a name get another one each time that they are read
    # A set has no order, and ids follow the order of rows.
    rows = sorted((str(s), str(p), str(o)) for s, p, o in graph if not isinstance(o, rdflib.Literal))
    return ["head", "relation", "tail"], rows


def _parquet(path: Path) -> Table:
    try:
        import pandas as pd

        # Integers stay integers beside missing values, which are None here and empty fields of the CSV.
        frame = pd.read_parquet(path, dtype_backend="numpy_nullable").astype(object)
    except ImportError:
        raise MissingExtraError("Parquet needs pandas and pyarrow: pip install 'jobi-tf[parquet]'") from None
    except ValueError as error:  # pyarrow's errors are such
        raise DataError(f"{path}: expected Parquet: {error}") from None
    return [*map(str, frame.columns)], frame.where(frame.notna(), None).itertuples(index=False)
