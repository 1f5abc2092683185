"""What metrics and rules for ties are called, and which epoch is best. Nothing heavy is imported here."""

from collections.abc import Iterable, Mapping
from typing import Any

TIES = ("realistic", "optimistic", "pessimistic")
HITS_AT = (1, 3, 10)
METRICS = {"mrr": "MRR", **{f"hits@{k}": f"Hits@{k}" for k in HITS_AT}, "mean_rank": "mean rank"}  # and as shown
BETTER_IF_HIGHER = tuple(name for name in METRICS if name != "mean_rank")


def metric_texts(values: Mapping[str, Any], names: Iterable[str] = tuple(METRICS)) -> list[str]:
    """Returns metrics as tables show them; "" for one that is missing."""
    present = {name: value for name, value in values.items() if value is not None}
    return [f"{present[x]:{',.1f' if x == 'mean_rank' else '.4f'}}" if x in present else "" for x in names]


def rank_text(rank: float) -> str:
    """Returns a rank as text; with equal scores it may be half a number."""
    return f"{rank:,.1f}".removesuffix(".0")


def best_row(rows: Iterable[dict[str, Any]], monitor: str) -> dict[str, Any] | None:
    """Returns the row of `metrics.jsonl` of the epoch that a run keeps: the first with the best `monitor`, if any."""
    ranked = [row for row in rows if f"val_{monitor}" in row]
    return max(ranked, key=lambda row: row[f"val_{monitor}"], default=None)
