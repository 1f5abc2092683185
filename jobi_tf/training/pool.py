"""Several runs, of any scorers, that rank together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from jobi_tf.data.occurrences import HEAD, TAIL
from jobi_tf.errors import UsageError
from jobi_tf.evaluation.answers import ByName, scored_blocks
from jobi_tf.evaluation.ranker import RankedModel
from jobi_tf.evaluation.rules import RuleModel
from jobi_tf.evaluation.weights import fit_weights
from jobi_tf.training.run import Run, load_runs

SAMPLE = 200  # validation queries of each side by which the scores of a model are scaled


class Pool(ByName):
    """A log-linear pool: the weighted sum of the scores of several runs of one graph, and of its rules.

    The scores of each member are divided by their standard deviation over validation queries. Each member has a weight
    for each relation and side, fitted on the validation split as by `jobi_tf.merge_runs`.

    Args:
        runs: runs, or their folders, with any scorers.
        rules: the rules of the graph. They are two members: the predictions of the rules and their exclusions.

    Raises:
        UsageError: there are fewer than two runs, or rules without a run; they are on different graphs, or the graph
            has no validation triples.
        DataError: a folder is not that of a run.

    Example:
        >>> pool = jobi_tf.Pool(["runs/complex", "runs/rescal"], jobi_tf.RuleModel(graph))
        >>> jobi_tf.evaluate(pool).metrics()["mrr"]
        >>> pool.tails("Switzerland", "neighbour", k=3)
    """

    def __init__(self, runs: Sequence[Run | str | Path], rules: RuleModel | None = None):
        if not isinstance(rules, RuleModel | None):
            raise UsageError(f"expected a RuleModel as rules, got {type(rules).__name__}")
        members: list[Run | RuleModel] = [*load_runs(runs)]
        members += [rules] if rules else []
        if len(members) < 2:
            raise UsageError(f"expected two or more runs, or rules and a run, to pool, got {len(members)}")
        self.graph = members[0].graph
        for member in members[1:]:
            if member.graph.fingerprint != self.graph.fingerprint:
                names = [f"{x.name} ({x.fingerprint[:8]})" for x in (self.graph, member.graph)]
                raise UsageError(f"expected members of one graph to pool, got {names[0]} and {names[1]}")
        if not len(self.graph.valid):
            raise UsageError(f"expected validation triples in {self.graph.name} to fit weights, got none")
        models: list[RankedModel] = [x.model for x in members if isinstance(x, Run)]
        models += rules.parts if rules else ()
        scales = _scales(models, np.asarray(self.graph.valid))
        self.fitted = fit_weights(models, self.graph, scales=scales)
        self.model = PoolModel(models, self.fitted.weights * scales)


class PoolModel:
    """The weighted sum of the scores of models; weights are those of relations for tails, then heads: [2R, models]."""

    def __init__(self, models: Sequence[RankedModel], weights: np.ndarray):
        self.models, self.weights = models, tf.constant(weights, tf.float32)
        self.num_entities, self.num_relations = models[0].num_entities, models[0].num_relations

    def candidates(self) -> tuple[Any, ...]:
        """Returns what each model shares among queries."""
        return tuple(model.candidates() for model in self.models)

    def scores(self, triples: tf.Tensor, side: int, candidates: Any = None) -> tf.Tensor:
        """Returns the sums for every entity on one side: int [N, 3] → float32 [N, E]."""
        triples = tf.convert_to_tensor(triples)
        rows = triples[:, 1] + (self.num_relations if side == HEAD else 0)
        weights = tf.split(tf.gather(self.weights, rows), len(self.models), 1)
        parts = zip(weights, self.models, candidates or self.candidates(), strict=True)
        return tf.add_n([weight * model.scores(triples, side, shared) for weight, model, shared in parts])


def _scales(models: Sequence[RankedModel], triples: np.ndarray) -> np.ndarray:
    """Returns for each model 1 / standard deviation of its scores for some queries, or 1 if they are all equal."""
    sample = np.random.default_rng(0).permutation(triples)[:SAMPLE]
    scales = []
    for model in models:
        sums = np.zeros(3)  # of 1, x and x²
        for _, scores in (block for side in (HEAD, TAIL) for block in scored_blocks(model, sample, side)):
            x = np.asarray(scores)
            sums += x.size, x.sum(dtype=np.float64), np.square(x).sum(dtype=np.float64)
        mean, mean_square = sums[1:] / sums[0]
        deviation = max(mean_square - mean**2, 0) ** 0.5
        scales.append(1 / deviation if deviation > 1e-6 * abs(mean) else 1)
    return np.array(scales)
