"""From settings to what `fit` needs: a compiled model and its stream of batches."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import keras
import tensorflow as tf

from jobi_tf.data.graph import Graph
from jobi_tf.data.negatives import NegativeSampler, half_of
from jobi_tf.data.occurrences import KnownAnswers, Occurrences
from jobi_tf.data.pipeline import (
    MOST_ANSWERS,
    default_batch_size,
    query_batches,
    steps_per_epoch,
    training_batches,
)
from jobi_tf.errors import UsageError
from jobi_tf.losses import FullSoftmax, PairCrossentropy, SampledLogistic, SampledMargin, SampledSoftmax
from jobi_tf.models.jobi import HEADS, JoBi
from jobi_tf.models.scorers import get_scorer
from jobi_tf.optimizers import LazyAdagrad, LazyAdam
from jobi_tf.training.config import TrainConfig

LEARNING_RATE, LEARNING_RATE_OF_SHARED = 0.0008, 0.0012
ADAGRAD_LEARNING_RATE = 0.1
LARGEST_BATCH_OF_QUERIES = 500
TRIPLES_AT_ONCE = 2000
# What is added to minus a distance before it goes through a sigmoid, where nothing else is said.
MARGIN_OF_DISTANCES = 6.0
LAST_LEARNING_RATE = 0.01  # of the first one, where it falls exponentially


@dataclass(frozen=True)
class Epoch:
    """What an epoch of training consists of.

    Args:
        steps: its steps.
        triples: the training triples that they stand for.
    """

    steps: int
    triples: int


def epoch(config: TrainConfig, graph: Graph) -> Epoch:
    """Returns what an epoch consists of, by settings that are `completed`."""
    size = config.batch_size or 0
    if config.loss != "full-softmax":
        steps = steps_per_epoch(len(graph.train), size, shared_by(config))
        return Epoch(steps, steps * size)
    queries = _queries(graph)
    steps = steps_per_epoch(queries, size, what="training queries")
    return Epoch(steps, round(len(graph.train) * steps * size / queries))


def steps_at_once(steps: int, batch_size: int, devices: int) -> int:
    """Returns how many steps TensorFlow takes before it comes back to Python, where some milliseconds pass each time.

    Several if batches are small; a part of the epoch's steps, so that it ends where it would, and a tenth of them at
    most, so that its progress is seen. One for several devices, since Keras 3.15 fails with more.
    """
    largest = 1 if devices > 1 else max(1, min(TRIPLES_AT_ONCE // batch_size, steps // 10))
    return max(n for n in range(1, largest + 1) if steps % n == 0)


def completed(config: TrainConfig, graph: Graph) -> TrainConfig:
    """Fills in the settings whose defaults hang on others or on the graph.

    Raises:
        UsageError: there is no batch of that size, too few negatives to share, or a setting that does not go with the
            model or is without effect.
    """
    config.refuse_without_effect()
    chunk = shared_by(config)
    if config.loss == "full-softmax":
        size = config.batch_size or default_batch_size(_queries(graph), LARGEST_BATCH_OF_QUERIES)
    else:
        size = config.batch_size or default_batch_size(len(graph.train))
    if chunk and not config.batch_size:
        size = max(chunk, size - size % chunk)
    if chunk and config.negatives < 2:
        raise UsageError("expected at least 2 negatives where they are shared, one for each side, got 1")
    if config.by_side:
        half_of(config.negatives)  # refuses an odd number
    of_adam = LEARNING_RATE_OF_SHARED if config.shared else LEARNING_RATE
    rate = ADAGRAD_LEARNING_RATE if config.optimizer == "adagrad" else of_adam
    config = config.replace(
        batch_size=size,
        learning_rate=config.learning_rate or rate,
        margin=_default_margin(config) if config.margin is None else config.margin,
    )
    epoch(config, graph)  # refuses a size that makes no step
    return config


def _default_margin(config: TrainConfig) -> float | None:
    of_logistic = MARGIN_OF_DISTANCES if get_scorer(config.model).distance else 0.0
    return {"margin": 1.0, "logistic": of_logistic}.get(config.loss)


def shared_by(config: TrainConfig) -> int | None:
    """Returns the number of triples that share their negatives; None if each has its own."""
    return config.chunk if config.shared else None


def build_model(config: TrainConfig, graph: Graph) -> JoBi:
    """Makes a model and compiles it, by settings that are `completed`; call it inside the strategy's scope."""
    options: dict[str, Any] = {name: getattr(config, name) for name in _OF_THE_MODEL}
    model = JoBi(graph.num_entities, graph.num_relations, scorer=config.model, **options)
    compile_model(model, config, epoch(config, graph).steps * config.epochs)
    return model


_OF_THE_MODEL = (
    *("dim", "joint", "seed", "reciprocal"),
    *("n3", "n3_pair", "l2", "entity_dropout", "relation_dropout", "relation_prediction"),
)


def compile_model(model: JoBi, config: TrainConfig, steps: int) -> None:
    """Compiles a model with its losses and a row-sparse optimizer; call it inside the strategy's scope.

    Args:
        model: the model.
        config: settings that are `completed`.
        steps: steps of the whole training, over which the learning rate falls.
    """
    losses: dict[str, keras.losses.Loss] = {"triple": _triple_loss(config)}
    if config.joint:
        losses["pair"] = _pair_loss(config)
    weights = {"triple": 1.0, "pair": config.alpha}
    optimizer = LazyAdagrad if config.optimizer == "adagrad" else LazyAdam
    # jit_compile: XLA is off on CPUs and under a strategy anyway; off everywhere, results do not hang on the machine.
    model.compile(
        optimizer=optimizer(_learning_rate(config, steps)),
        loss=losses,
        loss_weights={name: weights[name] for name in losses},
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)
    build_losses(model)


def build_losses(model: JoBi) -> None:
    """Makes what Keras else makes of the losses at the first step; call it inside the strategy's scope.

    Their metrics are variables, and a step that makes variables is traced twice; under a strategy `fit` would build the
    losses with ids averaged over the devices (Keras 3.15).
    """
    example = {name: tf.constant([[1.0, 0.0]]) for name in HEADS[: 1 + model.joint]}
    model.compute_loss(y=example, y_pred=example)
    model.reset_metrics()


def _triple_loss(config: TrainConfig) -> keras.losses.Loss:
    if config.loss == "full-softmax":
        return FullSoftmax(config.label_smoothing)
    if config.loss == "logistic":
        return SampledLogistic(config.margin or 0.0, config.adversarial_temperature, config.label_smoothing)
    return SampledMargin(config.margin or 0.0) if config.loss == "margin" else SampledSoftmax(config.label_smoothing)


def _pair_loss(config: TrainConfig) -> keras.losses.Loss:
    if get_scorer(config.model).distance:
        margin = config.margin if config.loss == "logistic" else None
        return PairCrossentropy(MARGIN_OF_DISTANCES if margin is None else margin)
    if config.loss == "full-softmax":
        return PairCrossentropy()
    return keras.losses.BinaryCrossentropy(from_logits=True)


def _learning_rate(config: TrainConfig, steps: int) -> float | keras.optimizers.schedules.LearningRateSchedule | None:
    if config.schedule == "cosine":
        return keras.optimizers.schedules.CosineDecay(config.learning_rate, steps)
    if config.schedule == "exponential":
        return keras.optimizers.schedules.ExponentialDecay(config.learning_rate, steps, LAST_LEARNING_RATE)
    return config.learning_rate


def build_batches(config: TrainConfig, graph: Graph, first_step: int = 0) -> tf.data.Dataset:
    """Returns the endless stream of batches of `graph.train`, by settings that are `completed`.

    See `training_batches`, and `query_batches` for the loss full-softmax; it begins with step `first_step`.
    """
    size = config.batch_size or 0
    occurrences = Occurrences.of_graph(graph)
    if config.loss == "full-softmax":
        answers = KnownAnswers.of_graph(graph, ["train"])
        pairs = occurrences if config.joint else None
        return query_batches(answers, pairs, size, config.seed, first_step, config.pair_entities)
    filtered = graph.train if config.filter_negatives else None
    sampler = NegativeSampler(occurrences, config.negatives, config.p, filtered)
    chunk = shared_by(config)
    return training_batches(graph.train, sampler, size, config.joint, config.seed, first_step, chunk, config.by_side)


@lru_cache(maxsize=1)  # what an epoch consists of is asked for several times
def _queries(graph: Graph) -> int:
    """Returns the number of queries of training on both sides, of which those with many answers come in parts."""
    return len(KnownAnswers.of_graph(graph, ["train"]).answers.in_parts(MOST_ANSWERS)[1])
