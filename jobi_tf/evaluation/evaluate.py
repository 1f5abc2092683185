"""Evaluation of a model on a split of its graph."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.occurrences import SIDES, KnownAnswers
from jobi_tf.data.shards import blocks
from jobi_tf.errors import DataError, UsageError
from jobi_tf.evaluation.answers import ByName, candidate_ids
from jobi_tf.evaluation.metrics import BETTER_IF_HIGHER, METRICS, metric_texts
from jobi_tf.evaluation.ranker import MEMORY_BUDGET, RankedModel, check_graph, ranker_for
from jobi_tf.evaluation.ranks import Ranks, rank_metrics
from jobi_tf.tables import data_frame, html_table


@dataclass(frozen=True, repr=False, eq=False)
class Evaluation:
    """The ranks of all triples of a split, on one side or both, and their metrics.

    Args:
        split: name of the split.
        triples: the ranked triples, int32 [N, 3].
        unseen: whether each triple contains an entity or relation that training never saw, bool [N].
        ranks: the N ranks of each ranked side, by its name.
        seconds: duration of the ranking.
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
            chosen: a mask or slice of the triples that count.
        """
        return rank_metrics(Ranks.concatenate([ranks[chosen] for ranks in self.ranks.values()]).ranks(ties))

    def ties_gap(self) -> float:
        """Returns optimistic minus pessimistic MRR: how much of the result depends on equal scores."""
        return Ranks.concatenate(list(self.ranks.values())).ties_gap()

    def __repr__(self) -> str:
        metrics = self.metrics()
        values = ", ".join(f"{METRICS[name]} {metrics[name]:.4f}" for name in BETTER_IF_HIGHER)
        return f"<Evaluation of {self._what()}, {self.side}: {values}>"

    def _what(self) -> str:
        unseen = f" ({self.unseen.sum():,} with names unseen in training)" if self.unseen.any() else ""
        return f"{len(self.triples):,} {self.split} triples{unseen}"

    def _repr_html_(self) -> str:
        rows = [[side, *metric_texts(row)] for side, row in self._by_side().items()]
        return html_table(self._what(), ["side", *METRICS.values()], rows)

    def to_frame(self, ties: str = "realistic") -> Any:
        """Returns the metrics as a pandas DataFrame, a row for each side and for both."""
        return data_frame(self._by_side(ties)).T

    def _by_side(self, ties: str = "realistic") -> dict[str, dict[str, float]]:
        both = {"both": self.metrics(ties)} if len(self.ranks) > 1 else {}
        return both | {side: rank_metrics(ranks.ranks(ties)) for side, ranks in self.ranks.items()}

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
    model: RankedModel | ByName,
    graph: Graph | None = None,
    split: str | None = None,
    side: str = "both",
    *,
    triples: np.ndarray | Sequence[Sequence[str]] | None = None,
    candidates: np.ndarray | Sequence[str] | None = None,
    raw: bool = False,
    filter_with: Iterable[str] | None = None,
    memory_budget: int = MEMORY_BUDGET,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Ranks the triples of a split, or given triples, among all entities or given candidates.

    Triples with entities that training never saw are ranked like all others.

    Args:
        model: a run, a pool, a rule model, or a Keras model with its `graph`.
        graph: the graph; None: the graph of the run, pool or rule model.
        split: `test`, `valid` or `train`; None: `test`.
        side: the side to rank: `head`, `tail` or `both`.
        triples: the triples to rank instead of a split, as ids, int [N, 3], or names.
        candidates: ids or names of the candidates, [C]; None: all entities. The true answer is always a candidate.
        raw: whether other true answers remain candidates.
        filter_with: splits whose true answers are not candidates. None: train and valid, and also test if the test
            split or given triples are ranked. Validation results therefore do not depend on test triples. Given triples
            are true answers too.
        memory_budget: bytes for the scores of a block.
        progress: called with the number of triples that were ranked on a side since the last call.

    Raises:
        UsageError: `model` is not a model; `side` is unknown; the graph is missing or does not belong to the model;
            both `raw` and `filter_with`, or both `split` and `triples`, are given; or candidates are given with
            parameter servers.
        DataError: there is no such split or name, or nothing to rank.
        JobiError: a score is not finite.

    Example:
        >>> jobi_tf.evaluate(run).metrics()["mrr"]
    """
    own = getattr(model, "graph", None)
    graph = own if graph is None else graph
    ranked: Any = getattr(model, "model", model)
    if not hasattr(ranked, "num_entities"):
        raise UsageError(f"expected a model, a run, a pool of runs or rules, got {model!r}")
    if not isinstance(graph, Graph):
        raise UsageError(f"expected the graph of the model as the second argument, got {graph!r}")
    check_graph(ranked, graph)
    if isinstance(own, Graph) and not own.has_ids_of(graph):
        raise UsageError(f"expected the graph of the model, got {graph}, in which names have other ids")
    if side not in (*SIDES, "both"):
        raise UsageError(f"expected side to be head, tail or both, got {side!r}")
    if raw and filter_with is not None:
        raise UsageError("expected either raw or filter_with, got both")
    if split is not None and triples is not None:
        raise UsageError("expected either split or triples, got both")
    if triples is None and split is None:
        split = "test"
    ids = graph.ids_of_triples(triples) if split is None else np.asarray(graph.split(split))
    if not len(ids):
        others = " and ".join(name for name in SPLITS if len(graph.split(name)))
        where = "in `triples`" if split is None else f"in the split {split}: the graph has {others} triples"
        raise DataError(f"expected triples to rank, got none {where}")
    if filter_with is None:
        filter_with = ("train", "valid") if split in ("train", "valid") else SPLITS
    splits = (filter_with,) if isinstance(filter_with, str) else filter_with
    more = ids if split is None and not raw else None
    known = KnownAnswers.of_graph(graph, () if raw else splits, ids, more=more)
    ranker = ranker_for(ranked, known, candidate_ids(graph, candidates), memory_budget)
    start = time.perf_counter()
    sides = SIDES if side == "both" else (side,)
    ranks = {name: ranker.rank(ids, SIDES.index(name), progress) for name in sides}
    seconds = time.perf_counter() - start
    return Evaluation(split or "given", ids, unseen_triples(graph, ids), ranks, seconds)


def unseen_triples(graph: Graph, triples: np.ndarray) -> np.ndarray:
    """Returns for each triple whether it holds an entity or relation that no training triple has, bool [N]."""
    relations = np.zeros(graph.num_relations, bool)
    for part in blocks(graph.train):
        relations[part[:, 1]] = True
    return ~(graph.seen_in_training[triples[:, [0, 2]]].all(1) & relations[triples[:, 1]])
