"""Candidates that the training triples rule out: by relations that exclude each other, and entities themselves."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from scipy import sparse

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import ranges
from jobi_tf.evaluation.edges import Edges

EXPECTED = 5  # pairs expected by chance, above which finding none is an exclusion


class NumpyModel:
    """Scores that NumPy computes, as a model to rank by.

    `score` returns, for triples, int [N, 3], and a side, the scores of every entity there, float32 [N, E].
    """

    def __init__(self, graph: Graph, score: Callable[[np.ndarray, int], np.ndarray]):
        self.num_entities, self.num_relations, self._score = graph.num_entities, graph.num_relations, score

    def candidates(self) -> tf.Tensor:
        """Returns an empty tensor: there are no embeddings of candidates."""
        return tf.zeros([0])

    def scores(self, triples: tf.Tensor, side: int, candidates: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the scores of every entity on one side: int [N, 3] → float32 [N, E]; see `JoBi.scores`."""
        triples = tf.convert_to_tensor(triples)
        scores = tf.numpy_function(lambda x: self._score(x, side), [triples], tf.float32)
        return tf.ensure_shape(scores, [triples.shape[0], self.num_entities])


class Exclusions(NumpyModel):
    """Scores -1 for the candidates that the training triples rule out, 0 for all others.

    Two relations, each in either direction, exclude each other if they join no pair of entities in common, though more
    than five such pairs are expected: n·m / N, for relations that join n and m of the N pairs that any relation joins.
    A candidate for r(X, Y) is excluded if a training triple joins X and Y by a relation that excludes r. X itself is
    excluded if no training triple is r(X, X) for any X, though more than five are expected: n·E / (N + E).

    Attributes:
        expected: pairs expected of two labels that exclude each other, 0 for others, sparse float [2R, 2R].
        loops: loops expected of a label that has none, 0 for others, float [2R].
    """

    def __init__(self, graph: Graph, edges: Edges):
        super().__init__(graph, self.excluded)
        body, hits = edges.one_step
        head, relation, tail = np.asarray(graph.train).T
        loops = np.tile(np.bincount(relation[head == tail], minlength=graph.num_relations), 2)
        pairs, entities = edges.held.shape[0], graph.num_entities
        # Only labels that are expected to join more than five pairs in common: a matrix of all may not fit into memory.
        order = np.argsort(-body, kind="stable")
        counts = np.searchsorted(-body[order], -EXPECTED * max(pairs, 1) / np.maximum(body, 1))
        rows, columns = np.repeat(np.arange(len(body)), counts), order[ranges(np.zeros_like(counts), counts)]
        expected = sparse.csr_matrix((body[rows] * body[columns] / max(pairs, 1), (rows, columns)), hits.shape)
        self.expected = expected - expected.multiply((hits + sparse.diags(body, dtype=np.int64)) > 0)
        self.expected.eliminate_zeros()
        by_chance = body * entities / (pairs + entities)
        self.loops = np.where((loops == 0) & (by_chance > EXPECTED), by_chance, 0)
        self._edges = edges

    def excluded(self, triples: np.ndarray, side: int) -> np.ndarray:
        """Returns the scores as an array."""
        scores = np.zeros((len(triples), self.num_entities), np.float32)
        entities, labels = self._edges.queries(triples, side)
        place, rows = self._edges.rows_of(entities)
        against = np.asarray(self.expected[self._edges.label[rows], labels[place]]).ravel() > 0
        targets = self._edges.targets[rows[against]].tocoo()
        scores[place[against][targets.row], targets.col] = -1
        (alone,) = self.loops[labels].nonzero()
        scores[alone, entities[alone]] = -1
        return scores
