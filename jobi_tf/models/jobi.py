"""The joint model."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jobi_tf.data.occurrences import HEAD, TAIL, column
from jobi_tf.data.seeds import fold_in
from jobi_tf.errors import UsageError, check_at_least, check_numbers
from jobi_tf.models import regularizers as regularizer_objects
from jobi_tf.models import scorers
from jobi_tf.models.batches import batch_form
from jobi_tf.models.distributed import DistributedModel, check_jit_compile
from jobi_tf.models.dropout import Dropout
from jobi_tf.models.layers import EmbeddingTable, Head
from jobi_tf.models.products import all_scores, check_dtypes, own_scores
from jobi_tf.models.regularizers import Regularizer
from jobi_tf.models.scorers.scorer import Scorer, glorot_normal
from jobi_tf.serialization import constructor_arguments

HEADS = ("triple", "pair")


@keras.saving.register_keras_serializable("jobi_tf")
class JoBi(DistributedModel):
    """A knowledge-graph embedding with a triple head and an optional pair head over one entity table.

    The triple head scores triples. The pair head, which has its own relation embeddings, scores whether the entities of
    a triple occur with its relation. It is only used in training; `score`, ranking and export use the triple head.

    Args:
        num_entities: number of entities, E.
        num_relations: number of relations, R.
        dim: the embedding size d of the paper. ComplEx, SimplE and RotatE have two vectors of that length for each
            entity, so a row of `entities.table` has 2d numbers.
        scorer: the score function: `"complex"`, `"distmult"`, `"simple"`, `"rescal"`, `"tucker"`, `"transe"`,
            `"rotate"`, `"typecomplex"`, `"conve"` (needs `reciprocal`), or a `jobi_tf.Scorer`.
        joint: whether there is a pair head.
        reciprocal: whether each relation r has an inverse, r + R, so that the head of (?, r, t) is predicted as the
            tail of (t, r + R, ?). A triple then has a different score on each side; `score` returns that of the tail.
        regularizers: `"n3"`, `"l2"`, `"dura"`, `"relation_prediction"`, or objects of `jobi_tf.Regularizer`.
        entity_dropout: dropout rate of the known entity's embedding in training queries, in [0, 1).
        relation_dropout: dropout rate of relation embeddings in training queries, in [0, 1).
        entity_initializer: a Keras initializer or its name. None: Glorot normal over each [E, d] part of the table.
        relation_initializer: the same for relations. None: that of the scorer, usually Glorot normal.
        freeze_entities: whether entity embeddings, such as pretrained ones, are not trained.
        precision: `"float32"` or `"bfloat16"`, the dtype of the products of queries and all entities in training.
            Weights, losses, updates, and scores outside of training are always float32.
        table_dtype: dtype of the entity table and its optimizer state; `"bfloat16"` is for sampled negatives only.
        seed: seed of the default initializers and of dropout.

    Raises:
        UsageError: a size or rate is out of range; a scorer or regularizer is unknown; the scorer needs reciprocal
            relations; the dtype policy is not float32; or the precision or a regularizer does not suit the scorer.

    Example:
        >>> model = jobi_tf.JoBi(num_entities=135, num_relations=46, dim=32)
        >>> model.score(tf.constant([[0, 1, 2]])).shape
        TensorShape([1])

    Reference: Balkır et al., Using Pairwise Occurrence Information to Improve Knowledge Graph Completion on Large-Scale
    Datasets, EMNLP-IJCNLP 2019.
    """

    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        dim: int = 200,
        scorer: str | Scorer = "complex",
        joint: bool = True,
        *,
        reciprocal: bool = False,
        regularizers: Sequence[str | Regularizer] | None = None,
        entity_dropout: float = 0.0,
        relation_dropout: float = 0.0,
        entity_initializer: Any = None,
        relation_initializer: Any = None,
        freeze_entities: bool = False,
        precision: str = "float32",
        table_dtype: str = "float32",
        seed: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_at_least(1, num_entities=num_entities, num_relations=num_relations, dim=dim)
        for name, given in {"joint": joint, "reciprocal": reciprocal, "freeze_entities": freeze_entities}.items():
            if not isinstance(given, bool | np.bool_):
                raise UsageError(f"expected {name} to be True or False, got {given!r}")
        if self.dtype_policy.compute_dtype != "float32":
            raise UsageError(f"expected the dtype policy float32, got {self.dtype_policy.name}: give dtype='float32'")
        self.num_entities, self.num_relations, self.dim = num_entities, num_relations, dim
        self.scorer = scorers.get(scorer)
        check_dtypes(self.scorer, precision=precision, table_dtype=table_dtype)
        self.joint, self.reciprocal, self.seed = joint, reciprocal, seed
        self.precision, self.table_dtype = precision, table_dtype
        if self.scorer.tails_only and not reciprocal:
            raise UsageError(f"expected reciprocal=True with the scorer {self.scorer.name}, which has no head query")
        self.regularizers = regularizer_objects.get_all(regularizers, self.scorer)
        check_numbers("[0, 1)", entity_dropout=entity_dropout, relation_dropout=relation_dropout)
        self.entity_dropout, self.relation_dropout = entity_dropout, relation_dropout
        self.entity_initializer = _initializer("entity_initializer", entity_initializer)
        self.relation_initializer = _initializer("relation_initializer", relation_initializer)
        initializer = self.entity_initializer or glorot_normal(num_entities, dim, fold_in(seed, "entities"))
        width = self.scorer.entity_width(dim)
        self.entities = EmbeddingTable(num_entities, width, initializer, "entities", table_dtype)
        self.entities.trainable = not freeze_entities
        options = dim, reciprocal, relation_dropout, self.relation_initializer, seed
        self.heads = [Head(self.scorer, num_relations, *options, name=name) for name in HEADS[: 1 + joint]]
        self._drop = Dropout(entity_dropout, fold_in(seed, "entities", "dropout")) if entity_dropout else None
        self._penalties = [keras.metrics.Mean(x.name) for x in self.regularizers]
        self.xla, self.built = False, True

    @property
    def freeze_entities(self) -> bool:
        """Whether entity embeddings are not trained."""
        return not self.entities.trainable

    def call(self, inputs: dict[str, tf.Tensor], training: bool = False) -> dict[str, tf.Tensor]:
        """Scores a batch by each head.

        Args:
            inputs: the fields of a class of `jobi_tf.models.batches`, such as `OwnNegatives` or `Queries`, as made by
                `jobi_tf.training_batches` and `jobi_tf.query_batches`.
            training: whether to apply dropout.

        Returns:
            The float32 scores of the head `triple`, and of `pair` in a joint model. Their shape depends on the class.

        Raises:
            UsageError: there is no form with these keys, or it does not suit reciprocal relations.
        """
        scores, positives = batch_form(inputs).score(self, training)
        if positives:
            for regularizer, metric in zip(self.regularizers, self._penalties, strict=True):
                loss = tf.convert_to_tensor(regularizer(positives, self.heads))
                if loss.shape.rank:
                    raise UsageError(f"expected a scalar from {regularizer.name}, got the shape {loss.shape}")
                self.add_loss(loss)
                metric.update_state(loss)
        return dict(zip(HEADS, scores, strict=False))

    def known(self, rows: Sequence[tf.Tensor], training: bool) -> list[tf.Tensor]:
        """Returns embeddings of known entities as queries take them: dropped out in training."""
        return [self._drop(x, training=training) for x in rows] if self._drop else list(rows)

    def compile(
        self, optimizer: Any = None, loss: Any = None, *args: Any, jit_compile: bool | str = "auto", **kwargs: Any
    ) -> None:
        """Configures the model for training, as `keras.Model.compile` does.

        Args:
            optimizer: `jobi_tf.LazyAdam`, `LazyAdagrad` or `RowAdagrad`, which update only the rows of a batch; or any
                Keras optimizer or its name, which updates whole tables in each step.
            loss: a loss for each output, such as `{"triple": jobi_tf.SampledSoftmax(), "pair": ...}`.
            *args: as for `keras.Model.compile`.
            jit_compile: whether XLA compiles the whole training step, which is faster on a GPU for queries of all
                entities. `"auto"` means `False` here: XLA then only compiles some functions, on CPUs. A step that XLA
                compiles does not notice ids out of range. A step of your own that XLA compiles as a whole needs a model
                that was compiled with `True`.
            **kwargs: as for `keras.Model.compile`.

        Raises:
            UsageError: there is no optimizer, `keras.config.floatx()` is not float32, `jit_compile` is True with
                several devices, loss weights or metrics of a joint model are not given by head, or an optimizer of this
                library is not in the scope of the strategy.
        """
        if optimizer is None:
            raise UsageError("expected an optimizer, such as jobi_tf.LazyAdam(), got none")
        if keras.config.floatx() != "float32":
            raise UsageError(f"expected keras.config.floatx() to be float32, got {keras.config.floatx()}")
        jit_compile = jit_compile if jit_compile != "auto" else False
        check_jit_compile(bool(jit_compile), self.distribute_strategy.num_replicas_in_sync)
        self._check_by_head(dict(zip(("loss_weights", "metrics", "weighted_metrics"), args, strict=False)) | kwargs)
        super().compile(optimizer, loss, *args, jit_compile=jit_compile, **kwargs)
        self.xla = self.jit_compile
        sparse = getattr(self.optimizer, "sparse", False)
        if sparse:
            if tf.distribute.get_strategy() is not self.distribute_strategy:
                raise UsageError("expected `compile` in the scope of the strategy in which the model was made")
            self.optimizer.xla = self.xla
        for table in (self.entities, *(head.relations for head in self.heads)):
            table.sparse_gradient = sparse
        self.build_optimizer()

    def _check_by_head(self, given: dict[str, Any]) -> None:
        """Refuses loss weights and metrics without names, which Keras would give to the heads in alphabetical order."""
        names = {*HEADS[: len(self.heads)]}
        for name in ("loss_weights", "metrics", "weighted_metrics"):
            value = given.get(name)
            keys = value.keys() if isinstance(value, dict) else {None}
            by_head = keys == names or (keys < names and name != "loss_weights") or self._overrides("call")
            if self.joint and value is not None and not by_head:
                raise UsageError(f"expected {name} as a dict with {' and '.join(sorted(names))}, got {value!r}")

    def candidates(self) -> tf.Tensor:
        """Returns what queries are multiplied with to score each entity, [E, length of a query], as `all_scores`."""
        table = self.entities.shared_table()
        if self.scorer.candidates_are_embeddings:
            return table  # of bfloat16 too, whose products cast it part by part
        return self.scorer.candidate(tf.cast(table, tf.float32))

    def queries(
        self, triples: tf.Tensor, side: int, head: str = "triple", candidates: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns a head's queries for the entities on one side.

        Args:
            triples: int [B, 3]; the column of `side` is not read.
            side: `HEAD` (0) or `TAIL` (1).
            head: `triple` or `pair`.
            candidates: the candidates of all entities or of some, if the caller has them. Where they are the embeddings
                of all, rows are taken from them: gathering rows of the table would copy it as long as it is shared.

        Returns:
            float32 [B, length]; for bilinear scorers their dot products with `candidates` are the scores, see `Scorer`.

        Raises:
            UsageError: there is no such head or side, or outside of a `tf.function` an id is out of range.
        """
        if head not in HEADS[: len(self.heads)]:
            raise UsageError(f"expected a head out of {', '.join(HEADS[: len(self.heads)])}, got {head!r}")
        if side not in (HEAD, TAIL):
            raise UsageError(f"expected the side {HEAD} for heads or {TAIL} for tails, got {side!r}")
        triples = _ids(triples)
        self._check_ids(triples, [1, column(1 - side)])
        anchors = triples[:, column(1 - side)]
        of_all = candidates is not None and candidates.shape[0] == self.num_entities  # not the part of a server
        if of_all and self.scorer.candidates_are_embeddings:
            rows = tf.cast(tf.gather(candidates, anchors), tf.float32)
        else:
            rows = self.entities.rows(anchors)
        return self.heads[HEADS.index(head)].queries_of(triples[:, 1], side, rows)

    def scores(self, triples: tf.Tensor, side: int, candidates: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the triple head's scores of every entity on one side: int [B, 3] → float32 [B, E].

        The result of `candidates()` can be given, so that many calls do not compute it again.
        """
        candidates = self.candidates() if candidates is None else candidates
        return all_scores(self.scorer, self.queries(triples, side, candidates=candidates), candidates)

    def score(self, triples: tf.Tensor, head: str = "triple") -> tf.Tensor:
        """Returns the scores of triples by a head, `triple` or `pair`: int [B, 3] → float32 [B].

        Raises:
            UsageError: there is no such head, or outside of a `tf.function` an id is out of range.
        """
        triples = _ids(triples)
        self._check_ids(triples, [column(TAIL)])  # `queries` checks the others
        tails = self.scorer.candidate(self.entities.rows(triples[:, column(TAIL)]))
        return own_scores(self.scorer, self.queries(triples, TAIL, head), tails)

    def _check_ids(self, triples: tf.Tensor, columns: list[int]) -> None:
        """Raises a `UsageError` for ids out of range in some columns, unless this is in a graph."""
        if tf.executing_eagerly():
            ids, sizes = triples.numpy(), [self.num_entities, self.num_relations, self.num_entities]
            wrong = ids[((ids < 0) | (ids >= sizes))[:, columns].any(1)]
            if len(wrong):
                raise UsageError(f"expected triples of ids from 0 to below {sizes}, got {wrong[0].tolist()}")

    def export(self, *args: Any, **kwargs: Any) -> None:
        """Raises an error: use `jobi_tf.export_run`, which writes a SavedModel with the names of the graph.

        Raises:
            UsageError: always.
        """
        raise UsageError("a JoBi model is exported by jobi_tf.export_run(jobi_tf.Run.from_model(model, graph), folder)")

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        config = constructor_arguments(self, JoBi)
        for name in config.keys() & {"scorer", "regularizers", "entity_initializer", "relation_initializer"}:
            config[name] = keras.saving.serialize_keras_object(config[name])
        return super().get_config() | config


def _initializer(name: str, given: Any) -> keras.initializers.Initializer | None:
    """Returns an initializer that can be saved with the model."""
    try:
        initializer = keras.initializers.get(given)
    except ValueError:
        initializer = given
    if not isinstance(initializer, keras.initializers.Initializer | None):
        advice = "assign arrays, as in model.entities.table.assign(array)"
        came = repr(given) if isinstance(given, str) else type(given).__name__
        raise UsageError(f"expected {name} to be a Keras initializer or its name, got {came}: {advice}")
    return initializer


def _ids(triples: Any) -> tf.Tensor:
    """Returns triples of ids as a tensor, int [B, 3]."""
    triples = tf.convert_to_tensor(triples)
    if not triples.dtype.is_integer or not triples.shape.is_compatible_with([None, 3]):
        raise UsageError(f"expected triples of ids, int [B, 3], got {triples.dtype.name} {triples.shape}")
    return triples if triples.dtype in (tf.int32, tf.int64) else tf.cast(triples, tf.int64)
