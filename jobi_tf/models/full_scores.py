"""Scores of entities as the answers to queries of either side: one matrix product a model head."""

from collections.abc import Callable, Sequence
from functools import partial

import tensorflow as tf

from jobi_tf.data.occurrences import HEAD
from jobi_tf.models.scorer import Relations, Scorer


def full_scores(
    scorer: Scorer,
    tables: Sequence[tf.Tensor],
    relations: Sequence[Relations],
    anchor: tf.Tensor,
    side: tf.Tensor,
    nets: Sequence[Callable[[tf.Tensor], tf.Tensor]] = (),
) -> list[tf.Tensor]:
    """Scores entities in the open place of each query, by every model head.

    Args:
        scorer: the score function.
        tables: for each model head embeddings of the entities to score, float32 [E, width]; E may differ.
        relations: for each model head what the queries take for the relations.
        anchor: embeddings of the known entities, float32 [B, width].
        side: the side that is sought, `HEAD` or `TAIL`, int [B], ascending.
        nets: what makes the queries of the scorer's, for each model head; see `Scorer.query_net`.

    Returns:
        For each model head the scores, float32 [B, E].
    """
    heads = tf.reduce_sum(tf.cast(side == HEAD, tf.int32))
    scores = []
    for place, (table, relation) in enumerate(zip(tables, relations, strict=True)):
        products = partial(tf.matmul, b=scorer.candidate(table), transpose_b=True)
        queries = [scorer.head_queries(relation[:heads], anchor[:heads])]
        queries.append(scorer.tail_queries(anchor[heads:], relation[heads:]))
        query = tf.concat(queries, 0)
        scores.append(scorer.scores(nets[place](query) if nets else query, products))
    return scores


def table_and_rows(table: tf.Tensor, *ids: tf.Tensor) -> list[tf.Tensor]:
    """Returns a table [E, width] and rows of it, for each of `ids` [N] a tensor [N, width].

    What flows back to the rows is added to what flows back to the table in place. Automatic differentiation would make
    a table of each.
    """

    @tf.custom_gradient
    def taken(table: tf.Tensor):  # type: ignore[no-untyped-def]
        def gradient(of_table: tf.Tensor, *of_rows: tf.Tensor) -> tf.Tensor:
            for places, values in zip(ids, of_rows, strict=True):
                of_table = tf.tensor_scatter_nd_add(of_table, places[:, None], values)
            return of_table

        return [tf.identity(table), *(tf.gather(table, places) for places in ids)], gradient

    return taken(table)
