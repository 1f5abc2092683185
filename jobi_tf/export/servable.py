"""The exported model: two tables, its lists, and the functions that answer by name."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from jobi_tf.data.negatives import contains
from jobi_tf.data.occurrences import HEAD, SIDES, TAIL, triple_keys
from jobi_tf.export.lists import AssetList
from jobi_tf.models.jobi import JoBi
from jobi_tf.models.scorers import get_scorer

# The score of a triple with an unknown name and of a place without an answer. JSON has no infinity, but has this.
UNKNOWN_SCORE = float(np.finfo(np.float32).min)
# Rows of a float16 table that are cast at once for a product with all of it.
CAST_ROWS = 2**16
SHOWN = 5  # offenders that a message names

Outputs = dict[str, tf.Tensor]


class Servable(tf.Module):
    """The triple head of a model with its names, whose functions become the signatures of a SavedModel.

    Its only variables are two tables, of entities and of what queries take for relations, and the weights of the net
    that makes queries, where the scorer has one. Everything else that grows with the graph is read from files.

    Args:
        model: the model.
        dtype: what the tables are stored as, `"float32"` or `"float16"`. A net is stored, and scores are computed, in
            float32.
        assets: folder with `entities.txt`, `relations.txt`, `known.bin`, and those of the lists below that are there:
            `seen_offsets.bin` with `seen_entities.bin`, and `candidates.bin`; see `export.lists`.
        top_k: answers a query.
    """

    def __init__(self, model: JoBi, dtype: str, assets: Path, top_k: int):
        super().__init__()
        self._scorer = get_scorer(model.scorer, model.reciprocal)
        self.top_k = top_k
        self.slope, self.intercept = 1.0, 0.0  # of the probability, sigmoid(slope · score + intercept)
        self.entity = tf.Variable(tf.cast(model.entity.value, dtype), trainable=False, name="entity")
        self.relation = tf.Variable(tf.cast(model.relations(), dtype), trainable=False, name="relation")
        self.net = self._scorer.query_net(model.dim, seed=0)
        if self.net:
            self.net.set_weights(model.nets[0].get_weights())
        self.files = {path.stem: tf.saved_model.Asset(str(path)) for path in sorted(assets.iterdir())}
        self.ids = {"entity": self._ids("entities"), "relation": self._ids("relations")}
        self.names = AssetList(self.files["entities"], tf.string)
        self.known = AssetList(self.files["known"], tf.int64)
        self.seen: dict[str, AssetList] = {}
        if "seen_offsets" in self.files:
            self.seen["offsets"] = AssetList(self.files["seen_offsets"], tf.int64)
            self.seen["entities"] = AssetList(self.files["seen_entities"], tf.int32)
        self.candidates = AssetList(self.files["candidates"], tf.int32) if "candidates" in self.files else None

    def _ids(self, file: str) -> tf.lookup.StaticHashTable:
        """Returns the table from names to ids, -1 for an unknown one."""
        line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        initializer = tf.lookup.TextFileInitializer(self.files[file].asset_path, tf.string, line, tf.int64, number)
        return tf.lookup.StaticHashTable(initializer, -1)

    @property
    def num_entities(self) -> int:
        """Number of entities."""
        return self.entity.shape[0]

    @property
    def num_relations(self) -> int:
        """Number of relations."""
        return self.relation.shape[0]

    @property
    def width(self) -> int:
        """Real numbers of an entity."""
        return self.entity.shape[1]

    def trace(self) -> dict[str, Any]:
        """Returns the signatures by name, functions of batches of any size; they keep the present calibration."""

        def predict_tails(head: tf.Tensor, relation: tf.Tensor) -> Outputs:
            return self._predict(TAIL, head, relation)

        def predict_heads(relation: tf.Tensor, tail: tf.Tensor) -> Outputs:
            return self._predict(HEAD, tail, relation)

        return {
            "serving_default": _signature(self._score_names, tf.string, "head", "relation", "tail"),
            "score_ids": _signature(self._score_ids, tf.int32, "head", "relation", "tail"),
            "predict_tails": _signature(predict_tails, tf.string, "head", "relation"),
            "predict_heads": _signature(predict_heads, tf.string, "relation", "tail"),
            "embed": _signature(self._embed, tf.string, "entity"),
        }

    @tf.function(input_signature=[], autograph=False)
    def release(self) -> None:
        """Frees the names and lists, for programs that load version after version, once nobody asks this one any more.

        The tables of embeddings are freed with the loaded export, as variables are.
        """
        lists = [self.names, self.known, *self.seen.values(), *([self.candidates] if self.candidates else [])]
        for resource in (*self.ids.values(), *lists):
            tf.raw_ops.DestroyResourceOp(resource=resource.resource_handle)

    def scores(self, head: tf.Tensor, relation: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
        """Returns the scores of triples, float32 [B], of ids, int [B] each; as `JoBi.score`, those of the tails."""
        tails = self._scorer.candidate(self._rows(self.entity, tail))
        return self._scorer.scores(self.queries(TAIL, head, relation), lambda query: tf.reduce_sum(query * tails, -1))

    def queries(self, side: int, anchor: tf.Tensor, relation: tf.Tensor) -> tf.Tensor:
        """Returns the queries for the entities on `side`, float32 [B, length], of ids of the other side, int [B]."""
        anchor, relation = self._rows(self.entity, anchor), self._rows(self.relation, relation)
        ask = self._scorer
        query = ask.tail_query(anchor, relation) if side == TAIL else ask.head_query(relation, anchor)
        return self.net(query) if self.net else query

    def scores_of_all(self, queries: tf.Tensor) -> tf.Tensor:
        """Returns the scores of all entities, float32 [B, E], given the queries, [B, length]."""
        if self.entity.dtype == tf.float32:
            return self._scores(queries, self.entity)
        parts: list[tf.Tensor] = []
        for start in range(0, self.num_entities, CAST_ROWS):
            with tf.control_dependencies(parts[-1:]):  # one part after the other: a cast table is twice as large
                rows = tf.cast(self.entity[start : start + CAST_ROWS], tf.float32)
                parts.append(self._scores(queries, rows))
        return tf.concat(parts, 1)

    def _scores(self, queries: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Returns the scores of entities with these rows, float32 [B, C], given the queries, [B, length]."""
        return self._scorer.scores(queries, partial(_products, rows=self._scorer.candidate(rows)))

    @staticmethod
    def _rows(table: tf.Variable, ids: tf.Tensor) -> tf.Tensor:
        # A gather from the variable itself would make TensorFlow copy all of it whenever it is read as a whole.
        return tf.cast(tf.gather(tf.convert_to_tensor(table), ids), tf.float32)

    def _probability(self, scores: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(self.slope * scores + self.intercept)

    def _score_names(self, head: tf.Tensor, relation: tf.Tensor, tail: tf.Tensor) -> Outputs:
        """Scores triples of names: string [B] each → float32 [B], float32 [B], bool [B]."""
        _check_lengths(head=head, relation=relation, tail=tail)
        kinds = (("entity", head), ("relation", relation), ("entity", tail))
        ids = [self.ids[kind].lookup(names) for kind, names in kinds]
        known = tf.reduce_all(tf.stack(ids) >= 0, 0)
        scores = self.scores(*(tf.maximum(x, 0) for x in ids))
        return {
            "score": tf.where(known, scores, UNKNOWN_SCORE),
            "probability": tf.where(known, self._probability(scores), 0.0),
            "known": known,
        }

    def _score_ids(self, head: tf.Tensor, relation: tf.Tensor, tail: tf.Tensor) -> Outputs:
        """Scores triples of ids: int32 [B] each → float32 [B], float32 [B]."""
        _check_lengths(head=head, relation=relation, tail=tail)
        head, tail = (_checked_ids(ids, self.num_entities, "entity") for ids in (head, tail))
        scores = self.scores(head, _checked_ids(relation, self.num_relations, "relation"), tail)
        return {"score": scores, "probability": self._probability(scores)}

    def _predict(self, side: int, anchor: tf.Tensor, relation: tf.Tensor) -> Outputs:
        """Finds the best entities on `side`: names of the other side and of relations, string [B] → [B, top_k] each."""
        _check_lengths(**{SIDES[1 - side]: anchor, "relation": relation})
        anchor, relation = self._checked_names(anchor, "entity"), self._checked_names(relation, "relation")
        scores, ids = self._best(side, anchor, relation)
        found = ids >= 0
        ids = tf.maximum(ids, 0)
        parts = [anchor[:, None], ids] if side == TAIL else [ids, anchor[:, None]]
        keys = triple_keys(parts[0], relation[:, None], parts[1], self.num_entities, self.num_relations)
        return {
            SIDES[side]: tf.where(found, tf.gather(self.names.value(), ids), ""),
            "score": tf.where(found, scores, UNKNOWN_SCORE),
            "probability": tf.where(found, self._probability(scores), 0.0),
            "seen": contains(self.known.value(), keys) & found,
        }

    def _best(self, side: int, anchor: tf.Tensor, relation: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the best scores, float32 [B, top_k], and their entities, int64 [B, top_k], -1 where none is left."""
        queries = self.queries(side, anchor, relation)
        if self.seen:
            ids = self._seen_with(side, relation)  # [B, C], -1 at the ends of the shorter rows
            scores = tf.gather(self.scores_of_all(queries), tf.maximum(ids, 0), batch_dims=1)
            scores, places = self._top(tf.where(ids >= 0, scores, UNKNOWN_SCORE))
            ids = tf.pad(ids, [[0, 0], [0, self.top_k]], constant_values=-1)
            return scores, tf.cast(tf.gather(ids, places, batch_dims=1), tf.int64)
        if self.candidates is not None:
            ids = self.candidates.value()  # [C]
            scores, places = self._top(self._scores(queries, self._rows(self.entity, ids)))
            ids = tf.pad(ids, [[0, self.top_k]], constant_values=-1)
            return scores, tf.cast(tf.gather(ids, places), tf.int64)
        scores, places = self._top(self.scores_of_all(queries))
        return scores, tf.cast(tf.where(places < self.num_entities, places, -1), tf.int64)

    def _top(self, scores: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the best of scores [B, C] and their places, [B, top_k]; where none is left a place of C or more."""
        missing = tf.maximum(self.top_k - tf.shape(scores)[1], 0)
        scores = tf.pad(scores, [[0, 0], [0, missing]], constant_values=UNKNOWN_SCORE)
        values, places = tf.math.top_k(scores, self.top_k)
        return values, places

    def _seen_with(self, side: int, relation: tf.Tensor) -> tf.Tensor:
        """Returns the entities seen on `side` of each relation, int32 [B, C], filled up with -1."""
        offsets, rows = self.seen["offsets"].value(), side * self.num_relations + relation
        places = tf.ragged.range(tf.gather(offsets, rows), tf.gather(offsets, rows + 1))
        return tf.gather(self.seen["entities"].value(), places).to_tensor(-1)

    def _embed(self, entity: tf.Tensor) -> Outputs:
        """Looks up embeddings: string [B] → float32 [B, width], zeros where unknown, and bool [B]."""
        ids = self.ids["entity"].lookup(entity)
        known = ids >= 0
        rows = self._rows(self.entity, tf.maximum(ids, 0))
        return {"embedding": tf.where(known[:, None], rows, 0.0), "known": known}

    def _checked_names(self, names: tf.Tensor, kind: str) -> tf.Tensor:
        """Returns the ids of names, int64 [B]; an unknown one is an InvalidArgumentError that names it."""
        ids = self.ids[kind].lookup(names)
        unknown = tf.boolean_mask(names, ids < 0)
        return _after(tf.size(unknown) == 0, [f"unknown {kind}:", unknown], ids)


def _products(queries: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Returns the dot products of queries [B, length] with rows [C, length]: [B, C].

    With the many rows on the left: on the right they take five times as long for two to four queries (TensorFlow 2.21).
    """
    return tf.transpose(tf.matmul(rows, queries, transpose_b=True))


def _signature(function: Callable[..., Outputs], dtype: tf.DType, *inputs: str) -> Any:
    specs = [tf.TensorSpec([None], dtype, name) for name in inputs]
    return tf.function(function, autograph=False).get_concrete_function(*specs)


def _check_lengths(**inputs: tf.Tensor) -> None:
    """Refuses inputs of different lengths, which would be broadcast if one of them is 1."""
    lengths = [tf.size(x) for x in inputs.values()]
    same = tf.reduce_all(tf.stack(lengths) == lengths[0])
    tf.debugging.Assert(same, [f"expected as many items in each of {', '.join(inputs)}, got", *lengths])


def _checked_ids(ids: tf.Tensor, count: int, kind: str) -> tf.Tensor:
    """Returns ids; one that is out of range is an InvalidArgumentError that names it."""
    wrong = tf.boolean_mask(ids, (ids < 0) | (ids >= count))
    return _after(tf.size(wrong) == 0, [f"expected {kind} ids from 0 to {count - 1}, got", wrong], ids)


def _after(condition: tf.Tensor, message: list, value: tf.Tensor) -> tf.Tensor:
    """Returns `value` once `condition` was found to hold."""
    with tf.control_dependencies([tf.debugging.Assert(condition, message, summarize=SHOWN)]):
        return tf.identity(value)
