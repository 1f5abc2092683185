"""The exported module: names, and the functions that become the signatures of the SavedModel."""

from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import HEAD, SIDES, TAIL
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.export.stored_model import UNKNOWN_SCORE, StoredModel

# The signatures and their inputs; each has a row for every row of a request.
INPUTS = {
    "serving_default": {"head": tf.string, "relation": tf.string, "tail": tf.string},
    "score_ids": {"head": tf.int32, "relation": tf.int32, "tail": tf.int32},
    "predict_tails": {"head": tf.string, "relation": tf.string, "k": tf.int32},
    "predict_heads": {"relation": tf.string, "tail": tf.string, "k": tf.int32},
    "predict_new_tails": {"head": tf.string, "relation": tf.string, "k": tf.int32},
    "predict_new_heads": {"relation": tf.string, "tail": tf.string, "k": tf.int32},
    "embed": {"entity": tf.string},
}
Outputs = dict[str, tf.Tensor]


class Servable(tf.Module):
    """A stored model that is queried by name; unknown names are data, never an error.

    The names of the graph are written to `entities.txt` and `relations.txt` in a folder, which saving copies. `top_k`
    is the greatest `k` of a request. Probabilities are sigmoid(slope · score + intercept).
    """

    def __init__(self, model: StoredModel, graph: Graph, folder: Path, top_k: int, slope: float, intercept: float):
        super().__init__()
        self.model = model
        self.top_k = top_k
        self.slope, self.intercept = slope, intercept
        names = graph.entities.names
        if model.lists.candidates is not None:
            names = [names[i] for i in model.lists.candidates.numpy()]
        self.names = tf.Variable(names, trainable=False)  # of the answers, string [count]
        self.entity_ids = _lookup_table(graph.entities, folder / "entities.txt")
        self.relation_ids = _lookup_table(graph.relations, folder / "relations.txt")

    def trace(self) -> dict[str, Any]:
        """Returns the signatures by name, functions of batches of any size."""
        functions = {
            "serving_default": self._score_names,
            "score_ids": self._score_ids,
            "predict_tails": partial(self._predict, TAIL, False),
            "predict_heads": partial(self._predict, HEAD, False),
            "predict_new_tails": partial(self._predict, TAIL, True),
            "predict_new_heads": partial(self._predict, HEAD, True),
            "embed": self._embed,
        }
        return {
            name: tf.function(functions[name], autograph=False).get_concrete_function(
                **{key: tf.TensorSpec([None], dtype, key) for key, dtype in inputs.items()}
            )
            for name, inputs in INPUTS.items()
        }

    def _score_names(self, head: tf.Tensor, relation: tf.Tensor, tail: tf.Tensor) -> Outputs:
        """Scores triples of names, string [B] each."""
        head, tail = self.entity_ids.lookup(head), self.entity_ids.lookup(tail)
        return self._score_ids(head, self.relation_ids.lookup(relation), tail)

    def _score_ids(self, head: tf.Tensor, relation: tf.Tensor, tail: tf.Tensor) -> Outputs:
        """Scores triples of ids, int [B] each: score and probability, float32 [B], and known, bool [B]."""
        entities, relations = self.model.num_entities, self.model.num_relations
        ids = tf.stack([head, relation, tail])  # inputs of different lengths are an InvalidArgumentError here
        limits = tf.constant([[entities], [relations], [entities]], ids.dtype)
        known = tf.reduce_all((ids >= 0) & (ids < limits), 0)
        scores = self.model.scores(*tf.unstack(tf.where(known, ids, 0)))
        return {**self._scored(scores, known), "known": known}

    def _predict(self, side: int, new: bool, **inputs: tf.Tensor) -> Outputs:
        """Finds the best entities on `side`, without known facts if `new`.

        Returns:
            Names, scores, probabilities and known facts of the answers, [B, K], and known, bool [B].
        """
        anchor, relation, k = inputs[SIDES[1 - side]], inputs["relation"], inputs["k"]
        k = tf.clip_by_value(k, 0, self.top_k)
        ids = [self.entity_ids.lookup(anchor), self.relation_ids.lookup(relation)]
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
        ids = self.entity_ids.lookup(entity)
        known = ids >= 0
        embeddings = self.model.embeddings(tf.maximum(ids, 0))
        return {"embedding": tf.where(known[:, None], embeddings, 0.0), "known": known}

    def _scored(self, scores: tf.Tensor, known: tf.Tensor) -> Outputs:
        """Returns scores and their probabilities; `UNKNOWN_SCORE` and 0 where not `known`."""
        probabilities = tf.sigmoid(self.slope * scores + self.intercept)
        return {"score": tf.where(known, scores, UNKNOWN_SCORE), "probability": tf.where(known, probabilities, 0.0)}


def _lookup_table(vocabulary: Vocabulary, path: Path) -> tf.lookup.StaticHashTable:
    """Writes a vocabulary, and returns a table from its names to their ids, -1 for any other text."""
    vocabulary.save(path)
    line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
    initializer = tf.lookup.TextFileInitializer(str(path), tf.string, line, tf.int64, number)
    return tf.lookup.StaticHashTable(initializer, -1)
