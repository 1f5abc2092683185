"""What a trained model teaches another one: soft labels."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from jobi_tf.data.occurrences import SIDES, KnownAnswers
from jobi_tf.data.soft_labels import SoftLabels
from jobi_tf.errors import UsageError, check_at_least
from jobi_tf.evaluation.answers import ByName, scored_blocks

ANSWERS = 32  # of a query


def soft_labels(teacher: ByName, k: int = ANSWERS, progress: Callable[[int], object] | None = None) -> SoftLabels:
    """Finds the most likely answers to each query of training that are not training triples.

    They are soft labels (Hinton et al. 2015), from which another model learns: `query_batches(graph, soft_labels=…)`.
    The probability of an answer is the softmax of the teacher's scores over all entities.

    Args:
        teacher: a run that was trained with a softmax, or a pool of any runs.
        k: number of answers to a query.
        progress: called with the number of queries that are done, after each block.

    Raises:
        UsageError: `teacher` is another object, or `k` is below 1.
        JobiError: a score is not finite.

    Example:
        >>> jobi_tf.soft_labels(jobi_tf.Pool(["runs/a", "runs/b"])).save("teacher.npz")
        >>> jobi_tf.train("umls", recipe="strong", soft_labels="teacher.npz")
    """
    if not isinstance(teacher, ByName):
        raise UsageError(f"expected a run or a pool as teacher, got {type(teacher).__name__}")
    check_at_least(1, k=k)
    graph, known = teacher.graph, KnownAnswers.of_graph(teacher.graph, ["train"])
    anchors, relations, sides = known.queries().T
    k = min(k, graph.num_entities)
    entities = np.zeros((len(sides), k), np.int32)
    probabilities = np.zeros((len(sides), k), np.float32)
    for side in range(len(SIDES)):
        (rows,) = np.nonzero(sides == side)
        rows = rows[np.argsort(relations[rows], kind="stable")]  # rules are faster for queries of one relation
        start = 0
        for block, scores in scored_blocks(teacher.model, np.stack([anchors, relations, anchors], 1)[rows], side):
            facts = np.stack(known.lookup(side, block), 1)
            likely = tf.tensor_scatter_nd_update(tf.nn.softmax(scores), facts, tf.zeros(len(facts)))
            own, start = rows[start : start + len(block)], start + len(block)
            probabilities[own], entities[own] = (x.numpy() for x in tf.math.top_k(likely, k))
            if progress:
                progress(len(block))
    return SoftLabels(graph.fingerprint, entities, probabilities)
