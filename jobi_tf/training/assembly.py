"""From settings to what `fit` needs: a compiled model and its stream of batches."""

import keras
import tensorflow as tf

from jobi_tf.data.graph import Graph
from jobi_tf.data.negatives import NegativeSampler
from jobi_tf.data.occurrences import Occurrences
from jobi_tf.data.pipeline import default_batch_size, steps_per_epoch, training_batches
from jobi_tf.errors import UsageError
from jobi_tf.losses import SampledSoftmax
from jobi_tf.models.jobi import JoBi
from jobi_tf.optimizers import LazyAdam
from jobi_tf.training.config import TrainConfig

LEARNING_RATES = {"own": 0.0008, "shared": 0.0012}


def completed(config: TrainConfig, graph: Graph) -> TrainConfig:
    """Fills in the settings whose defaults hang on others or on the graph.

    Raises:
        UsageError: there is no batch of that size, or too few negatives to share.
    """
    chunk = shared_by(config)
    size = config.batch_size or default_batch_size(len(graph.train))
    if chunk and not config.batch_size:
        size = max(chunk, size - size % chunk)
    steps_per_epoch(len(graph.train), size, chunk)
    if chunk and config.negatives < 2:
        raise UsageError("expected at least 2 negatives where they are shared, one for each side, got 1")
    return config.replace(batch_size=size, learning_rate=config.learning_rate or LEARNING_RATES[config.negatives_mode])


def shared_by(config: TrainConfig) -> int | None:
    """Returns the number of triples that share their negatives; None if each has its own."""
    return config.chunk if config.negatives_mode == "shared" else None


def build_model(config: TrainConfig, graph: Graph) -> JoBi:
    """Makes a model and compiles it, by settings that are `completed`; call it inside the strategy's scope."""
    model = JoBi(graph.num_entities, graph.num_relations, config.dim, config.model, config.joint, config.seed)
    compile_model(model, config)
    return model


def compile_model(model: JoBi, config: TrainConfig) -> None:
    """Compiles a model with the losses of the paper and the row-sparse Adam; call it inside the strategy's scope."""
    losses: dict[str, keras.losses.Loss] = {"triple": SampledSoftmax()}
    if config.joint:
        losses["pair"] = keras.losses.BinaryCrossentropy(from_logits=True)
    weights = {"triple": 1.0, "pair": config.alpha}
    # jit_compile: XLA is off on CPUs and under a strategy anyway; off everywhere, results do not hang on the machine.
    model.compile(
        optimizer=LazyAdam(config.learning_rate),
        loss=losses,
        loss_weights={name: weights[name] for name in losses},
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)


def build_batches(config: TrainConfig, graph: Graph, first_step: int = 0) -> tf.data.Dataset:
    """Returns the endless stream of batches of `graph.train`, by settings that are `completed`.

    See `training_batches`; it begins with step `first_step`.
    """
    size = config.batch_size or 0
    occurrences = Occurrences.from_triples(graph.train, graph.num_entities, graph.num_relations)
    filtered = graph.train if config.filter_negatives else None
    sampler = NegativeSampler(occurrences, config.negatives, config.p, filtered)
    return training_batches(graph.train, sampler, size, config.joint, config.seed, first_step, shared_by(config))
