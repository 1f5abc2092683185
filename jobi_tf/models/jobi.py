"""The joint model."""

from functools import partial
from typing import Any

import keras
import tensorflow as tf

from jobi_tf.data.occurrences import HEAD, TAIL, column
from jobi_tf.errors import UsageError
from jobi_tf.models.batch_scores import batch_scores
from jobi_tf.models.dropout import dropped
from jobi_tf.models.full_scores import full_scores, table_and_rows
from jobi_tf.models.penalties import Weighted, penalties
from jobi_tf.models.relation_prediction import relation_loss
from jobi_tf.models.scorer import Relations, Scorer, glorot_normal
from jobi_tf.models.scorers import get_scorer
from jobi_tf.models.shared_scores import shared_scores

HEADS = ("triple", "pair")


@keras.saving.register_keras_serializable("jobi_tf")
class JoBi(keras.Model):
    """A knowledge-graph embedding with a triple head and an optional pair head over one entity table.

    The triple head scores triples. The pair head, with a relation table of its own, scores whether the entities of a
    triple occur with its relation at all. It only helps training: `score`, ranking and export read the triple head.

    Args:
        num_entities: number of entities, E.
        num_relations: number of relations, R.
        dim: the paper's embedding size d. ComplEx, SimplE and RotatE have two vectors of that length for each entity;
            `width` is the size in real numbers.
        scorer: the name of a score function: `"complex"`, `"distmult"`, `"simple"`, `"rescal"`, `"tucker"`, `"transe"`,
            `"rotate"`, `"typecomplex"` or `"conve"`, which needs `reciprocal`.
        joint: whether there is a pair head.
        seed: seed of the initial embeddings, Glorot normal over each [rows, d] part of a table, and of dropout.
        reciprocal: relations have a second half, by which heads are asked for; see `models.reciprocal`. The two sides
            of a triple have scores of their own then, and `score` is that of the tail.
        n3: weight λ of the penalty λ/3 · Σ |x|³ on the embeddings of each training triple's head, relation and tail, in
            the mean over triples; complex numbers by their moduli.
        n3_pair: the same for the triple's relation in the pair head.
        l2: weight λ of the penalty λ/2 · Σ |x|² on all of these.
        entity_dropout: share of the numbers of a known entity that a query of training goes without.
        relation_dropout: share of the numbers of its relation.
        relation_prediction: weight λ of another loss, the negative log-likelihood of a training triple's relation under
            a softmax over the triple head's scores of all relations (Chen et al. 2021), in the mean over triples; with
            reciprocal relations over those of their inverses too, on both sides. With queries a triple comes on both
            sides and counts one half on each, so that the weight of that paper is λ/2.

    Raises:
        UsageError: a size is not positive, there is no such scorer, or it cannot do without reciprocal relations or
            predict relations.

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
        *,
        reciprocal: bool = False,
        n3: float = 0.0,
        n3_pair: float = 0.0,
        l2: float = 0.0,
        entity_dropout: float = 0.0,
        relation_dropout: float = 0.0,
        relation_prediction: float = 0.0,
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
        self.reciprocal = reciprocal
        self.n3, self.n3_pair, self.l2 = n3, n3_pair, l2
        self.entity_dropout, self.relation_dropout = entity_dropout, relation_dropout
        self.relation_prediction = relation_prediction
        self._scorer: Scorer = get_scorer(scorer, reciprocal)
        if not (reciprocal or self._scorer.asks_for_heads):
            raise UsageError(
                f"expected reciprocal to be True with the scorer {scorer}, got {reciprocal}: it has queries for tails "
                "only, and reciprocal relations ask for heads as for tails"
            )
        if relation_prediction and not self._scorer.linear_in_relations:
            raise UsageError(
                f"expected relation_prediction to be left at 0 with the scorer {scorer}, got {relation_prediction}: "
                "its scores are not linear in the relation, so that scores of all relations are no matrix product"
            )
        self.entity = self._weights("entity", (num_entities, self.width), glorot_normal(num_entities, dim, seed))
        self.triple_relation = self._relation_table("triple_relation", seed + 1)
        self.pair_relation = self._relation_table("pair_relation", seed + 2) if joint else None
        # Weights that the relations of a model head have in common; each head has its own.
        self.common = [self._common(name, seed + 3 + i) for i, name in enumerate(HEADS[: 1 + joint])]
        nets = (self._scorer.query_net(dim, seed + 3 + i) for i in range(len(self.common)))
        self.nets: list[Any] = [net for net in nets if net]
        # Keras' dropout layers do not save how far their draws are, so that no training could be resumed exactly.
        self._steps: Any = self._counter("dropout_steps") if entity_dropout or relation_dropout or self.nets else None
        self._penalty: Any = keras.metrics.Mean("penalty") if n3 or n3_pair or l2 else None
        self._relation_loss: Any = keras.metrics.Mean("relation_loss") if relation_prediction else None
        self.built = True

    def _weights(self, name: str, shape: tuple[int, ...], initializer: keras.initializers.Initializer) -> Any:
        # autocast=False: under a mixed-precision policy reading a table would otherwise copy all of it.
        return self.add_weight(name=name, shape=shape, initializer=initializer, dtype="float32", autocast=False)

    def _counter(self, name: str) -> keras.Variable:
        options: dict[str, Any] = {"trainable": False, "aggregation": "only_first_replica"}
        return self.add_weight(name=name, shape=(), initializer="zeros", dtype="int64", **options)

    def _relation_table(self, name: str, seed: int) -> keras.Variable:
        initializer = self._scorer.relation_initializer(self.num_relations, self.dim, seed)
        return self._weights(name, (self.num_relations, self.relation_width), initializer)

    def _common(self, head: str, seed: int) -> dict[str, keras.Variable]:
        weights = {}
        for i, (name, shape) in enumerate(self._scorer.shared(self.dim).items()):
            # What is summed over the first axis keeps its size.
            initializer = keras.initializers.RandomNormal(stddev=shape[0] ** -0.5, seed=seed + len(HEADS) * i)
            weights[name] = self._weights(f"{head}_{name}", shape, initializer)
        return weights

    @property
    def width(self) -> int:
        """Real numbers of an entity."""
        return self._scorer.entity_width(self.dim)

    @property
    def relation_width(self) -> int:
        """Real numbers of a relation in each head."""
        return self._scorer.relation_width(self.dim)

    def call(self, inputs: dict[str, tf.Tensor], training: bool = False) -> dict[str, tf.Tensor]:
        """Scores triples and their candidates, or all entities as answers to queries.

        Args:
            inputs: either triples with candidates of their own: `head`, `relation`, `tail` int32 [B]; `candidates`
                int32 [B, n]; `head_corruptions` int32 [B], how many of a row's candidates, from the left, replace its
                head; the others replace its tail.
                Or triples with candidates by side: `candidates` int32 [B, 2, m], of which the first m replace a
                triple's head and the others its tail; no `head_corruptions`.
                Or chunks of c triples that share candidates: `head`, `relation`, `tail` int32 [C, c]; `candidates`
                int32 [C, n], of which the first n // 2 replace heads, the others tails; by side [C, 2, m].
                Or queries: `anchor`, the known entity, and `relation` int32 [B]; `side`, which is sought, int32 [B],
                ascending; `answers` int32 [B, m], filled up with -1; `weight` float32 [B], what a query counts; and
                maybe `pair_entities` int32 [B, M], each row the same, the entities for the pair head to score.
            training: whether to drop out and to add penalties.

        Returns:
            `triple`, and `pair` of a joint model: scores of the triple and of its candidates, float32 [B, 1 + n],
            [B, 2, 1 + m], [C, c, 1 + n] or [C, c, 2, 1 + m]; or of all entities, [B, E], of the pair head maybe [B, M].

        Raises:
            UsageError: relations are reciprocal, so that a triple has a score for each side, and sides come together.
        """
        if training and self._steps is not None:
            self._steps.assign_add(1)
        if "anchor" in inputs:
            scores = self._with_all_entities(inputs, training)
        elif self.reciprocal and inputs["candidates"].shape.rank != 3:
            raise UsageError(
                "expected queries, or candidates by side, as reciprocal relations have two scores for a triple, got "
                "candidates for both sides"
            )
        elif inputs["head"].shape.rank == 1:
            scores = self._with_own_candidates(inputs, training)
        else:
            scores = self._with_shared_candidates(inputs, training)
        return dict(zip(HEADS, scores, strict=False))

    def _with_own_candidates(self, inputs: dict[str, tf.Tensor], training: bool) -> list[tf.Tensor]:
        head, relation, tail, candidates = (inputs[name] for name in ("head", "relation", "tail", "candidates"))
        batch = tf.shape(head)[0]
        # Distinct entities are gathered once for both heads, and so their gradient comes without repeated rows.
        ids, place = tf.unique(tf.concat([head, tail, tf.reshape(candidates, [-1])], 0))
        rows = tf.gather(self.entity.value, ids)
        places = place[:batch], place[batch : 2 * batch]
        anchors: list[tf.Tensor] = []
        if training and (self._penalty or self._relation_loss or self.entity_dropout):
            rows, *own = table_and_rows(rows, *places)
            self._regularise(own, relation)
            if self.entity_dropout:
                anchors = self._anchors(own)
        relations = [x.each() for x in self._relations(relation, training)]
        candidates = tf.reshape(place[2 * batch :], tf.shape(candidates))
        by_side = candidates.shape.rank == 3
        if by_side:
            # The triple itself stands before the candidates of its tail as well.
            head_corruptions = tf.fill([batch], tf.shape(candidates)[2])
            candidates = tf.concat([candidates[:, HEAD], places[TAIL][:, None], candidates[:, TAIL]], 1)
        else:
            head_corruptions = inputs["head_corruptions"]
        scores = batch_scores(self._scorer, rows, relations, *places, candidates, head_corruptions, anchors)
        if by_side:
            scores = tf.reshape(scores, [len(relations), batch, 2, -1])
        return tf.unstack(scores, len(relations))

    def _with_shared_candidates(self, inputs: dict[str, tf.Tensor], training: bool) -> list[tf.Tensor]:
        candidates, relation = inputs["candidates"], inputs["relation"]
        by_side = candidates.shape.rank == 3
        halves = tf.unstack(candidates, axis=1) if by_side else tf.split(candidates, [candidates.shape[1] // 2, -1], 1)
        head, tail, heads, tails = (tf.gather(self.entity.value, x) for x in (inputs["head"], inputs["tail"], *halves))
        if training:
            self._regularise([tf.reshape(x, [-1, self.width]) for x in (head, tail)], tf.reshape(relation, [-1]))
        anchors = self._anchors([head, tail]) if training and self.entity_dropout else ()
        relations = [x.each() for x in self._relations(relation, training)]
        scores = shared_scores(self._scorer, relations, head, tail, heads, tails, anchors, by_side)
        return tf.unstack(scores, len(relations))

    def _with_all_entities(self, inputs: dict[str, tf.Tensor], training: bool) -> list[tf.Tensor]:
        anchor, relation, side = (inputs[name] for name in ("anchor", "relation", "side"))
        further = bool(training and (self._penalty or self._relation_loss))
        query, place = tf.unstack(tf.where(inputs["answers"] >= 0), 2, axis=1)  # [A] both
        answers = [tf.gather_nd(inputs["answers"], tf.stack([query, place], 1))] if further else []
        few = [inputs["pair_entities"][0]] if "pair_entities" in inputs else []
        table, anchor, *rows = table_and_rows(self.entity.value, anchor, *few, *answers)
        of_pairs, answers = (rows[0], rows[1:]) if few else (table, rows)
        if further:
            # A query counts as often as it has answers, and so do the known entity and the relation in it.
            numbers = tf.reduce_sum(tf.cast(inputs["answers"] >= 0, tf.float32), 1)  # [B]
            of_answers = tf.gather(inputs["weight"] / numbers, query)
            if self._penalty:
                self._penalise([(anchor, inputs["weight"]), (answers[0], of_answers)], relation, inputs["weight"], side)
            if self._relation_loss:
                known, ids, sides = (tf.gather(x, query) for x in (anchor, relation, side))
                at_tail = sides[:, None] == TAIL
                triples = tf.where(at_tail, known, answers[0]), tf.where(at_tail, answers[0], known)
                shares = 0.5 * of_answers / tf.cast(tf.size(relation), tf.float32)
                self._predict_relations(*triples, ids, shares=shares, side=sides)
        if training and self.entity_dropout:
            (anchor,) = self._anchors([anchor])
        step = tf.identity(self._steps.value) if training and self.nets else None
        nets = [partial(net, step=step) for net in self.nets]
        relations = self._relations(relation, training)
        return full_scores(self._scorer, [table, of_pairs][: len(relations)], relations, anchor, side, nets)

    def _relations(self, ids: tf.Tensor, training: bool = False) -> list[Relations]:
        return [self._relation(place, ids, training) for place in range(len(self.common))]

    def _relation(self, head: int, ids: tf.Tensor, training: bool = False) -> Relations:
        common = {name: weight.value for name, weight in self.common[head].items()}
        # What takes weights in common, or is large, is made once for each distinct relation.
        once = common or self._scorer.large_relations
        distinct, place = tf.unique(tf.reshape(ids, [-1])) if once else (ids, None)
        rows = tf.gather(self._relation_tables()[head].value, distinct)
        if training and self.relation_dropout:
            rows = dropped(rows, self.relation_dropout, self.seed, self._steps.value, 2 + head)
        made = self._scorer.relation(rows, common)
        return Relations(made, None if place is None else tf.reshape(place, tf.shape(ids)))

    def _relation_tables(self) -> list[keras.Variable]:
        return [self.triple_relation] + ([self.pair_relation] if self.joint else [])

    def _anchors(self, rows: list[tf.Tensor]) -> list[tf.Tensor]:
        return [dropped(x, self.entity_dropout, self.seed, self._steps.value, i) for i, x in enumerate(rows)]

    def _regularise(self, entities: list[tf.Tensor], relation: tf.Tensor) -> None:
        """Adds the penalties and the loss of telling relations, given heads, tails [B, width] and relations [B]."""
        if self._penalty:
            # A triple takes one half of a reciprocal relation on each side, and so each by half.
            self._penalise([(x, 1.0) for x in entities], relation, 0.5 if self.reciprocal else 1.0)
        if self._relation_loss:
            self._predict_relations(*entities, relation)

    def _penalise(
        self,
        entities: Weighted,
        relation: tf.Tensor,
        weight: tf.Tensor | float = 1.0,
        side: tf.Tensor | None = None,
    ) -> None:
        """Adds the penalties to the loss, in the mean over the ids in `relation`; see `penalties`."""
        values = [x.value for x in self._relation_tables()]
        tables = list(zip(values, (self.n3, self.n3_pair), strict=False))
        total = penalties(self._scorer, entities, tables, relation, self.n3, self.l2, weight, side)
        self._add(total / tf.cast(tf.size(relation), tf.float32), self._penalty)

    def _predict_relations(self, *triples: tf.Tensor, **options: tf.Tensor) -> None:
        """Adds the loss of telling the relations of triples from all others; see `relation_loss`."""
        loss = relation_loss(self._scorer, self.relations(), *triples, **options)
        self._add(loss, self._relation_loss, self.relation_prediction)

    def _add(self, value: tf.Tensor, metric: keras.metrics.Metric, weight: float = 1.0) -> None:
        self.add_loss(weight * value)
        metric.update_state(value)

    def relations(self) -> tf.Tensor:
        """Returns what the triple head's queries take for each relation, float32 [R, …]."""
        return self._relation(HEADS.index("triple"), tf.range(self.num_relations)).each()

    def candidates(self) -> tf.Tensor:
        """Returns what queries are multiplied with to score each entity, float32 [E, length of a query]."""
        return self._scorer.candidate(self.entity.value)

    def queries(self, triples: tf.Tensor, side: int) -> tf.Tensor:
        """Returns the triple head's queries for the entities sought on one side.

        Args:
            triples: int [B, 3]; the column of `side` is not read.
            side: `HEAD` or `TAIL` of `jobi_tf.data.occurrences`.

        Returns:
            float32 [B, length]; its dot product with a row of `candidates` is the score of that entity, for bilinear
            scorers. Others make the score of it; see `Scorer`.
        """
        anchor = tf.gather(self.entity.value, triples[:, column(1 - side)])
        relation = self._relation(HEADS.index("triple"), triples[:, 1])
        ask = self._scorer
        query = ask.tail_queries(anchor, relation) if side == TAIL else ask.head_queries(relation, anchor)
        return self.nets[HEADS.index("triple")](query) if self.nets else query

    def scores(self, triples: tf.Tensor, side: int) -> tf.Tensor:
        """Returns the triple head's scores of every entity on a side of `triples`; int [B, 3] → float32 [B, E]."""
        return self._scorer.scores(
            self.queries(triples, side), partial(tf.matmul, b=self.candidates(), transpose_b=True)
        )

    def score(self, triples: tf.Tensor) -> tf.Tensor:
        """Returns the triple head's scores of `triples`: int [B, 3] → float32 [B]."""
        triples = tf.convert_to_tensor(triples)
        tails = self._scorer.candidate(tf.gather(self.entity.value, triples[:, column(TAIL)]))
        return self._scorer.scores(self.queries(triples, TAIL), lambda query: tf.reduce_sum(query * tails, -1))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {name: getattr(self, name) for name in _ARGUMENTS}


_ARGUMENTS = (
    *("num_entities", "num_relations", "dim", "scorer", "joint", "seed", "reciprocal"),
    *("n3", "n3_pair", "l2", "entity_dropout", "relation_dropout", "relation_prediction"),
)
