"""The memory of a training, estimated before it begins."""

import math

import psutil

from jobi_tf.data.graph import Graph
from jobi_tf.errors import UsageError
from jobi_tf.evaluation.ranker import MEMORY_BUDGET
from jobi_tf.models import scorers
from jobi_tf.training.config import TrainConfig

RUNTIME = 600 * 2**20  # of Python with TensorFlow and Keras
SLOTS = {"adam": 2, "adagrad": 1}  # numbers that the optimizer keeps for each weight
BYTES_PER_TRIPLE = 60  # of the triples, occurrence tables and known answers


def estimated_memory(config: TrainConfig, graph: Graph) -> int:
    """Returns the bytes that a training takes on one machine without GPUs, given `completed` settings.

    The measured peak is within about a third of it. On GPUs the same tables and batches are in their memory.
    """
    scorer = scorers.get(config.model)
    width, relations = scorer.entity_width(config.dim), graph.num_relations * (1 + config.reciprocal)
    shared = sum(math.prod(shape) for shape in scorer.shared_weights(config.dim).values())
    of_heads = (1 + config.joint) * (relations * scorer.relation_width(config.dim) + shared)
    numbers = graph.num_entities * width + of_heads
    ranking = 0
    if config.eval_every:
        # For distances, what queries are multiplied with is a copy of the entity table.
        copied = graph.num_entities * (width + 2) if scorer.distance else 0
        ranking = 4 * copied + min(MEMORY_BUDGET, 64 * 13 * graph.num_entities)
    return (
        RUNTIME
        + 4 * numbers * (1 + SLOTS[config.optimizer])
        + max(_step(config, graph, width), ranking)
        + (BYTES_PER_TRIPLE * sum(map(len, graph.splits.values())))
    )


def _step(config: TrainConfig, graph: Graph, width: int) -> int:
    """Returns the bytes of the largest tensors of a step."""
    size, heads = config.batch_size or 0, 1 + config.joint
    if config.loss == "full-softmax":
        scores = size * graph.num_entities
        pairs = size * min(config.pair_entities or graph.num_entities, graph.num_entities) * config.joint
        # Scores and their gradient, exponentials and labels; the gradient of the entity table.
        return 4 * (3 * scores + 5 * pairs) + 2 * 4 * graph.num_entities * width
    drawn = size * config.negatives // (config.chunk if config.shared else 1)
    entities = min(graph.num_entities, drawn + 2 * size)
    # Embeddings and gradients of the distinct entities and copies by the optimizer; the scores and their gradients.
    return 4 * (6 * entities * width + 6 * heads * size * config.negatives + 8 * heads * size * width)


def check_memory(needed: int, config: TrainConfig, available: int | None = None) -> None:
    """Refuses a training that cannot fit into memory.

    Args:
        needed: estimated bytes.
        config: the settings.
        available: bytes that are available; by default those of this machine.

    Raises:
        UsageError: it cannot fit; the message has what to change.
    """
    available = psutil.virtual_memory().available if available is None else available
    if needed <= available:
        return
    if config.loss == "full-softmax":
        advice = "a smaller batch_size or dim, pair_entities, or the loss softmax with sampled negatives"
    else:
        advice = "a smaller dim, the optimizer adagrad (a third less), or a smaller batch_size"
    raise UsageError(
        f"expected a training that fits into the {available / 2**30:.1f} GB of memory that are available, got an "
        f"estimate of {needed / 2**30:.1f} GB: try {advice}"
    )
