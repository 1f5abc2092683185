"""What stands behind Hits@1: the answers that come first, whether they are plausible, and how sure the model is."""

from dataclasses import dataclass, fields

import numpy as np
import tensorflow as tf

from jobi_tf.data.occurrences import KnownAnswers, Occurrences, column
from jobi_tf.evaluation.ranks import Ranks
from jobi_tf.export.calibration import Bin, expected_calibration_error
from jobi_tf.models.jobi import JoBi

SCORES_A_BLOCK = 2**24


@dataclass(frozen=True)
class FirstAnswers:
    """The answer that comes first to each query, among the candidates of its rank.

    Args:
        entities: int32 [N].
        confidence: its share of the softmax over all candidates, float64 [N].
        right: whether it is the true answer, bool [N]. Where another candidate has the same score, it is not: as in
            Hits@1 with realistic ties.
        plausible: whether training saw it on that side of the relation, bool [N].
        true_plausible: the same of the true answer, bool [N].
    """

    entities: np.ndarray
    confidence: np.ndarray
    right: np.ndarray
    plausible: np.ndarray
    true_plausible: np.ndarray

    def implausible_share(self, chosen: np.ndarray | slice = slice(None), wrong_only: bool = False) -> float:
        """Returns the share of implausible answers, of all or of the wrong ones; NaN of none.

        Args:
            chosen: which of the queries count.
            wrong_only: leave out right answers.
        """
        plausible = self.plausible[chosen]
        if wrong_only:
            plausible = plausible[~self.right[chosen]]
        return float(1 - plausible.mean()) if len(plausible) else float("nan")

    @classmethod
    def concatenate(cls, parts: "list[FirstAnswers]") -> "FirstAnswers":
        """Joins the queries of `parts`."""
        return cls(*(np.concatenate([getattr(part, x.name) for part in parts]) for x in fields(cls)))


def first_answers(
    model: JoBi, known: KnownAnswers, occurrences: Occurrences, triples: np.ndarray, side: int, ranks: Ranks
) -> FirstAnswers:
    """Finds what comes first on one side of triples.

    Args:
        model: the model, whose scores are finite.
        known: answers that are left out as candidates, but for the true one: those that `ranks` were filtered with.
        occurrences: entities seen in training.
        triples: int [N, 3].
        side: `HEAD` or `TAIL`.
        ranks: the ranks of the triples on that side.
    """
    block = max(1, SCORES_A_BLOCK // model.num_entities)
    rows = model.candidates()
    blocks = (triples[i : i + block] for i in range(0, len(triples) or 1, block))
    parts = [_best_others(model, rows, known, x, side) for x in blocks]
    others, other_scores, true_scores, totals = (np.concatenate(x) for x in zip(*parts, strict=True))
    right = (ranks.greater == 0) & (ranks.equal == 0)
    true = triples[:, column(side)]
    entities = np.where(right, true, others).astype(np.int32)
    confidence = np.exp(np.where(right, true_scores, other_scores).astype(np.float64) - totals)
    plausible = [is_plausible(occurrences, side, triples[:, 1], x) for x in (entities, true)]
    return FirstAnswers(entities, confidence, right, *plausible)


def _best_others(
    model: JoBi, candidates: tf.Tensor, known: KnownAnswers, triples: np.ndarray, side: int
) -> tuple[np.ndarray, ...]:
    """Returns the best candidate besides the true answer, both scores, and log Σ exp of all candidates; each [b]."""
    scores = model.scores(tf.constant(triples, tf.int32), side, candidates)  # [b, E]
    answers = triples[:, column(side)]
    true = tf.gather(scores, answers, batch_dims=1)
    rows, entities = known.lookup(side, triples)
    places = np.stack([np.append(rows, np.arange(len(triples))), np.append(entities, answers)], 1)
    others = tf.tensor_scatter_nd_update(scores, places, tf.fill([len(places)], -np.inf))
    best = tf.argmax(others, 1, tf.int32)
    total = tf.reduce_logsumexp(tf.stack([tf.reduce_logsumexp(others, 1), true]), 0)
    return best.numpy(), tf.gather(others, best, batch_dims=1).numpy(), true.numpy(), total.numpy()


def is_plausible(occurrences: Occurrences, side: int, relations: np.ndarray, entities: np.ndarray) -> np.ndarray:
    """Tells whether training saw each entity on `side` of the relation beside it, bool [N]; both int [N]."""
    seen = occurrences.keys()
    rows = side * occurrences.num_relations + relations.astype(np.int64)
    keys = rows * occurrences.num_entities + entities
    return seen[np.minimum(np.searchsorted(seen, keys), len(seen) - 1)] == keys


def reliability(answers: FirstAnswers) -> tuple[float, tuple[Bin, ...]]:
    """Returns the expected calibration error of the confidence of first answers, and its bins."""
    return expected_calibration_error(answers.confidence, answers.right)
