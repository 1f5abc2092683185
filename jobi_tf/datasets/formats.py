"""Graphs in formats of other programs, as the CSV that `TripleReader` reads: RDF and Parquet."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from jobi_tf.data.graph import with_index
from jobi_tf.data.vocabulary import text_of
from jobi_tf.errors import DataError, needs

if TYPE_CHECKING:
    from jobi_tf.datasets.reading import Columns

RDF = {".nt": "nt", ".ttl": "turtle"}
SUFFIXES = (*RDF, ".parquet")
_RANDOM = "^n[0-9a-f]{32}"  # how a name that rdflib gives a node begins, before a number in the order of the file


def as_csv(path: Path, columns: "Columns") -> BinaryIO:
    """Returns the chosen columns of a file as CSV without a header: head, relation, tail and, if there is one, weight.

    Of RDF only triples whose object is a resource are taken, since literals are no entities.
    """
    rows = _parquet(path, columns) if path.suffix == ".parquet" else _rdf(path, columns)
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(map(text_of, row) for row in rows)
    return io.BytesIO(text.getvalue().encode("utf-8", "surrogateescape"))


def _rdf(path: Path, columns: "Columns") -> Iterable[Sequence[Any]]:
    with needs("RDF needs rdflib", "rdf"):
        import rdflib
    graph = rdflib.Graph()
    labels: dict[str, rdflib.BNode] = {}  # of nodes without a name in N-Triples
    try:
        graph.parse(path, format=RDF[path.suffix], **{"bnode_context": labels} if path.suffix == ".nt" else {})
    except OSError:
        raise
    except Exception as error:  # the parsers of rdflib raise errors of many kinds
        raise DataError(f"{path}: expected RDF ({RDF[path.suffix]}): {' '.join(str(error).split())[:200]}") from None
    label_of = {node: label for label, node in labels.items()}

    def name(node: rdflib.term.Node) -> str:
        """Nodes without a name have one within their file: rdflib gives them another one each time that it is read."""
        if not isinstance(node, rdflib.BNode):
            return str(node)
        return f"_:{path.name}:{label_of.get(node) or re.sub(_RANDOM, '', node)}"

    _, _, chosen = columns.locate(["head", "relation", "tail"], str(path), header=True)
    triples = (tuple(map(name, triple)) for triple in graph if not isinstance(triple[2], rdflib.Literal))
    rows = sorted(triples)  # a set has no order, and ids follow the order of rows
    if len(graph) and not rows:
        raise DataError(f"{path}: expected triples of resources, got {len(graph):,} with literals as objects")
    return ([row[i] for i in chosen] for row in rows)


def _parquet(path: Path, columns: "Columns") -> Iterable[Sequence[Any]]:
    with needs("Parquet needs pandas and pyarrow", "parquet"):
        import pandas as pd

        try:  # integers stay integers beside missing values
            frame = pd.read_parquet(path, dtype_backend="numpy_nullable")
        except ValueError as error:  # pyarrow's errors are such
            raise DataError(f"{path}: expected Parquet: {error}") from None
    frame = with_index(frame)
    _, _, chosen = columns.locate([*map(str, frame.columns)], str(path), header=True)
    return frame.iloc[:, chosen].itertuples(index=False)
