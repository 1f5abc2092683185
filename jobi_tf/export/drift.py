"""What storing the tables in fewer bits does to scores."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from jobi_tf.data.occurrences import HEAD, TAIL, column
from jobi_tf.export.servable import Servable
from jobi_tf.models.jobi import JoBi

MOST_QUERIES = 2000
BLOCK_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Drift:
    """How scores of the export differ from the model's.

    Args:
        most: greatest difference of a triple's score.
        mean: mean difference.
        same_best: share of queries, on both sides, with the same best answer, 0 to 1.
        triples: number of triples.
        queries: number of queries.
    """

    most: float
    mean: float
    same_best: float
    triples: int
    queries: int


def measure_drift(model: JoBi, servable: Servable, triples: np.ndarray) -> Drift:
    """Compares scores of `triples`, int32 [N, 3], and the best answers to the queries of the first of them."""
    ids = tf.constant(triples)
    differences = np.abs(model.score(ids).numpy() - servable.scores(*tf.unstack(ids, axis=1)).numpy())
    asked = triples[:MOST_QUERIES]
    rows = max(1, BLOCK_BYTES // (4 * model.num_entities))
    same = [
        _same_best(model, servable, tf.constant(asked[start : start + rows]), side)
        for side in (HEAD, TAIL)
        for start in range(0, len(asked), rows)
    ]
    return Drift(
        float(differences.max()),
        float(differences.mean()),
        float(np.concatenate(same).mean()),
        len(ids),
        2 * len(asked),
    )


def _same_best(model: JoBi, servable: Servable, triples: tf.Tensor, side: int) -> np.ndarray:
    """Tells for which triples, int32 [B, 3], the best answer on `side` is the same, bool [B]."""
    before = model.scores(triples, side)
    after = servable.scores_of_all(servable.queries(side, triples[:, column(1 - side)], triples[:, 1]))
    return (tf.argmax(before, 1) == tf.argmax(after, 1)).numpy()
