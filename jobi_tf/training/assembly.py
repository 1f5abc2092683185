"""From settings to what `fit` needs: a compiled model and its stream of batches."""

from typing import Any, NamedTuple

import keras
import tensorflow as tf

from jobi_tf.data.batches import (
    check_negatives,
    default_batch_size,
    number_of_queries,
    query_batches,
    steps_per_epoch,
    training_batches,
)
from jobi_tf.data.graph import Graph
from jobi_tf.data.negatives import Part
from jobi_tf.data.soft_labels import SoftLabels
from jobi_tf.errors import UsageError
from jobi_tf.losses import FullSoftmax, PairCrossentropy, SampledLogistic, SampledMargin, SampledSoftmax
from jobi_tf.models import scorers
from jobi_tf.models.distributed import check_jit_compile
from jobi_tf.models.jobi import HEADS, JoBi
from jobi_tf.models.products import check_dtypes
from jobi_tf.models.regularizers import DURA, L2, N3, Regularizer, RelationPrediction, get_all
from jobi_tf.optimizers import LazyAdagrad, LazyAdam, RowAdagrad
from jobi_tf.training.config import TrainConfig
from jobi_tf.workers import has_workers

OPTIMIZERS = {"adam": LazyAdam, "adagrad": LazyAdagrad, "row-adagrad": RowAdagrad}
OF_MODEL = (
    *("dim", "joint", "reciprocal", "entity_dropout", "relation_dropout", "freeze_entities"),
    *("precision", "table_dtype", "seed"),
)
REGULARIZERS: dict[type[Regularizer], tuple[str, ...]] = {
    **{N3: ("n3", "n3_pair"), L2: ("l2",), DURA: ("dura",), RelationPrediction: ("relation_prediction",)}
}
LEARNING_RATE, SHARED_LEARNING_RATE = 0.0008, 0.0012
ADAGRAD_LEARNING_RATE = 0.1
LARGEST_BATCH_OF_QUERIES = 500
TRIPLES_PER_EXECUTION = 2000
MARGIN_OF_DISTANCES = 6.0  # default of what is added to a negative distance before the sigmoid
LAST_LEARNING_RATE = 0.01  # of the first one, with an exponential schedule


class Epoch(NamedTuple):
    """The steps of an epoch, and the training triples that they stand for."""

    steps: int
    triples: int


def epoch(config: TrainConfig, graph: Graph) -> Epoch:
    """Returns the size of an epoch, given `completed` settings."""
    size, queries = config.batch_size or 0, config.full_softmax
    if not queries:
        steps = steps_per_epoch(graph, size)
        return Epoch(steps, steps * size)
    most = config.answers_per_query
    steps = steps_per_epoch(graph, size, queries, answers_per_query=most)
    return Epoch(steps, round(len(graph.train) * steps * size / number_of_queries(graph, "train", most)))


def steps_per_execution(steps: int, batch_size: int, devices: int = 1) -> int:
    """Returns how many steps TensorFlow executes before it returns to Python, which takes some milliseconds.

    More than one for small batches: a divisor of the epoch's steps, and at most a tenth of them, so that progress can
    be shown. One for several devices, since Keras 3.15 fails with more.
    """
    largest = 1 if devices > 1 else max(1, min(TRIPLES_PER_EXECUTION // batch_size, steps // 10))
    return max(n for n in range(1, largest + 1) if steps % n == 0)


def completed(config: TrainConfig, graph: Graph, devices: int = 1) -> TrainConfig:
    """Fills in the settings whose defaults depend on others, on the graph or on the number of devices.

    Raises:
        UsageError: settings contradict each other or have no effect; there is no batch of that size, or the devices
            cannot share it evenly.
    """
    config.check()
    if graph.weights and config.full_softmax:
        reason = "a query has one weight for all of its answers"
        raise UsageError(f"expected another loss than full-softmax with the weights of {graph.name}: {reason}")
    scorer = scorers.get(config.model)
    check_dtypes(scorer, precision=config.precision, table_dtype=config.table_dtype)
    check_jit_compile(config.jit_compile, devices)
    get_all(_regularizers(config), scorer)  # raises for a scorer that one does not suit
    if not config.full_softmax:
        check_negatives(config.negatives, config.negatives_mode)
    full, multiple = config.full_softmax, devices * (config.chunk if config.shared else 1)
    shared = f"{devices} device{'s' * (devices > 1)} can share evenly"
    if config.shared:
        shared += f" in chunks of {config.chunk}"
    if config.batch_size is None:
        count = number_of_queries(graph, "train", config.answers_per_query) if full else len(graph.train)
        if count < multiple:
            what = "training queries" if full else "training triples"
            raise UsageError(f"expected at least {multiple} {what}, which {shared}, got {count}")
        size = default_batch_size(count, LARGEST_BATCH_OF_QUERIES if full else 1000, multiple)
    elif config.batch_size % multiple:
        raise UsageError(f"expected a batch_size that {shared}, a multiple of {multiple}, got {config.batch_size}")
    else:
        size = config.batch_size
    sampled_rate = SHARED_LEARNING_RATE if config.shared else LEARNING_RATE
    rate = sampled_rate if config.optimizer == "adam" else ADAGRAD_LEARNING_RATE
    changes = {"batch_size": size, "learning_rate": config.learning_rate or rate}
    if config.loss in ("logistic", "margin"):
        changes["margin"] = _margin(config)
    config = config.replace(**changes)
    epoch(config, graph)  # raises for a size that makes no step
    return config


def _margin(config: TrainConfig) -> float:
    if config.margin is not None:
        return config.margin
    if config.loss == "margin":
        return 1.0
    return MARGIN_OF_DISTANCES if scorers.get(config.model).distance else 0.0


def build_model(config: TrainConfig, graph: Graph) -> JoBi:
    """Creates and compiles a model, given `completed` settings; call it inside the strategy's scope."""
    model = new_model(config, graph)
    compile_model(model, config, epoch(config, graph).steps * config.epochs)
    return model


def new_model(config: TrainConfig, graph: Graph) -> JoBi:
    """Creates a model, given its settings; call it inside the strategy's scope."""
    options = {name: getattr(config, name) for name in OF_MODEL}
    options |= {"regularizers": _regularizers(config), "dtype": "float32"}
    return JoBi(graph.num_entities, graph.num_relations, scorer=config.model, **options)


def _regularizers(config: TrainConfig) -> list[Regularizer]:
    weights = {cls: [getattr(config, name) for name in names] for cls, names in REGULARIZERS.items()}
    return [cls(*given) for cls, given in weights.items() if any(given)]


def config_of(model: JoBi, graph: Graph, **settings: Any) -> TrainConfig:
    """Returns the known settings of a model of another program, or raises a `UsageError` if a given one differs."""
    known = {"dataset": graph.name, "model": scorers.full_name(model.scorer), "own_program": True}
    known |= {name: getattr(model, name) for name in OF_MODEL}
    for regularizer in model.regularizers:
        known |= zip(REGULARIZERS.get(type(regularizer), ()), regularizer.get_config().values(), strict=False)
    for name in settings.keys() & known.keys():
        if settings[name] != known[name]:
            raise UsageError(f"expected {name} {known[name]} as the model has it, got {settings[name]}")
    return TrainConfig.create(settings | known).effective()


def compile_model(
    model: JoBi, config: TrainConfig, steps: int, optimizer: keras.optimizers.Optimizer | None = None
) -> None:
    """Compiles a model, given `completed` settings; call it inside the strategy's scope.

    The learning rate falls over `steps`, those of the whole training. `optimizer` is one other than in the settings.
    """
    losses = losses_of(config)
    if optimizer is None:
        optimizer = OPTIMIZERS[config.optimizer](_learning_rate(config, steps))
    loss, weights = ({x: pair[i] for x, pair in losses.items()} for i in range(2))
    model.compile(optimizer, loss, weights, jit_compile=config.jit_compile)
    build_losses(model)


def losses_of(config: TrainConfig) -> dict[str, tuple[keras.losses.Loss, float]]:
    """Returns the loss of each head of the model and its weight."""
    margin, smoothing, full = _margin(config), config.label_smoothing, config.full_softmax
    triple: keras.losses.Loss
    if full:
        triple = FullSoftmax(smoothing)
    elif config.loss == "logistic":
        triple = SampledLogistic(margin, config.adversarial_temperature, smoothing)
    else:
        triple = SampledMargin(margin) if config.loss == "margin" else SampledSoftmax(smoothing)
    if not config.joint:
        return {"triple": (triple, 1.0)}
    pair: keras.losses.Loss = PairCrossentropy() if full else keras.losses.BinaryCrossentropy(from_logits=True)
    if scorers.get(config.model).distance:
        pair = PairCrossentropy(margin if config.loss == "logistic" else MARGIN_OF_DISTANCES)
    return {"triple": (triple, 1.0), "pair": (pair, config.alpha)}


def build_losses(model: JoBi) -> None:
    """Creates the metrics of the losses, which Keras would otherwise create in the first step and trace it twice."""
    example = {name: tf.constant([[1.0, 0.0]]) for name in HEADS[: 1 + model.joint]}
    model.compute_loss(y=example, y_pred=example)
    model.reset_metrics()


def _learning_rate(config: TrainConfig, steps: int) -> float | keras.optimizers.schedules.LearningRateSchedule | None:
    if config.schedule == "cosine" and config.warmup_epochs:
        rise, rate = steps // config.epochs * config.warmup_epochs, config.learning_rate
        return keras.optimizers.schedules.CosineDecay(0.0, steps - rise, warmup_target=rate, warmup_steps=rise)
    if config.schedule == "cosine":
        return keras.optimizers.schedules.CosineDecay(config.learning_rate, steps)
    if config.schedule == "exponential":
        return keras.optimizers.schedules.ExponentialDecay(config.learning_rate, steps, LAST_LEARNING_RATE)
    return config.learning_rate


def distributed_batches(
    config: TrainConfig, graph: Graph, strategy: tf.distribute.Strategy, first_step: int
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Returns what `fit` takes under a strategy: each of several workers makes only its own part of each batch."""
    if not has_workers(strategy):
        return build_batches(config, graph, first_step)

    def part(context: tf.distribute.InputContext) -> tf.data.Dataset:
        own = Part(context.input_pipeline_id, context.num_input_pipelines)
        batches = build_batches(config, graph, first_step, part=own)
        devices = context.num_replicas_in_sync // own.count
        rows = next(iter(tf.nest.flatten(batches.element_spec))).shape[0]
        return batches if devices == 1 else batches.rebatch(rows // devices, drop_remainder=True)

    return strategy.distribute_datasets_from_function(part)


def build_batches(
    config: TrainConfig, graph: Graph, first_step: int = 0, split: str = "train", **more: Any
) -> tf.data.Dataset:
    """Returns the endless stream of training batches from step `first_step` on, given `completed` settings."""
    queries = config.full_softmax
    names = ["answers_per_query", "rare_weight", "pair_entities"] if queries else ["negatives", "p", "filter_negatives"]
    names += ["chunk"] * config.shared
    options = {name: getattr(config, name) for name in ("batch_size", "joint", "seed", *names)}
    options |= {"split": split, "first_step": first_step, **more}
    if config.soft_labels is not None and split == "train":
        options |= {"soft_labels": SoftLabels.load(config.soft_labels, graph), "soft_weight": config.soft_weight}
    return (
        query_batches(graph, **options) if queries else training_batches(graph, mode=config.negatives_mode, **options)
    )
