"""The exported module: names, and the functions that become the signatures of the SavedModel."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import HEAD, SIDES, TAIL
from jobi_tf.export.stored_model import UNKNOWN_SCORE, StoredModel

TYPES = {"k": tf.int32}  # of inputs that are not names
Outputs = dict[str, tf.Tensor]


class Servable(tf.Module):
    """A stored model that is queried by name; unknown names are data, never an error.

    Args:
        model: the tables and lists.
        graph: the graph, for its names.
        folder: where `entities.txt` and `relations.txt` are written, which saving copies.
        top_k: the greatest `k` of a request.
        slope: of the probability, sigmoid(slope · score + intercept).
        intercept: of the probability.
    """

    def __init__(
        self, model: StoredModel, graph: Graph, folder: Path, top_k: int, slope: float = 1.0, intercept: float = 0.0
    ):
        super().__init__()
        self.model = model
        self.top_k = top_k
        self.slope, self.intercept = slope, intercept
        names = graph.entities.names
        if model.lists.candidates is not None:
            names = [names[i] for i in model.lists.candidates.numpy()]
        self.names = tf.Variable(names, trainable=False)  # of the answers, string [count]
        self.ids = {}
        for kind, vocabulary in (("entity", graph.entities), ("relation", graph.relations)):
            path = folder / {"entity": "entities.txt", "relation": "relations.txt"}[kind]
            vocabulary.save(path)
            self.ids[kind] = _lookup_table(path)

    def trace(self) -> dict[str, Any]:
        """Returns the signatures by name, functions of batches of any size."""

        def predict_tails(head: tf.Tensor, relation: tf.Tensor, k: tf.Tensor) -> Outputs:
            return self._predict(TAIL, head, relation, k)

        def predict_heads(relation: tf.Tensor, tail: tf.Tensor, k: tf.Tensor) -> Outputs:
            return self._predict(HEAD, tail, relation, k)

        def predict_new_tails(head: tf.Tensor, relation: tf.Tensor, k: tf.Tensor) -> Outputs:
            return self._predict(TAIL, head, relation, k, new=True)

        def predict_new_heads(relation: tf.Tensor, tail: tf.Tensor, k: tf.Tensor) -> Outputs:
            return self._predict(HEAD, tail, relation, k, new=True)

        return {
            "serving_default": _signature(self._score_names, head=tf.string, relation=tf.string, tail=tf.string),
            "score_ids": _signature(self._score_ids, head=tf.int32, relation=tf.int32, tail=tf.int32),
            "predict_tails": _signature(predict_tails, head=tf.string, relation=tf.string, k=tf.int32),
            "predict_heads": _signature(predict_heads, relation=tf.string, tail=tf.string, k=tf.int32),
            "predict_new_tails": _signature(predict_new_tails, head=tf.string, relation=tf.string, k=tf.int32),
            "predict_new_heads": _signature(predict_new_heads, relation=tf.string, tail=tf.string, k=tf.int32),
            "embed": _signature(self._embed, entity=tf.string),
        }

    def _score_names(self, head: tf.Tensor, relation: tf.Tensor, tail: tf.Tensor) -> Outputs:
        """Scores triples of names, string [B] each."""
        entity_ids, relation_ids = self.ids["entity"], self.ids["relation"]
        return self._score_ids(entity_ids.lookup(head), relation_ids.lookup(relation), entity_ids.lookup(tail))

    def _score_ids(self, head: tf.Tensor, relation: tf.Tensor, tail: tf.Tensor) -> Outputs:
        """Scores triples of ids, int [B] each: score and probability, float32 [B], and known, bool [B]."""
        entities, relations = self.model.num_entities, self.model.num_relations
        ids = tf.stack([head, relation, tail])  # inputs of different lengths are an InvalidArgumentError here
        limits = tf.constant([[entities], [relations], [entities]], ids.dtype)
        known = tf.reduce_all((ids >= 0) & (ids < limits), 0)
        scores = self.model.scores(*tf.unstack(tf.where(known, ids, 0)))
        return {**self._scored(scores, known), "known": known}

    def _predict(self, side: int, anchor: tf.Tensor, relation: tf.Tensor, k: tf.Tensor, new: bool = False) -> Outputs:
        """Finds the best entities on `side`.

        Args:
            side: the side that is sought.
            anchor: names of the entities on the other side, string [B].
            relation: names of relations, string [B].
            k: number of answers, int32 [B].
            new: leave out known facts.

        Returns:
            Names, scores, probabilities and known facts of the answers, [B, K], and known, bool [B].
        """
        k = tf.clip_by_value(k, 0, self.top_k)
        ids = [self.ids["entity"].lookup(anchor), self.ids["relation"].lookup(relation)]
        # Inputs of different lengths are an InvalidArgumentError here.
        anchor, relation, counts = tf.unstack(tf.stack([*ids, tf.cast(k, tf.int64)]))
        known = (anchor >= 0) & (relation >= 0)
        anchor, relation = tf.where(known, anchor, 0), tf.where(known, relation, 0)
        columns = tf.reduce_max(tf.concat([k, [0]], 0))  # K
        scores, answers = self.model.best(side, anchor, relation, columns, new)
        found = (answers >= 0) & known[:, None] & (tf.range(columns) < tf.cast(counts, tf.int32)[:, None])
        answers = tf.maximum(answers, 0)
        seen = tf.zeros_like(found) if new else found & self.model.is_known(side, anchor, relation, answers)
        names = tf.where(found, tf.gather(self.names.value(), answers), "")
        return {SIDES[side]: names, **self._scored(scores, found), "seen": seen, "known": known}

    def _embed(self, entity: tf.Tensor) -> Outputs:
        """Looks up embeddings: string [B] → float32 [B, width], zeros where unknown, and known, bool [B]."""
        ids = self.ids["entity"].lookup(entity)
        known = ids >= 0
        embeddings = self.model.embeddings(tf.maximum(ids, 0))
        return {"embedding": tf.where(known[:, None], embeddings, 0.0), "known": known}

    def _scored(self, scores: tf.Tensor, known: tf.Tensor) -> Outputs:
        """Returns scores and their probabilities; `UNKNOWN_SCORE` and 0 where not `known`."""
        probabilities = tf.sigmoid(self.slope * scores + self.intercept)
        return {
            "score": tf.where(known, scores, UNKNOWN_SCORE),
            "probability": tf.where(known, probabilities, 0.0),
        }


def _lookup_table(path: Path) -> tf.lookup.StaticHashTable:
    """Returns a table from the lines of a file to their numbers, -1 for any other text."""
    line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
    initializer = tf.lookup.TextFileInitializer(str(path), tf.string, line, tf.int64, number)
    return tf.lookup.StaticHashTable(initializer, -1)


def _signature(function: Callable[..., Outputs], **inputs: tf.DType) -> Any:
    specs = [tf.TensorSpec([None], dtype, name) for name, dtype in inputs.items()]
    return tf.function(function, autograph=False).get_concrete_function(*specs)
