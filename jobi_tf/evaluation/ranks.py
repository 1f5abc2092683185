"""From counts of better and equal candidates to ranks, and from ranks to metrics."""

from dataclasses import dataclass

import numpy as np

from jobi_tf.errors import UsageError
from jobi_tf.evaluation.metrics import HITS_AT, METRICS, TIES


@dataclass(frozen=True, eq=False)
class Ranks:
    """Counts of the candidates that score higher than, or the same as, the true answer of each query.

    Args:
        greater: number of candidates with a higher score, int64 [N].
        equal: number of other candidates with the same score, int64 [N].
    """

    greater: np.ndarray
    equal: np.ndarray

    def ranks(self, ties: str = "realistic") -> np.ndarray:
        """Returns the ranks, float64 [N], from 1.

        The true answer comes before its equals with `ties="optimistic"` and after them with `"pessimistic"`. With
        `"realistic"` it has the mean of both ranks, so that a constant model ranks at chance (Berrendorf et al. 2020).

        Raises:
            UsageError: there is no such rule.
        """
        if ties not in TIES:
            raise UsageError(f"expected ties to be one of {', '.join(TIES)}, got {ties!r}")
        return 1 + self.greater + self.equal * {"realistic": 0.5, "optimistic": 0.0, "pessimistic": 1.0}[ties]

    def ties_gap(self) -> float:
        """Returns optimistic minus pessimistic MRR: how much of the result depends on equal scores."""
        optimistic, pessimistic = (rank_metrics(self.ranks(ties))["mrr"] for ties in ("optimistic", "pessimistic"))
        return optimistic - pessimistic

    def __getitem__(self, chosen: np.ndarray | slice) -> "Ranks":
        return Ranks(self.greater[chosen], self.equal[chosen])

    @classmethod
    def concatenate(cls, parts: "list[Ranks]") -> "Ranks":
        """Joins the queries of `parts`."""
        return cls(np.concatenate([x.greater for x in parts]), np.concatenate([x.equal for x in parts]))


def rank_metrics(ranks: np.ndarray) -> dict[str, float]:
    """Returns `mrr`, `hits@1`, `hits@3`, `hits@10` (shares, 0 to 1) and `mean_rank` of ranks [N]; NaN if N is 0."""
    if not len(ranks):
        return dict.fromkeys(METRICS, float("nan"))
    hits = {f"hits@{k}": float((ranks <= k).mean()) for k in HITS_AT}
    return {"mrr": float((1 / ranks).mean()), **hits, "mean_rank": float(ranks.mean())}
