"""The training triples of a graph as edges, whose paths of one and two steps are counted and followed."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from scipy import sparse

from jobi_tf.data.occurrences import HEAD, column, ranges

BLOCK = 2**22  # paths at once
CELLS = 2**25  # of a dense matrix at once
MOST_PATHS = 2**26  # paths that begin with one label, of which the others are counted


class Edges:
    """Triples, int [N, 3], as edges in both directions: label r + R leads from tail to head. Loops are left out.

    Row i of `targets` has the targets of the edges that leave `source[i]` with `label[i]`. Seen from a target, that is
    a feature: it has an edge of the label `inverse[i]` to `source[i]`, so that `features` is the transposed matrix.
    """

    def __init__(self, triples: np.ndarray, num_entities: int, num_relations: int):
        triples = np.asarray(triples, np.int64)
        head, relation, tail = triples[triples[:, 0] != triples[:, 2]].T
        self.num_entities, self.num_relations, self.labels = num_entities, num_relations, 2 * num_relations
        source, target = np.concatenate([head, tail]), np.concatenate([tail, head])
        label = np.concatenate([relation, relation + num_relations])
        keys, rows = np.unique(source * self.labels + label, return_inverse=True)
        self.source, self.label = np.divmod(keys, self.labels)
        self.inverse = (self.label + num_relations) % self.labels
        self.starts = np.searchsorted(self.source, np.arange(num_entities + 1))
        self.targets = incidence(rows, target, (len(keys), num_entities))  # [rows, E]
        self.features = self.targets.T.tocsr()  # [E, rows]
        self.paths = self.targets @ np.diff(self.features.indptr)  # of two steps, from each row
        pairs, place = np.unique(source * num_entities + target, return_inverse=True)
        self.held = incidence(place, label, (len(pairs), self.labels))  # labels between each connected pair
        numbers = np.arange(1, len(pairs) + 1, dtype=np.int32)
        self.pairs = sparse.csr_matrix((numbers, np.divmod(pairs, num_entities)), (num_entities, num_entities))

    def rows_of(self, entities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the places in `entities`, and the rows whose edges leave them."""
        counts = self.starts[entities + 1] - self.starts[entities]
        return np.repeat(np.arange(len(entities)), counts), ranges(self.starts[entities], counts)

    def queries(self, triples: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the known entity of each query, int64 [N], and the label of the edges to its answers, [N]."""
        known = triples[:, column(1 - side)].astype(np.int64)
        return known, triples[:, 1] + (self.num_relations if side == HEAD else 0)

    def row(self, source: int, label: int) -> int:
        """Returns the row of a source and a label."""
        start, end = self.starts[source : source + 2]
        return int(start + np.searchsorted(self.label[start:end], label))

    def two_steps(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Follows the edges of rows, and from there all edges except those back; yields blocks.

        Returns:
            The places in `rows`, the label of the second edge, and its target: the distinct ones of all paths.
        """
        block = np.cumsum(self.paths[rows]) // BLOCK
        most = max(1, CELLS // self.num_entities)
        for part in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(block)) + 1):
            for start in range(0, len(part), most):
                places = part[start : start + most]
                found = (self.targets[rows[places]] @ self.features).tocoo()
                place, target = places[found.row], self.source[found.col]
                away = target != self.source[rows[place]]
                yield place[away], self.inverse[found.col[away]], target[away]

    def count_two_steps(self, first: int) -> tuple[np.ndarray, sparse.csr_matrix]:
        """Counts the pairs that are joined by an edge of the label `first` and an edge of each other label.

        Beyond `MOST_PATHS` paths these are the pairs of some sources, which are drawn at random.

        Returns:
            The number of pairs, int64 [2R], and how many of them each label joins as well, int64 [2R, 2R].
        """
        (rows,) = np.nonzero(self.label == first)
        if self.paths[rows].sum() > MOST_PATHS:
            rows = np.random.default_rng(first).permutation(rows)
            rows = np.sort(rows[: 1 + np.searchsorted(np.cumsum(self.paths[rows]), MOST_PATHS)])
        body, hits = np.zeros(self.labels, np.int64), sparse.csr_matrix((self.labels, self.labels), dtype=np.int64)
        for place, second, target in self.two_steps(rows):
            body += np.bincount(second, minlength=self.labels)
            if not len(place):
                continue
            sources = self.source[rows[place[0] : place[-1] + 1]]  # of one label, so each occurs once
            pair = self.pairs[sources].toarray()[place - place[0], target]
            (joined,) = pair.nonzero()
            held = self.held[pair[joined] - 1].tocoo()
            each = np.ones(held.nnz, np.int64), (second[joined][held.row], held.col)
            hits += sparse.csr_matrix(each, hits.shape)  # which adds up equal places
        return body, hits

    @cached_property
    def one_step(self) -> tuple[np.ndarray, sparse.csr_matrix]:
        """The number of pairs that each label joins, int [2R], and how many of them each other one joins, [2R, 2R]."""
        hits = (self.held.T @ self.held).tocsr()
        body = hits.diagonal().astype(np.int64)  # products overflow in int32
        hits.setdiag(0)
        hits.eliminate_zeros()
        return body, hits


def incidence(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> sparse.csr_matrix:
    """Returns a sparse int32 matrix with 1 in the given places, which may repeat."""
    matrix = sparse.csr_matrix((np.ones(len(rows), np.int32), (rows, columns)), shape)
    matrix.data[:] = 1  # where a place was given several times
    return matrix
