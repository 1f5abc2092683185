"""How storing the tables in fewer bits changes scores and answers."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from jobi_tf.data.occurrences import HEAD, TAIL, column
from jobi_tf.export.stored_model import StoredModel

MAX_QUERIES = 500


@dataclass(frozen=True)
class Drift:
    """How the scores of an export differ from the model's."""

    most: float  # greatest difference of a triple's score
    mean: float  # mean difference
    same_best: float  # share of queries, on both sides, with the same best answer, 0 to 1
    triples: int  # their number
    queries: int  # their number

    def __str__(self) -> str:
        """Returns the differences in one sentence."""
        return (
            f"scores of {self.triples:,} triples differ by {self.mean:.2g} on average, {self.most:.2g} at most; "
            f"{self.same_best:.2%} of {self.queries:,} queries have the same best answer"
        )


def measure_drift(exact: StoredModel, rounded: StoredModel, triples: np.ndarray) -> Drift:
    """Compares the scores of `triples`, int32 [N, 3], and the best answers to the first of them as queries."""
    differences = np.abs(exact.scores_of(triples) - rounded.scores_of(triples))
    queries = tf.unstack(tf.constant(triples[:MAX_QUERIES], tf.int64), axis=1)
    same = []
    for side in (HEAD, TAIL):
        answers = [model.best(side, queries[column(1 - side)], queries[1], 1)[1] for model in (exact, rounded)]
        same.append((answers[0] == answers[1]).numpy())
    equal, most = np.concatenate(same), float(differences.max())
    return Drift(most, float(differences.mean()), float(equal.mean()), len(triples), len(equal))
