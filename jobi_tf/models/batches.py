"""The forms of a batch: which triples and candidates it holds, and how a model scores them.

The fields of a form are the keys of a model's inputs. Its method `score` returns the scores of each head of the model,
and the training triples for regularisers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, get_args

import keras
import tensorflow as tf

from jobi_tf.compiled import compiled_with_gradient, unique
from jobi_tf.data.occurrences import HEAD, SIDES, TAIL
from jobi_tf.errors import UsageError
from jobi_tf.models.products import all_scores, listed_scores, own_scores, spread, table_and_rows
from jobi_tf.models.regularizers import Positives
from jobi_tf.models.scorers import Scorer
from jobi_tf.models.scorers.scorer import Relations

if TYPE_CHECKING:
    from jobi_tf.models.jobi import JoBi


@dataclass(frozen=True)
class OwnNegatives:
    """Triples, each with its own negatives: one list for both sides.

    Scores: float32 [B, 1 + n], of the triple and of its negatives.
    """

    triples: tf.Tensor  # int32 [B, 3]
    negatives: tf.Tensor  # entities, int32 [B, n]
    head_counts: tf.Tensor  # negatives of each triple, from the left, that replace its head, not its tail, int32 [B]
    weights: tf.Tensor | None = None  # what each triple counts for regularisers, float32 [B]; 1 without it

    def score(self, model: "JoBi", training: bool) -> tuple[Sequence[tf.Tensor], Positives]:
        """Scores the triple, as a candidate for its own head, and its negatives."""
        _refuse_reciprocal(model)
        return _score_lists(model, training, self, [self.negatives], self.head_counts, [])


@dataclass(frozen=True)
class OwnNegativesBySide:
    """Triples, each with its own negatives: a list for each side.

    Scores: float32 [B, 2, 1 + m], on each side of the triple and of its negatives.
    """

    triples: tf.Tensor  # int32 [B, 3]
    head_negatives: tf.Tensor  # entities that replace the head of each triple, int32 [B, m]
    tail_negatives: tf.Tensor  # entities that replace its tail, int32 [B, m]
    weights: tf.Tensor | None = None  # what each triple counts for regularisers, float32 [B]; 1 without it

    def score(self, model: "JoBi", training: bool) -> tuple[Sequence[tf.Tensor], Positives]:
        """Scores the triple, as a candidate for its own head and for its own tail, and its negatives."""
        count = keras.ops.shape(self.head_negatives)[1]
        head_counts = tf.fill(tf.shape(self.triples)[:1], count)
        negatives = [self.head_negatives, self.tail_negatives]
        return _score_lists(model, training, self, negatives, head_counts, [len(SIDES), 1 + count])


def _score_lists(
    model: "JoBi",
    training: bool,
    batch: OwnNegatives | OwnNegativesBySide,
    negatives: list[tf.Tensor],
    head_counts: tf.Tensor,
    shape: list[int | tf.Tensor],
) -> tuple[Sequence[tf.Tensor], Positives]:
    """Scores a triple and its negatives, in one list or in one for each side; `shape` is that of a triple's scores."""
    _refuse_net(model)
    heads, relation, tails = tf.unstack(batch.triples, axis=1)
    rows, (head, tail, *places) = model.entities.lookup(heads, tails, *negatives, xla=model.xla)
    alone = model.scorer.candidates_are_embeddings
    rows, *ends = table_and_rows(rows, head, tail, alone=alone)  # ends: heads and tails, [B, width] each
    relations = _TripleRelations(model, relation, training)
    queries = _stacked_queries(model.scorer, model.reciprocal, *model.known(ends, training), *relations.each())
    lists = zip((head, tail), places, strict=False)
    candidates = tf.concat([x for own, others in lists for x in (own[:, None], others)], 1)
    scores = listed_scores(model.scorer, queries, model.scorer.candidate(rows), candidates, 1 + head_counts, model.xla)
    if shape:
        scores = tf.reshape(scores, [len(model.heads), -1, *shape])
    return tf.unstack(scores, len(model.heads)), relations.positives(ends[0], ends[1], batch.weights)


@dataclass(frozen=True)
class SharedNegatives:
    """Chunks of c triples that share their negatives: one list for both sides.

    Scores: float32 [C, c, 1 + n], of each triple and of the negatives of its chunk in its place.
    """

    chunks: tf.Tensor  # triples, int32 [C, c, 3]
    negatives: tf.Tensor  # entities, int32 [C, n], of which the first n // 2 replace heads and the others tails
    weights: tf.Tensor | None = None  # what each triple counts for regularisers, float32 [C, c]; 1 without it

    def score(self, model: "JoBi", training: bool) -> tuple[Sequence[tf.Tensor], Positives]:
        """Scores the triples of a chunk with its negatives by one matrix product for each side."""
        _refuse_reciprocal(model)
        heads = keras.ops.shape(self.negatives)[1] // 2
        negatives = self.negatives[:, :heads], self.negatives[:, heads:]
        return _score_chunks(model, training, self, negatives, by_side=False)


@dataclass(frozen=True)
class SharedNegativesBySide:
    """Chunks of c triples that share their negatives: a list for each side.

    Scores: float32 [C, c, 2, 1 + m], on each side of each triple and of the negatives of its chunk in its place.
    """

    chunks: tf.Tensor  # triples, int32 [C, c, 3]
    head_negatives: tf.Tensor  # entities that replace heads, int32 [C, m]
    tail_negatives: tf.Tensor  # entities that replace tails, int32 [C, m]
    weights: tf.Tensor | None = None  # what each triple counts for regularisers, float32 [C, c]; 1 without it

    def score(self, model: "JoBi", training: bool) -> tuple[Sequence[tf.Tensor], Positives]:
        """Scores the triples of a chunk with its negatives by one matrix product for each side."""
        return _score_chunks(model, training, self, (self.head_negatives, self.tail_negatives), by_side=True)


def _score_chunks(
    model: "JoBi",
    training: bool,
    batch: SharedNegatives | SharedNegativesBySide,
    negatives: tuple[tf.Tensor, tf.Tensor],
    by_side: bool,
) -> tuple[Sequence[tf.Tensor], Positives]:
    _refuse_net(model)
    rows, places = model.entities.lookup(batch.chunks[..., 0], batch.chunks[..., 2], *negatives, xla=model.xla)
    head, tail, *negative_rows = spread(rows, *places, xla=model.xla)
    relations = _TripleRelations(model, batch.chunks[..., 1], training)
    known = model.known([head, tail], training)
    known = [] if known[0] is head else known
    options = model.scorer, model.reciprocal, by_side, len(known)
    scores = _chunk_scores(*options, head, tail, *negative_rows, *known, *relations.each())
    return tf.unstack(scores, len(model.heads)), relations.positives(head, tail, batch.weights)


@dataclass(frozen=True)
class Queries:
    """Queries with all entities as candidates.

    Scores: float32 [B, E], of the pair head [B, M] with `pair_entities`.
    """

    anchors: tf.Tensor  # the known entities, int32 [B]
    relations: tf.Tensor  # int32 [B]
    sides: tf.Tensor  # the side that is sought, `HEAD` (0) or `TAIL` (1), int32 [B]
    answers: tf.Tensor  # the answers to each query, int32 [B, m], padded with -1
    weights: tf.Tensor  # what each query counts, float32 [B]
    pair_entities: tf.Tensor | None = None  # those that the pair head scores, int32 [B, M], equal rows; all without it

    def score(self, model: "JoBi", training: bool) -> tuple[Sequence[tf.Tensor], Positives | None]:
        """Scores all entities by one matrix product for each head of the model."""
        if model.table_dtype != "float32":
            raise UsageError("expected sampled negatives with table_dtype bfloat16, got queries of all entities")
        places = {"anchors": self.anchors}
        if self.pair_entities is not None:
            places["pairs"] = self.pair_entities[0]
        if model.regularizers:
            query, places["answers"], shares = self._listed(model.xla)
        table, *rows = table_and_rows(model.entities.table.value, *places.values())
        embeddings = dict(zip(places, rows, strict=True))
        ids = model.heads[0].relation_ids(self.relations, self.sides)
        distinct, place = unique(ids, model.xla)
        relations = [head.relations.rows(distinct) for head in model.heads]
        (known,) = model.known([embeddings["anchors"]], training)
        scores = []
        for head, own, candidates in zip(model.heads, relations, (table, embeddings.get("pairs", table)), strict=False):
            prepared = Relations(head.prepared(own, training), place)
            queries = head.queries_of_sides(self.sides, known, prepared, model.xla)
            queries = head.through_net(queries, training)
            precision = model.precision if training else "float32"
            scores.append(all_scores(model.scorer, queries, model.scorer.candidate(candidates), precision))
        if not model.regularizers:
            return scores, None
        (anchor,) = spread(embeddings["anchors"], query, xla=model.xla)
        answer = embeddings["answers"]
        if not model.reciprocal:
            at_tail = tf.gather(self.sides, query)[:, None] == TAIL
            anchor, answer = tf.where(at_tail, anchor, answer), tf.where(at_tail, answer, anchor)
        ids, place = tf.gather(ids, query), tf.gather(place, query)
        return scores, Positives(anchor, answer, ids, relations, place, shares, triples=0.5)

    def _listed(self, xla: bool) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the query of each answer and its entity, int32 [N] each, and what it counts as a triple, float32 [N].

        XLA has to know N: there padding is listed too, as entity 0 that counts 0.
        """
        given = tf.cast(self.answers >= 0, tf.float32)  # [B, m]
        queries = tf.cast(tf.size(self.weights), tf.float32)
        shares = given * (self.weights / (queries * tf.reduce_sum(given, 1)))[:, None]
        answers, shares = tf.reshape(tf.maximum(self.answers, 0), [-1]), tf.reshape(shares, [-1])
        listed = tf.range(tf.size(answers)) if xla else tf.cast(tf.where(shares > 0)[:, 0], tf.int32)
        return listed // tf.shape(given)[1], tf.gather(answers, listed), tf.gather(shares, listed)


Batch = OwnNegatives | OwnNegativesBySide | SharedNegatives | SharedNegativesBySide | Queries


def batch_form(inputs: Mapping[str, tf.Tensor]) -> Batch:
    """Returns the form whose fields are the keys of `inputs`, ids as int32, or raises a `UsageError`."""
    if not isinstance(inputs, Mapping):
        raise UsageError(f"expected fields of a batch by name, got {type(inputs).__name__}; see JoBi.score for triples")
    forms = get_args(Batch)
    for form in forms:
        required = {field.name for field in fields(form) if field.default is MISSING}
        if required <= inputs.keys() <= {field.name for field in fields(form)}:
            return form(**{key: x if key == "weights" else _ids(key, x) for key, x in inputs.items()})
    names = "; ".join(f"{form.__name__}: {', '.join(field.name for field in fields(form))}" for form in forms)
    raise UsageError(f"expected the keys of one form of a batch ({names}), got {', '.join(sorted(inputs))}")


def _ids(key: str, values: tf.Tensor) -> tf.Tensor:
    if not tf.as_dtype(values.dtype).is_integer:
        raise UsageError(f"expected integers as {key} of a batch, got {tf.as_dtype(values.dtype).name}")
    return tf.cast(values, tf.int32)


class _TripleRelations:
    """The relations of triples, each distinct one looked up once.

    With reciprocal relations a triple has two: the inverse, for its head query, and the relation, for its tail query.
    """

    def __init__(self, model: "JoBi", relations: tf.Tensor, training: bool):
        self.xla = model.xla
        sides = (HEAD, TAIL) if model.reciprocal else (TAIL,)
        self.ids = tf.stack([model.heads[0].relation_ids(relations, side) for side in sides])  # [1 or 2, ...]
        distinct, place = unique(tf.reshape(self.ids, [-1]), model.xla)
        self.place = tf.reshape(place, tf.shape(self.ids))
        self.rows = [head.relations.rows(distinct) for head in model.heads]
        self.prepared = [head.prepared(rows, training) for head, rows in zip(model.heads, self.rows, strict=True)]

    def each(self) -> list[tf.Tensor]:
        """Returns for each head of the model what its head and its tail queries take for relations, [..., …] each."""
        by_side = [spread(x, *tf.unstack(self.place), xla=self.xla) for x in self.prepared]
        return [relation for sides in by_side for relation in (sides[0], sides[-1])]

    def positives(self, head: tf.Tensor, tail: tf.Tensor, weights: tf.Tensor | None) -> Positives:
        """Returns the triples, given the embeddings of their heads and tails, [..., width] each."""
        head, tail = (tf.reshape(x, [-1, x.shape[-1]]) for x in (head, tail))
        if self.ids.shape[0] == len(SIDES):
            head, tail = tf.concat([tail, head], 0), tf.concat([head, tail], 0)
        # With reciprocal relations there are two ids for each triple, each of which counts one half.
        share = (tf.ones([]) if weights is None else weights) / tf.cast(tf.size(self.ids), tf.float32)
        share = tf.broadcast_to(share, tf.shape(self.ids))
        ids, place, share = (tf.reshape(x, [-1]) for x in (self.ids, self.place, share))
        return Positives(head, tail, ids, self.rows, place, share)


def _refuse_net(model: "JoBi") -> None:
    if model.heads[0].net:
        raise UsageError(f"expected batches of query_batches for {model.scorer.name}, got batches with negatives")


def _refuse_reciprocal(model: "JoBi") -> None:
    if model.reciprocal:
        raise UsageError("expected queries or negatives by side with reciprocal relations, got one list for both sides")


def _queries(
    scorer: Scorer, reciprocal: bool, head: tf.Tensor, tail: tf.Tensor, *relations: tf.Tensor
) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Returns the head queries and the tail queries of triples, [..., length] each, for each head of the model.

    `head` and `tail` are the embeddings of the known entities, [..., width]; `relations` is for each head of the model
    what its head and its tail queries take for relations, [..., …] each.
    """
    queries = []
    for inverse, relation in zip(relations[::2], relations[1::2], strict=True):
        of_head = scorer.tail_query(tail, inverse) if reciprocal else scorer.head_query(inverse, tail)
        queries.append((of_head, scorer.tail_query(head, relation)))
    return queries


@compiled_with_gradient
def _stacked_queries(*arguments: tf.Tensor) -> tf.Tensor:
    """Returns the result of `_queries` as one tensor, [B, M, 2, length]."""
    return tf.stack([tf.stack(pair, 1) for pair in _queries(*arguments)], 1)


@compiled_with_gradient
def _chunk_scores(
    scorer: Scorer,
    reciprocal: bool,
    by_side: bool,
    known: int,
    head: tf.Tensor,
    tail: tf.Tensor,
    heads: tf.Tensor,
    tails: tf.Tensor,
    *others: tf.Tensor,
) -> tf.Tensor:
    """Returns the scores of triples and of the negatives of their chunk, for each of M heads of the model.

    Args:
        scorer, reciprocal, by_side: the score function, and whether each side has its own scores.
        known: 2 if queries are made of other embeddings than those of heads and tails as candidates, else 0.
        head, tail: embeddings [C, c, width].
        heads, tails: embeddings of the negatives that replace heads, [C, i, width], and tails, [C, j, width].
        others: the `known` heads and tails, [C, c, width] each, and the relations as for `_queries`, [C, c, …] each.

    Returns:
        float32 [M, C, c, 1 + i + j], by side [M, C, c, 2, 1 + i].
    """
    scores = []
    anchors = others[:known] if known else (head, tail)
    for queries in _queries(scorer, reciprocal, *anchors, *others[known:]):
        sides = list(zip(queries, (head, tail), (heads, tails), strict=True))
        own = [own_scores(scorer, query, scorer.candidate(x))[..., None] for query, x, _ in sides]
        negatives = [all_scores(scorer, query, scorer.candidate(x)) for query, _, x in sides]
        if by_side:
            scores.append(tf.stack([tf.concat(x, -1) for x in zip(own, negatives, strict=True)], 2))
        else:
            scores.append(tf.concat([own[TAIL], *negatives], -1))
    return tf.stack(scores)
