"""Soft labels: likely answers to the queries of training, with the probabilities that a teacher gives to them."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from jobi_tf.data.graph import Graph, check_is_graph
from jobi_tf.errors import DataError, damaged
from jobi_tf.files import written_beside


class SoftLabels(NamedTuple):
    """For each query of training, the answers that a teacher finds most likely among those that are not in training.

    Where there are fewer than k, the remaining entries have probability 0. Queries are in the order of
    `KnownAnswers.of_graph(graph, ["train"])`. `jobi_tf.soft_labels` makes them.

    Args:
        fingerprint: that of the graph.
        entities: the answers, int32 [queries, k].
        probabilities: those that the teacher gives to them among all entities, float32 [queries, k].
    """

    fingerprint: str
    entities: np.ndarray
    probabilities: np.ndarray

    def __repr__(self) -> str:
        queries, k = self.entities.shape
        return f"<SoftLabels: {queries:,} queries with {k} answers each>"

    def save(self, path: str | Path) -> None:
        """Writes an .npz file."""
        with written_beside(Path(path)) as beside, beside.open("wb") as file:
            np.savez_compressed(file, **self._asdict())

    @classmethod
    def load(cls, path: str | Path, graph: Graph) -> "SoftLabels":
        """Reads such a file.

        Raises:
            DataError: the file cannot be read, or it is of another graph.
        """
        with damaged("soft labels", path), np.load(path) as file:
            labels = cls(str(file["fingerprint"]), file["entities"], file["probabilities"])
        labels.check(graph)
        return labels

    def check(self, graph: Graph) -> None:
        """Raises a `DataError` if they are of another graph."""
        check_is_graph(graph)
        if self.fingerprint != graph.fingerprint:
            expected, given = (x.fingerprint[:8] for x in (graph, self))
            raise DataError(f"expected soft labels of {graph.name} ({expected}), got those of another graph ({given})")

    def shares(self, weight: float) -> np.ndarray:
        """Returns the share of the target of its query that each answer gets, float32 [queries, k].

        The odds of all of them together are `weight` times those that the teacher gives to them.
        """
        together = self.probabilities.sum(1, keepdims=True)
        return weight * self.probabilities / (1 + (weight - 1) * together)
