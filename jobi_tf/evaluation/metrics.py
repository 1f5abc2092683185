"""What metrics and rules for ties are called. Nothing is imported here, for the command line."""

TIES = ("realistic", "optimistic", "pessimistic")
HITS_AT = (1, 3, 10)
METRICS = {"mrr": "MRR", **{f"hits@{k}": f"Hits@{k}" for k in HITS_AT}, "mean_rank": "mean rank"}  # and as shown
BETTER_IF_HIGHER = tuple(name for name in METRICS if name != "mean_rank")
