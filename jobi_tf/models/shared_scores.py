"""Scores of chunks of triples whose negatives are shared: dense products, one a side."""

from collections.abc import Sequence

import tensorflow as tf

from jobi_tf.models.compiled import compiled
from jobi_tf.models.scorers import Scorer


def shared_scores(
    scorer: Scorer,
    relations: Sequence[tf.Tensor],
    head: tf.Tensor,
    tail: tf.Tensor,
    heads: tf.Tensor,
    tails: tf.Tensor,
) -> tf.Tensor:
    """Scores the triples of each chunk, and the candidates of the chunk in their places, by every model head.

    Args: embeddings, float32 [..., width].
        scorer: the score function.
        relations: of the relations of C chunks of c triples, for each of M model heads, [C, c, width].
        head: of the triples' heads, [C, c, width].
        tail: of the triples' tails, [C, c, width].
        heads: of the candidates that replace heads, [C, i, width].
        tails: of the candidates that replace tails, [C, j, width].

    Returns:
        float32 [M, C, c, 1 + i + j]: scores of each triple, and of the chunk's candidates in its place.
    """

    @tf.custom_gradient
    def scores(*inputs: tf.Tensor):  # type: ignore[no-untyped-def]
        return _compiled_scores(scorer, *inputs), lambda upstream: _gradients(scorer, upstream, *inputs)

    return scores(head, tail, heads, tails, *relations)


def _scores(
    scorer: Scorer, head: tf.Tensor, tail: tf.Tensor, heads: tf.Tensor, tails: tf.Tensor, *relations: tf.Tensor
) -> tf.Tensor:
    scores = []
    for relation in relations:
        head_query, tail_query = scorer.head_query(relation, tail), scorer.tail_query(head, relation)  # [C, c, width]
        of_triple = tf.reduce_sum(tail_query * tail, -1, keepdims=True)
        of_candidates = [
            tf.matmul(query, x, transpose_b=True) for query, x in ((head_query, heads), (tail_query, tails))
        ]
        scores.append(tf.concat([of_triple, *of_candidates], -1))
    return tf.stack(scores)


_compiled_scores = compiled(_scores)


@compiled
def _gradients(scorer: Scorer, upstream: tf.Tensor, *inputs: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        scores = _scores(scorer, *inputs)
    return tape.gradient(scores, inputs, upstream)
