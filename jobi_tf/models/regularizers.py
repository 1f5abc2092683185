"""Regularisers: losses that are added for the training triples of a batch."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from jobi_tf.data.occurrences import HEAD, TAIL
from jobi_tf.errors import UsageError, check_numbers
from jobi_tf.models.layers import Head
from jobi_tf.models.scorers.scorer import Named, Relations, Scorer, named_object

SMALLEST = 1e-30  # keeps the gradient of a square root finite where a number is zero


@dataclass(frozen=True)
class Positives:
    """The training triples of a batch, as N pairs of a known entity and its answer, given by embeddings."""

    anchor: tf.Tensor  # those of the known entities, float32 [N, width]: heads, unless relations are reciprocal
    answer: tf.Tensor  # those of the answers, float32 [N, width]
    relation: tf.Tensor  # row of each pair's relation in the relation embeddings of a head, int32 [N]
    distinct: Sequence[tf.Tensor]  # for each head those of the distinct relations, float32 [U, relation width]
    place: tf.Tensor  # row of each pair's relation in these, int32 [N]
    weight: tf.Tensor  # what each pair counts, float32 [N]
    triples: float = 1.0  # the share of a triple that a pair stands for: 1/2 where each occurs once for each side


class Regularizer(Named, ABC):
    """Base class of terms that are added to the loss, computed from the training triples of a batch and the heads.

    Attributes:
        linear_only: whether the scorer must be linear in the relation.
    """

    linear_only = False

    @abstractmethod
    def __call__(self, positives: Positives, heads: Sequence[Head]) -> tf.Tensor:
        """Returns the loss to add, including its weight."""


class _Norm(Regularizer):
    """The mean over triples of a function of the sizes of head, relation and tail."""

    weight: float
    pair_weight: float

    @abstractmethod
    def penalty(self, squares: tf.Tensor) -> tf.Tensor:
        """Returns the penalty on each row, given the squares |x|² of its numbers: [..., n] → [...]."""

    def __call__(self, positives: Positives, heads: Sequence[Head]) -> tf.Tensor:
        """Returns the penalty on entities, and on the relations of each head."""
        scorer = heads[0].scorer
        of_entities = [self.penalty(scorer.entity_squares(x)) for x in (positives.anchor, positives.answer)]
        total = self.weight * tf.reduce_sum(positives.weight * tf.add_n(of_entities))
        for rows, weight in zip(positives.distinct, (self.weight, self.pair_weight), strict=False):
            counts = tf.math.unsorted_segment_sum(positives.weight, positives.place, tf.shape(rows)[0])
            total += weight * tf.reduce_sum(counts * self.penalty(scorer.relation_squares(rows)))
        return total


@keras.saving.register_keras_serializable("jobi_tf")
class N3(_Norm):
    """Mean over triples of weight / 3 · Σ |x|³ over the embeddings of head, relation and tail.

    |x| is the modulus of complex numbers.

    Args:
        weight: weight for entities, and for relations of the triple head.
        pair_weight: weight for relations of the pair head.

    Reference: Lacroix et al., Canonical Tensor Decomposition for Knowledge Base Completion, ICML 2018.
    """

    def __init__(self, weight: float = 0.1, pair_weight: float = 0.0):
        check_numbers("[0, inf)", weight=weight, pair_weight=pair_weight)
        self.weight, self.pair_weight = weight, pair_weight

    def penalty(self, squares: tf.Tensor) -> tf.Tensor:
        """Returns 1/3 · Σ |x|³."""
        return tf.reduce_sum(squares * tf.sqrt(squares + SMALLEST), -1) / 3


@keras.saving.register_keras_serializable("jobi_tf")
class L2(_Norm):
    """Mean over triples of weight / 2 · Σ |x|² over the embeddings of head, tail, and relation in each head."""

    def __init__(self, weight: float = 0.01):
        check_numbers("[0, inf)", weight=weight)
        self.weight = self.pair_weight = weight

    def penalty(self, squares: tf.Tensor) -> tf.Tensor:
        """Returns 1/2 · Σ |x|²."""
        return tf.reduce_sum(squares, -1) / 2


@keras.saving.register_keras_serializable("jobi_tf")
class RelationPrediction(Regularizer):
    """Mean over triples of weight times the negative log-likelihood of the relation.

    The likelihood is a softmax over the scores of the triple head for all relations between head and tail; with
    reciprocal relations, it includes their inverses, on both sides. Queries against all entities contain each triple
    once for each side, with half the weight, so a weight in the paper corresponds to twice that weight here.

    Reference: Chen et al., Relation Prediction as an Auxiliary Training Objective, AKBC 2021.
    """

    name = "relation_prediction"
    linear_only = True

    def __init__(self, weight: float = 1.0):
        check_numbers("[0, inf)", weight=weight)
        self.weight = weight

    def __call__(self, positives: Positives, heads: Sequence[Head]) -> tf.Tensor:
        """Returns the loss of the triple head."""
        head = heads[0]
        query = head.scorer.relation_query(positives.anchor, positives.answer)
        scores = tf.matmul(query, head.all_relations(), transpose_b=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(positives.relation, scores)
        return self.weight * positives.triples * tf.reduce_sum(positives.weight * losses)


@keras.saving.register_keras_serializable("jobi_tf")
class DURA(Regularizer):
    """Mean over triples of weight / 2 · (|h|² + |t|² + |h·R|² + |R·t|²) in the triple head.

    h·R is the query for the tail and R·t the query for the head, so entities that answer the same queries become more
    similar. The scorer must be the dot product of a query and an embedding.

    Reference: Zhang et al., Duality-Induced Regularizer for Tensor Factorization Based Knowledge Graph Completion,
    NeurIPS 2020.
    """

    linear_only = True

    def __init__(self, weight: float = 0.05):
        check_numbers("[0, inf)", weight=weight)
        self.weight = weight

    def __call__(self, positives: Positives, heads: Sequence[Head]) -> tf.Tensor:
        """Returns the penalty on entities and queries."""
        scorer = heads[0].scorer
        relations = Relations(heads[0].prepared(positives.distinct[0]), positives.place)
        queries = [scorer.queries(TAIL, positives.anchor, relations), scorer.queries(HEAD, positives.answer, relations)]
        squares = [tf.reduce_sum(x * x, -1) for x in (positives.anchor, positives.answer, *queries)]
        return self.weight / 2 * tf.reduce_sum(positives.weight * tf.add_n(squares))


REGULARIZERS = {"n3": N3, "l2": L2, "dura": DURA, "relation_prediction": RelationPrediction}


def get_all(
    regularizers: str | Regularizer | Sequence[str | dict[str, Any] | Regularizer] | None, scorer: Scorer
) -> list[Regularizer]:
    """Returns the regularisers of a model, each given by its name, by its serialised form or as it is.

    Raises:
        UsageError: there is no such regulariser, there are two of one name, one does not suit the scorer, or has the
            name of a metric.
    """
    given = [regularizers] if isinstance(regularizers, str | Regularizer) else regularizers or ()
    if not isinstance(given, list | tuple):
        raise UsageError(f"expected a list of regularizers, got {given!r}")
    objects = [named_object(x, Regularizer, REGULARIZERS) for x in given]
    for x in objects:
        if x.name in ("loss", "triple_loss", "pair_loss"):
            raise UsageError(
                f"expected a regularizer of another class name, got {type(x).__name__}, the name of a metric"
            )
    if len({x.name for x in objects}) < len(objects):
        raise UsageError(f"expected each regularizer once, got {', '.join(x.name for x in objects)}")
    for regularizer in objects:
        if regularizer.linear_only and not scorer.linear_in_relations:
            raise UsageError(f"expected a scorer linear in the relation for {regularizer.name}, got {scorer.name}")
    return objects
