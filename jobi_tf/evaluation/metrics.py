"""What metrics and rules for ties are called, and which epoch is best. Nothing heavy is imported here."""

from collections.abc import Iterable, Mapping
from typing import Any

TIES = ("realistic", "optimistic", "pessimistic")
HITS_AT = (1, 3, 10)
METRICS = {"mrr": "MRR", **{f"hits@{k}": f"Hits@{k}" for k in HITS_AT}, "mean_rank": "mean rank"}  # and as shown
BETTER_IF_HIGHER = tuple(name for name in METRICS if name != "mean_rank")


def metric_texts(values: Mapping[str, float]) -> list[str]:
    """Returns the metrics as tables show them, in the order of `METRICS`."""
    return [f"{values[name]:,.1f}" if name == "mean_rank" else f"{values[name]:.4f}" for name in METRICS]


def best_row(rows: Iterable[dict[str, Any]], monitor: str) -> dict[str, Any] | None:
    """Returns the row of `metrics.jsonl` of the epoch that a run keeps: the first with the best `monitor`, if any."""
    ranked = [row for row in rows if f"val_{monitor}" in row]
    return max(ranked, key=lambda row: row[f"val_{monitor}"], default=None)
