"""What a training takes, by formula and before it begins: memory by part, and bytes and operations of a step."""

import math
from dataclasses import dataclass

import psutil

from jobi_tf.data.graph import Graph
from jobi_tf.data.shards import Shards
from jobi_tf.errors import UsageError
from jobi_tf.evaluation.ranker import MEMORY_BUDGET, fast_queries
from jobi_tf.models import scorers
from jobi_tf.training.config import TrainConfig

RUNTIME = 800 * 2**20  # of Python with TensorFlow and Keras, and what they compile
SLOTS = {"adam": 2.0, "adagrad": 1.0}  # numbers that the optimizer keeps for each weight; row-adagrad: one a row
OPTIMIZER_OPERATIONS = {"adam": 12, "adagrad": 6, "row-adagrad": 5}  # for each number of a touched row
BYTES_PER_TRIPLE = 60  # of the triples, occurrence tables and known answers
BYTES_PER_STREAMED = 48  # of a triple of a window of shards: its record as a string, and its row in two orders
BYTES_PER_PAIR = 24  # of a relation and an entity seen with it
BYTES_PER_NAME = 70  # of a short name of an entity
FLOAT = 4  # bytes
BYTES = {"float32": FLOAT, "bfloat16": 2}


@dataclass(frozen=True)
class Memory:
    """Bytes of a machine without GPUs, or of each GPU; `runtime` and `graph` are in main memory then."""

    runtime: int  # Python with TensorFlow and Keras
    embeddings: int  # the tables of entities and relations
    optimizer: int  # what the optimizer keeps beside them
    batch: int  # the largest tensors of a step
    ranking: int  # scores of validation queries, and the candidates if the scorer needs a copy of the table for them
    average: int  # the second copy of the weights that averaging needs
    graph: int  # triples, occurrence tables, known answers and names
    start: int  # copies of the tables that several workers send each other at the start

    @property
    def total(self) -> int:
        """The peak, in bytes; the start, steps and rankings use the same memory in turn."""
        kept = self.runtime + self.embeddings + self.optimizer + self.average + self.graph
        return kept + max(self.batch, self.ranking, self.start)


@dataclass(frozen=True)
class Step:
    """A training step on one device."""

    rows: int  # expected number of distinct entities that are read and updated
    bytes: int  # that are read or written, at least
    operations: int  # of floating-point numbers, at least
    sent: int  # bytes of gradients that several devices exchange, each device its rows and their ids


class _Tables:
    """The tables that settings describe."""

    def __init__(self, config: TrainConfig, graph: Graph):
        scorer = scorers.get(config.model)
        self.heads = 1 + config.joint
        self.entity, self.relation = scorer.entity_width(config.dim), scorer.relation_width(config.dim)
        self.relations = self.heads * graph.num_relations * (1 + config.reciprocal)
        net = scorer.query_net(config.dim, config.seed)
        self.features = self.heads * getattr(net, "features", 0)  # of a query, in its feature maps
        of_net = net.count_params() if net else 0
        shared = self.heads * (of_net + sum(math.prod(shape) for shape in scorer.shared_weights(config.dim).values()))
        self.bytes = BYTES[config.table_dtype]
        # Bytes of each table, and of what the optimizer keeps for it.
        sizes = [
            (self.entity, graph.num_entities * self.entity * self.bytes),
            (self.relation, self.relations * self.relation * FLOAT),
            (shared, shared * FLOAT),
        ]
        self.weights = [size for _, size in sizes]
        self.optimizer = round(sum(size * _slots(config.optimizer, width) for width, size in sizes))
        # What queries are multiplied with is the entity table, or a longer copy of it.
        self.copied = 0 if scorer.candidates_are_embeddings else graph.num_entities * (self.entity + 2)


def _slots(optimizer: str, width: int) -> float:
    """Returns how many numbers the optimizer keeps for each weight of a row."""
    return SLOTS.get(optimizer, 1 / max(1, width))


def memory(config: TrainConfig, graph: Graph, servers: int = 0, workers: bool = False) -> Memory:
    """Returns the memory of a training on one device, or in one of several `workers`, given `completed` settings.

    With parameter servers it is that of the chief, which ranks the validation triples by one part of a table at a time.
    """
    tables = _Tables(config, graph)
    # Two blocks at a time, and about as many copies of scores.
    blocks = 4 * fast_queries(graph.num_entities) * FLOAT * graph.num_entities
    ranking = FLOAT * tables.copied + min(MEMORY_BUDGET, blocks)
    return Memory(
        RUNTIME,
        # The devices that a CPU is split into have a copy each, in the same memory.
        config.logical_devices * sum(tables.weights) // max(1, servers),
        0 if servers else config.logical_devices * tables.optimizer,
        0 if servers else _batch(config, graph, tables),
        ranking if config.eval_every else 0,
        sum(tables.weights) if config.average_epochs > 1 and not servers else 0,
        _graph(graph),
        2 * sum(tables.weights) if workers else 0,
    )


def _graph(graph: Graph) -> int:
    """Returns the bytes of triples, names and occurrence tables; of shards those of two windows."""
    size = BYTES_PER_NAME * graph.num_entities
    for triples in graph.splits.values():
        if isinstance(triples, Shards):
            size += 2 * BYTES_PER_STREAMED * min(len(triples), triples.block * triples.window)
        else:
            size += BYTES_PER_TRIPLE * len(triples)
    return size + (0 if graph.seen is None else BYTES_PER_PAIR * len(graph.seen[1]))


def _candidates(config: TrainConfig) -> int:
    """Returns how many embeddings of entities a step with sampled negatives looks up, repeated or not."""
    size = config.batch_size or 0
    return size * config.negatives // (config.chunk if config.shared else 1) + 2 * size


def _pair_candidates(config: TrainConfig, graph: Graph) -> int:
    return min(config.pair_entities or graph.num_entities, graph.num_entities) * config.joint


def _batch(config: TrainConfig, graph: Graph, tables: _Tables) -> int:
    size, entities, heads = config.batch_size or 0, graph.num_entities, tables.heads
    if config.full_softmax:
        # Scores and their gradient, exponentials and labels; feature maps likewise; the gradient of the entity table.
        scores = 3 * entities + 5 * _pair_candidates(config, graph) + 8 * tables.features
        return FLOAT * (size * scores + 2 * entities * tables.entity)
    rows = min(entities, _candidates(config))
    # Embeddings and gradients of the distinct entities and copies by the optimizer; the scores and their gradients.
    return FLOAT * (6 * rows * tables.entity + 6 * heads * size * config.negatives + 8 * heads * size * tables.entity)


def step(config: TrainConfig, graph: Graph) -> Step:
    """Returns what a step on one device moves and computes, given `completed` settings with its share of the batch."""
    tables, size, entities = _Tables(config, graph), config.batch_size or 0, graph.num_entities
    slots, heads = _slots(config.optimizer, tables.entity), tables.heads
    if config.full_softmax:
        rows, pairs = entities, _pair_candidates(config, graph)
        # Rows are read for the product and for both of its gradients; scores and feature maps are written and read
        # three times.
        moved = (4 * rows + 2 * pairs) * tables.entity + 6 * size * (rows + pairs + tables.features)
        operations = 6 * size * (rows + pairs + tables.features) * tables.entity  # a dense layer makes queries of maps
    else:
        candidates = _candidates(config)
        rows = round(entities * -math.expm1(-candidates / entities))
        # Candidates are read for the products, and once for each head by both gradients, where shared ones are dense.
        reads = 3 * candidates if config.shared else (1 + 2 * heads) * candidates
        moved = (reads + 3 * rows) * tables.entity
        # Each candidate with the queries of both sides; then one entry for each head in both gradients.
        operations = (4 + 4) * heads * size * config.negatives * tables.entity
    relations = min(tables.relations, heads * size)
    updated = rows * tables.entity * (3 + 2 * slots)
    of_relations = relations * tables.relation * (5 + 2 * _slots(config.optimizer, tables.relation))
    operations += OPTIMIZER_OPERATIONS[config.optimizer] * (rows * tables.entity + relations * tables.relation)
    sent = rows * (tables.entity + 1) + relations * (tables.relation + 1)
    moved_bytes = round(FLOAT * (moved + of_relations) + tables.bytes * updated)
    return Step(rows, moved_bytes, operations, FLOAT * sent)


def check_memory(
    config: TrainConfig, graph: Graph, servers: int = 0, workers: bool = False, available: int | None = None
) -> None:
    """Raises a `UsageError`, with what to change, if a training by `completed` settings cannot fit into memory."""
    needed, available = memory(config, graph, servers, workers).total, available or psutil.virtual_memory().available
    if needed <= available:
        return
    if config.strategy == "parameter-server":
        advice = "more servers, or shards (`jobi-tf data prepare --shards`), which leave the triples in files"
    elif config.full_softmax:
        advice = "a smaller batch_size or dim"
        if config.joint:
            advice += ", pair_entities"
        if config.model != "conve":  # which has no other loss
            advice += ", or the loss softmax with sampled negatives"
    else:
        savings = {
            "average_epochs 1 (no mean of the weights)": config.average_epochs > 1,
            "table_dtype bfloat16 (half the memory of the tables)": config.table_dtype == "float32",
            "the optimizer row-adagrad (a third of Adam's)": config.optimizer != "row-adagrad",
        }
        possible = [saving for saving, is_possible in savings.items() if is_possible]
        advice = ", ".join([*possible, "a smaller dim", "a smaller batch_size", "or fewer negatives"])
    sizes = f"the {available / 2**30:.1f} GB of available memory, got an estimate of {needed / 2**30:.1f} GB"
    raise UsageError(f"expected a training that fits into {sizes}: try {advice}")
