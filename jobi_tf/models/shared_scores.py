"""Scores of chunks of triples whose negatives are shared: dense products, one a side."""

from collections.abc import Sequence
from functools import partial

import tensorflow as tf

from jobi_tf.compiled import compiled
from jobi_tf.models.scorer import Scorer


def shared_scores(
    scorer: Scorer,
    relations: Sequence[tf.Tensor],
    head: tf.Tensor,
    tail: tf.Tensor,
    heads: tf.Tensor,
    tails: tf.Tensor,
    anchors: Sequence[tf.Tensor] = (),
    by_side: bool = False,
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
        by_side: heads and tails, as many, have scores by themselves, each with the triple's on that side before them.

    Returns:
        float32 [M, C, c, 1 + i + j]: scores of each triple, and of the chunk's candidates in its place. By side
        [M, C, c, 2, 1 + i].
    """
    # What a triple is scored by itself with: its tail, as the answer to the tail query; by side its head too.
    answers = [head, tail][0 if by_side else 1 :] if anchors else []
    head, tail = anchors or (head, tail)

    @tf.custom_gradient
    def scores(*inputs: tf.Tensor):  # type: ignore[no-untyped-def]
        arguments = scorer, len(answers), by_side, *inputs
        return _compiled_scores(*arguments), lambda upstream: _gradients(upstream, *arguments)

    return scores(head, tail, heads, tails, *answers, *relations)


def _scores(
    scorer: Scorer,
    answers: int,
    by_side: bool,
    head: tf.Tensor,
    tail: tf.Tensor,
    heads: tf.Tensor,
    tails: tf.Tensor,
    *others: tf.Tensor,
) -> tf.Tensor:
    """See `shared_scores`; `others` are so many `answers`, if they are other than head and tail, and the relations."""
    own = others[:answers] or ((head, tail) if by_side else (tail,))
    of_triple = [partial(_products, rows=scorer.candidate(rows)) for rows in own]
    of_chunk = [partial(tf.matmul, b=scorer.candidate(rows), transpose_b=True) for rows in (heads, tails)]
    scores = []
    for relation in others[answers:]:
        queries = scorer.head_query(relation, tail), scorer.tail_query(head, relation)  # [C, c, length]
        before = [scorer.scores(*x) for x in zip(queries[-len(own) :], of_triple, strict=True)]
        behind = [scorer.scores(*x) for x in zip(queries, of_chunk, strict=True)]
        if by_side:
            scores.append(tf.stack([tf.concat(x, -1) for x in zip(before, behind, strict=True)], 2))
        else:
            scores.append(tf.concat([*before, *behind], -1))
    return tf.stack(scores)


def _products(queries: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Returns the dot product of each query with a row of its own, [..., 1]."""
    return tf.reduce_sum(queries * rows, -1, keepdims=True)


_compiled_scores = compiled(_scores)


@compiled
def _gradients(upstream: tf.Tensor, scorer: Scorer, answers: int, by_side: bool, *inputs: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        scores = _scores(scorer, answers, by_side, *inputs)
    return tape.gradient(scores, inputs, upstream)
