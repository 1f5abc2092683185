"""Scores of chunks of triples whose negatives are shared: dense products, one a side."""

from collections.abc import Sequence
from functools import partial

import tensorflow as tf

from jobi_tf.models.compiled import compiled
from jobi_tf.models.scorer import Scorer


def shared_scores(
    scorer: Scorer,
    relations: Sequence[tf.Tensor],
    head: tf.Tensor,
    tail: tf.Tensor,
    heads: tf.Tensor,
    tails: tf.Tensor,
    anchors: Sequence[tf.Tensor] = (),
) -> tf.Tensor:
    """Scores the triples of each chunk, and the candidates of the chunk in their places, by every model head.

    Args: embeddings, float32 [..., width].
        scorer: the score function.
        relations: what the queries take for the relations of C chunks of c triples, for each of M model heads,
            [C, c, …].
        head: of the triples' heads, [C, c, width].
        tail: of the triples' tails, [C, c, width].
        heads: of the candidates that replace heads, [C, i, width].
        tails: of the candidates that replace tails, [C, j, width].
        anchors: what queries are made of in place of `head` and `tail`, two of [C, c, width]; without them of these.

    Returns:
        float32 [M, C, c, 1 + i + j]: scores of each triple, and of the chunk's candidates in its place.
    """

    head, tail, *answers = (*anchors, tail) if anchors else (head, tail)

    @tf.custom_gradient
    def scores(*inputs: tf.Tensor):  # type: ignore[no-untyped-def]
        arguments = scorer, len(answers), *inputs
        return _compiled_scores(*arguments), lambda upstream: _gradients(upstream, *arguments)

    return scores(head, tail, heads, tails, *answers, *relations)


def _scores(
    scorer: Scorer,
    answers: int,
    head: tf.Tensor,
    tail: tf.Tensor,
    heads: tf.Tensor,
    tails: tf.Tensor,
    *others: tf.Tensor,
) -> tf.Tensor:
    """See `shared_scores`; `others` are `answers` times the tails as candidates, if not `tail`, and the relations."""
    relations, answer = others[answers:], others[0] if answers else tail
    tail_candidate, *candidates = (scorer.candidate(rows) for rows in (answer, heads, tails))
    scores = []
    for relation in relations:
        queries = scorer.head_query(relation, tail), scorer.tail_query(head, relation)  # [C, c, length]
        parts = [scorer.scores(queries[1], lambda x: tf.reduce_sum(x * tail_candidate, -1, keepdims=True))]
        for query, rows in zip(queries, candidates, strict=True):
            parts.append(scorer.scores(query, partial(tf.matmul, b=rows, transpose_b=True)))
        scores.append(tf.concat(parts, -1))
    return tf.stack(scores)


_compiled_scores = compiled(_scores)


@compiled
def _gradients(upstream: tf.Tensor, scorer: Scorer, answers: int, *inputs: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        scores = _scores(scorer, answers, *inputs)
    return tape.gradient(scores, inputs, upstream)
