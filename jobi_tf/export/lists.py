"""Lists that grow with the graph: which answers are known facts, and which answers are allowed."""

import numpy as np
import tensorflow as tf

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.occurrences import HEAD, TAIL, Occurrences, both_sides, find, query_keys
from jobi_tf.errors import UsageError

# Ends every list of keys, so that none is empty.
LAST_KEY = np.iinfo(np.int64).max


class AnswerLists(tf.Module):
    """What `predict_*` signatures look up about answers, as non-trainable variables.

    An answer is a place in 0 … `count` - 1: the id of an entity, or with `candidates` a place in that list. The lists
    of keys are int64, ascending, and end with `LAST_KEY`.

    Attributes:
        count: number of entities that may be answers.
        candidates: their ids, int32 [count], ascending and distinct, or None for all entities.
        known: keys `query · count + answer` of the facts of all splits, with the query keys of `KnownAnswers`.
        seen: keys `(side · relations + relation) · count + answer` of the pairs in training, or None if training
            need not have seen an answer on its side of the relation (`typed`).
    """

    def __init__(self, graph: Graph, candidates: np.ndarray | None = None, typed: bool = False):
        super().__init__()
        self.count = graph.num_entities if candidates is None else len(candidates)
        self.candidates = None if candidates is None else tf.Variable(candidates, trainable=False)
        if 2 * graph.num_entities * graph.num_relations * self.count > LAST_KEY:
            raise UsageError(
                f"expected at most 2^62 possible facts in an export, got {graph.num_entities:,} entities, "
                f"{graph.num_relations:,} relations and {self.count:,} candidates: give fewer candidates"
            )
        triples = np.concatenate([graph.split(name) for name in SPLITS])
        queries = [query_keys(side, triples, graph.num_entities, graph.num_relations) for side in (HEAD, TAIL)]
        self.known = _keys(np.concatenate(queries), both_sides(triples), self.count, candidates)
        self.seen = None
        if typed:
            rows, entities = np.divmod(Occurrences.of_graph(graph).keys(), graph.num_entities)
            self.seen = _keys(rows, entities, self.count, candidates)


def _keys(queries: np.ndarray, entities: np.ndarray, count: int, candidates: np.ndarray | None) -> tf.Variable:
    """Returns the keys of those entities that may be answers; queries and entities both [N]."""
    if candidates is not None:
        entities, allowed = find(candidates, entities)
        queries, entities = queries[allowed], entities[allowed]
    return tf.Variable(np.append(np.sort(queries * count + entities), LAST_KEY), trainable=False)
