"""The loss of telling the relation of a triple from all others (Chen et al. 2021)."""

import tensorflow as tf

from jobi_tf.data.occurrences import HEAD, TAIL
from jobi_tf.models.reciprocal import Reciprocal
from jobi_tf.models.scorer import Scorer


def relation_loss(
    scorer: Scorer,
    relations: tf.Tensor,
    head: tf.Tensor,
    tail: tf.Tensor,
    relation: tf.Tensor,
    shares: tf.Tensor | None = None,
    side: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns the negative log-likelihood of triples' relations under a softmax over the scores of all relations.

    Args:
        scorer: a score function that has a `relation_query`.
        relations: what queries take for each relation, float32 [R, …].
        head: embeddings of the heads, float32 [N, width].
        tail: embeddings of the tails, float32 [N, width].
        relation: ids, int32 [N].
        shares: what each triple counts, float32 [N]; without it each 1 / N.
        side: the side that is sought, int32 [N]; without it reciprocal relations are told on both.

    Returns:
        float32 [].
    """
    if side is None and isinstance(scorer, Reciprocal):
        side = tf.repeat([HEAD, TAIL], tf.size(relation))
        head, tail, relation = (tf.concat([x, x], 0) for x in (head, tail, relation))
    scores = scorer.relation_scores(head, tail, relations, side)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(relation, scores)
    return tf.reduce_mean(losses) if shares is None else tf.reduce_sum(shares * losses)
