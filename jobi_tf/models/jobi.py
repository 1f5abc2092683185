"""The joint model."""

import math
from typing import Any

import keras
import tensorflow as tf

from jobi_tf.data.occurrences import TAIL, column
from jobi_tf.errors import UsageError
from jobi_tf.models.batch_scores import batch_scores
from jobi_tf.models.scorers import get_scorer
from jobi_tf.models.shared_scores import shared_scores


@keras.saving.register_keras_serializable("jobi_tf")
class JoBi(keras.Model):
    """A bilinear knowledge-graph embedding with a triple head and an optional pair head over one entity table.

    The triple head scores triples. The pair head, with a relation table of its own, scores whether the entities of a
    triple occur with its relation at all. It only helps training: `score`, ranking and export read the triple head.

    Args:
        num_entities: number of entities, E.
        num_relations: number of relations, R.
        dim: the paper's embedding size d. ComplEx and SimplE have two vectors of that length for each entity and
            relation; `width` is the size in real numbers.
        scorer: `"complex"`, `"distmult"` or `"simple"`.
        joint: whether there is a pair head.
        seed: seed of the initial embeddings, Glorot normal over each [rows, d] part of a table.

    Raises:
        UsageError: a size is not positive, or there is no such scorer.

    Example:
        >>> model = jobi_tf.JoBi(num_entities=135, num_relations=46, dim=32)
        >>> model.score(tf.constant([[0, 1, 2]])).shape
        TensorShape([1])

    Reference: Balkır et al., Using Pairwise Occurrence Information to Improve Knowledge Graph Completion on
    Large-Scale Datasets, EMNLP-IJCNLP 2019.
    """

    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        dim: int = 200,
        scorer: str = "complex",
        joint: bool = True,
        seed: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        for name, size in (("num_entities", num_entities), ("num_relations", num_relations), ("dim", dim)):
            if size < 1:
                raise UsageError(f"expected {name} to be at least 1, got {size}")
        self.num_entities = num_entities
        self.num_relations = num_relations
        self.dim = dim
        self.scorer = scorer
        self.joint = joint
        self.seed = seed
        self._scorer = get_scorer(scorer)
        self.entity = self._table("entity", num_entities, seed)
        self.triple_relation = self._table("triple_relation", num_relations, seed + 1)
        self.pair_relation = self._table("pair_relation", num_relations, seed + 2) if joint else None
        self.built = True

    def _table(self, name: str, rows: int, seed: int) -> keras.Variable:
        # autocast=False: under a mixed-precision policy reading the table would otherwise copy all of it.
        deviation = math.sqrt(2 / (rows + self.dim))
        initializer = keras.initializers.RandomNormal(stddev=deviation, seed=seed)
        return self.add_weight(
            name=name, shape=(rows, self.width), initializer=initializer, dtype="float32", autocast=False
        )

    @property
    def width(self) -> int:
        """Real numbers of an entity, and of a relation in each head."""
        return self._scorer.parts * self.dim

    def call(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Scores triples and their candidates.

        Args:
            inputs: either triples with candidates of their own: `head`, `relation`, `tail` int32 [B]; `candidates`
                int32 [B, n]; `head_corruptions` int32 [B], how many of a row's candidates, from the left, replace its
                head; the others replace its tail.
                Or chunks of c triples that share candidates: `head`, `relation`, `tail` int32 [C, c]; `candidates`
                int32 [C, n], of which the first n // 2 replace heads, the others tails.

        Returns:
            `triple`, and `pair` of a joint model: scores of the triple and of its candidates, float32 [B, 1 + n] or
            [C, c, 1 + n].
        """
        score = self._with_own_candidates if inputs["head"].shape.rank == 1 else self._with_shared_candidates
        relations = [tf.gather(table.value, inputs["relation"]) for table in self._relation_tables()]
        return dict(zip(("triple", "pair"), tf.unstack(score(inputs, relations), len(relations)), strict=False))

    def _with_own_candidates(self, inputs: dict[str, tf.Tensor], relations: list[tf.Tensor]) -> tf.Tensor:
        head, tail, candidates = (inputs[name] for name in ("head", "tail", "candidates"))
        batch = tf.shape(head)[0]
        # Distinct entities are gathered once for both heads, and so their gradient comes without repeated rows.
        ids, place = tf.unique(tf.concat([head, tail, tf.reshape(candidates, [-1])], 0))
        return batch_scores(
            self._scorer,
            tf.gather(self.entity.value, ids),
            relations,
            place[:batch],
            place[batch : 2 * batch],
            tf.reshape(place[2 * batch :], tf.shape(candidates)),
            inputs["head_corruptions"],
        )

    def _with_shared_candidates(self, inputs: dict[str, tf.Tensor], relations: list[tf.Tensor]) -> tf.Tensor:
        heads, tails = tf.split(inputs["candidates"], [inputs["candidates"].shape[1] // 2, -1], 1)
        ids = inputs["head"], inputs["tail"], heads, tails
        return shared_scores(self._scorer, relations, *(tf.gather(self.entity.value, x) for x in ids))

    def _relation_tables(self) -> list[keras.Variable]:
        return [self.triple_relation] + ([self.pair_relation] if self.joint else [])

    def queries(self, triples: tf.Tensor, side: int) -> tf.Tensor:
        """Returns the triple head's queries for the entities sought on one side.

        Args:
            triples: int [B, 3]; the column of `side` is not read.
            side: `HEAD` or `TAIL` of `jobi_tf.data.occurrences`.

        Returns:
            float32 [B, width]; the dot product with an entity's row is its score in that place.
        """
        anchor = tf.gather(self.entity.value, triples[:, column(1 - side)])
        relation = tf.gather(self.triple_relation.value, triples[:, 1])
        return self._scorer.tail_query(anchor, relation) if side == TAIL else self._scorer.head_query(relation, anchor)

    def score(self, triples: tf.Tensor) -> tf.Tensor:
        """Returns the triple head's scores of `triples`: int [B, 3] → float32 [B]."""
        triples = tf.convert_to_tensor(triples)
        return tf.reduce_sum(self.queries(triples, TAIL) * tf.gather(self.entity.value, triples[:, column(TAIL)]), -1)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        names = ("num_entities", "num_relations", "dim", "scorer", "joint", "seed")
        return super().get_config() | {name: getattr(self, name) for name in names}
