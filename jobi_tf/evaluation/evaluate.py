"""Evaluation of a model on a split of its graph."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import SIDES, KnownAnswers
from jobi_tf.errors import DataError, UsageError
from jobi_tf.evaluation.ranker import MEMORY_BUDGET, Ranker
from jobi_tf.evaluation.ranks import Ranks, rank_metrics
from jobi_tf.models.jobi import JoBi


class Trained(Protocol):
    """A model with the graph that its ids mean; what `jobi_tf.load_run` returns is one."""

    @property
    def model(self) -> JoBi:
        """The model."""

    @property
    def graph(self) -> Graph:
        """The graph."""


@dataclass(frozen=True)
class Evaluation:
    """Ranks of all triples of a split, on one side or both, from which every metric follows.

    Args:
        split: name of the split.
        triples: the ranked triples, int32 [N, 3].
        unseen: for each triple whether it holds an entity or relation that training never saw, bool [N].
        ranks: for each ranked side, by its name, the N ranks.
        seconds: time that ranking took.
    """

    split: str
    triples: np.ndarray
    unseen: np.ndarray
    ranks: dict[str, Ranks]
    seconds: float

    @property
    def side(self) -> str:
        """What was ranked: `head`, `tail` or `both`."""
        return "both" if len(self.ranks) > 1 else next(iter(self.ranks))

    def metrics(self, ties: str = "realistic", chosen: np.ndarray | slice = slice(None)) -> dict[str, float]:
        """Returns `mrr`, `hits@1`, `hits@3`, `hits@10` and `mean_rank` over the ranked sides.

        Args:
            ties: rule for equal scores, see `Ranks.ranks`.
            chosen: which of the triples count.
        """
        return rank_metrics(Ranks.concatenate([ranks[chosen] for ranks in self.ranks.values()]).ranks(ties))

    def ties_gap(self) -> float:
        """Returns optimistic minus pessimistic MRR: how much of the result hangs on equal scores."""
        return self.metrics("optimistic")["mrr"] - self.metrics("pessimistic")["mrr"]

    def to_dict(self, ties: str = "realistic") -> dict[str, Any]:
        """Returns all metrics as one JSON object, with those of each side under its name."""
        return {
            **self.metrics(ties),
            "triples": len(self.triples),
            "unseen_triples": int(self.unseen.sum()),
            "triples_per_second": len(self.triples) / self.seconds if self.seconds else 0.0,
            "ties": ties,
            "side": self.side,
            "split": self.split,
            **{side: rank_metrics(ranks.ranks(ties)) for side, ranks in self.ranks.items()},
        }

    def by_relation(self, ties: str = "realistic") -> dict[int, dict[str, float]]:
        """Returns `triples` and the metrics of each relation of the split, most triples first."""
        relations, counts = np.unique(self.triples[:, 1], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return {
            int(relations[i]): {"triples": int(counts[i]), **self.metrics(ties, self.triples[:, 1] == relations[i])}
            for i in order
        }


def evaluate(
    run: Trained,
    split: str = "test",
    side: str = "both",
    *,
    raw: bool = False,
    filter_with: Iterable[str] | None = None,
    memory_budget: int = MEMORY_BUDGET,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Ranks every triple of a split among all entities.

    Triples with entities that training never saw are ranked like all others.

    Args:
        run: a model and its graph.
        split: `test`, `valid` or `train`.
        side: the side whose entity is sought: `head`, `tail` or `both`.
        raw: keep other true answers as candidates.
        filter_with: splits whose true answers are left out as candidates. Without it: train and valid, and test if
            test is ranked; so a validation result never depends on test triples.
        memory_budget: bytes that the scores of one block may take.
        progress: called with the number of triples ranked on a side since its last call.

    Raises:
        UsageError: `side` is none of the three, or `raw` and `filter_with` are both given.
        DataError: there is no such split, or it is empty.
        JobiError: a score is not finite.
    """
    if side not in (*SIDES, "both"):
        raise UsageError(f"expected a side out of head, tail, both, got {side!r}")
    if raw and filter_with is not None:
        raise UsageError("expected either raw ranks or splits to filter with, got both")
    graph, triples = run.graph, np.asarray(run.graph.split(split))
    if not len(triples):
        raise DataError(f"expected triples in the split {split!r} of {graph.name}, found none")
    if filter_with is None:
        filter_with = ("train", "valid", "test") if split == "test" else ("train", "valid")
    known = None if raw else KnownAnswers.of_graph(graph, filter_with, triples)
    ranker = Ranker(run.model, known, memory_budget)
    start = time.perf_counter()
    sides = SIDES if side == "both" else (side,)
    ranks = {name: ranker.rank(triples, SIDES.index(name), progress) for name in sides}
    seconds = time.perf_counter() - start
    return Evaluation(split, triples, unseen_triples(graph, triples), ranks, seconds)


def unseen_triples(graph: Graph, triples: np.ndarray) -> np.ndarray:
    """Returns for each triple whether it holds an entity or relation that no training triple has, bool [N]."""
    relations = np.zeros(graph.num_relations, bool)
    relations[graph.train[:, 1]] = True
    return ~(graph.seen_in_training[triples[:, [0, 2]]].all(1) & relations[triples[:, 1]])
