"""Lists that grow with the graph: which answers are known facts, and which answers are allowed."""

import numpy as np
import tensorflow as tf

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.occurrences import SIDES, Occurrences, column, triple_keys

# Ends every list of keys, so that none is empty.
LAST_KEY = np.iinfo(np.int64).max


class AnswerLists(tf.Module):
    """What `predict_*` signatures look up about answers, as non-trainable variables.

    An answer is a place in 0 … `count` - 1: the id of an entity, or with `candidates` a place in that list. The lists
    of keys are int64, ascending, and end with `LAST_KEY`.

    Args:
        graph: the graph.
        candidates: ids of the only entities that may be answers, int32, ascending and distinct; None for all.
        typed: whether only entities may be answers that training saw on that side of the relation.

    Attributes:
        count: number of entities that may be answers.
        candidates: their ids, int32 [count], or None for all entities.
        known: for each side (`HEAD`, `TAIL`) the keys `query · count + answer` of the facts of all splits, where the
            query is `known entity · relations + relation`.
        seen: keys `(side · relations + relation) · count + answer` of the pairs in training, or None without `typed`.
    """

    def __init__(self, graph: Graph, candidates: np.ndarray | None = None, typed: bool = False):
        super().__init__()
        self.num_relations = graph.num_relations
        self.count = graph.num_entities if candidates is None else len(candidates)
        self.candidates = None if candidates is None else tf.Variable(candidates, trainable=False)
        known = (known_keys(graph, side, candidates) for side in range(len(SIDES)))
        self.known = [tf.Variable(np.append(keys, LAST_KEY), trainable=False) for keys in known]
        self.seen = None
        if typed:
            rows, entities = np.divmod(Occurrences.of_graph(graph).keys(), graph.num_entities)
            answers = _places(entities, candidates)
            keys = (rows * self.count + answers)[answers >= 0]
            self.seen = tf.Variable(np.append(keys, LAST_KEY), trainable=False)


def known_keys(graph: Graph, side: int, candidates: np.ndarray | None = None) -> np.ndarray:
    """Returns the keys of the facts of all splits as answers on `side`, as in `AnswerLists.known`: int64."""
    triples = np.concatenate([graph.split(name) for name in SPLITS]).astype(np.int64)
    answers = _places(triples[:, column(side)], candidates)
    count = graph.num_entities if candidates is None else len(candidates)
    keys = triple_keys(triples[:, column(1 - side)], triples[:, 1], answers, count, graph.num_relations)
    return np.sort(keys[answers >= 0])


def _places(entities: np.ndarray, candidates: np.ndarray | None) -> np.ndarray:
    """Returns the places of entities in `candidates`, int64 [N], -1 for others."""
    if candidates is None:
        return entities.astype(np.int64)
    places = np.minimum(np.searchsorted(candidates, entities), len(candidates) - 1)
    return np.where(candidates[places] == entities, places, -1)
