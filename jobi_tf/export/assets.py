"""The files from which an exported model reads names, known facts and whom it may answer with."""

from pathlib import Path

import numpy as np

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.occurrences import Csr, Occurrences, triple_keys
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.errors import DataError
from jobi_tf.export.lists import write_list


def known_keys(graph: Graph) -> np.ndarray:
    """Returns the keys of the triples of all splits, int64, ascending and distinct."""
    return np.unique(np.concatenate([keys_of(graph.split(name), graph) for name in SPLITS]))


def keys_of(triples: np.ndarray, graph: Graph) -> np.ndarray:
    """Returns the keys of triples, int [..., 3] → int64 [...]."""
    head, relation, tail = np.moveaxis(triples.astype(np.int64), -1, 0)
    return triple_keys(head, relation, tail, graph.num_entities, graph.num_relations)


def read_candidates(path: Path, entities: Vocabulary) -> np.ndarray:
    """Reads names of entities, one a line, and returns their ids, int32, ascending and distinct.

    Raises:
        DataError: the file cannot be read, a name is unknown, or there is none.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"expected a file of entities at {path}: {error.strerror}") from None
    ids = set()
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            if name := line.removesuffix(b"\r").decode():
                ids.add(entities.id(name))
        except UnicodeDecodeError as error:
            raise DataError(f"{path}:{number}: expected text in UTF-8, got byte 0x{line[error.start]:02x}") from None
        except DataError as error:
            raise DataError(f"{path}:{number}: {error}") from None
    if not ids:
        raise DataError(f"expected names of entities in {path}, one a line, found none")
    return np.array(sorted(ids), np.int32)


def write_assets(folder: Path, graph: Graph, known: np.ndarray, candidates: np.ndarray | None, typed: bool) -> None:
    """Writes what `Servable` reads, into a new folder.

    Args:
        folder: the folder.
        graph: the graph.
        known: keys of all known triples.
        candidates: ids of the only entities that may be answers; None for all.
        typed: whether only entities may be answers that training saw on that side of the relation.
    """
    folder.mkdir()
    graph.entities.save(folder / "entities.txt")
    graph.relations.save(folder / "relations.txt")
    write_list(folder / "known.bin", known)
    if typed:
        seen = Occurrences.of_graph(graph).seen
        if candidates is not None:
            seen = _only(seen, candidates)
        write_list(folder / "seen_offsets.bin", seen.offsets.astype(np.int64))
        write_list(folder / "seen_entities.bin", seen.entities)
    elif candidates is not None:
        write_list(folder / "candidates.bin", candidates)


def _only(lists: Csr, entities: np.ndarray) -> Csr:
    """Returns the lists without any but `entities`, int32."""
    kept = np.isin(lists.entities, entities)
    return Csr(np.concatenate([[0], np.cumsum(kept)])[lists.offsets], lists.entities[kept])


def write_names(path: Path, names: Vocabulary, triples: np.ndarray) -> None:
    """Writes a table of ids, names and numbers of training triples, the latter int64 [names]."""
    rows = zip(names.names, triples.tolist(), strict=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("id\tname\ttriples\n")
        file.writelines(f"{i}\t{name}\t{count}\n" for i, (name, count) in enumerate(rows))


def write_tables(folder: Path, graph: Graph) -> None:
    """Writes `entities.tsv` and `relations.tsv` for whoever reads the export's ids."""
    head, relation, tail = np.asarray(graph.train).T
    count = np.bincount
    entities = sum(count(ids, minlength=graph.num_entities) for ids in (head, tail[head != tail]))
    write_names(folder / "entities.tsv", graph.entities, np.asarray(entities))
    write_names(folder / "relations.tsv", graph.relations, count(relation, minlength=graph.num_relations))
