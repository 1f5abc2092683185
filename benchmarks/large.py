"""Training and ranking on a graph of the size of FB1.9M."""

from collections.abc import Iterator

from .child import call
from .figures import Figure, Target
from .setting import Setting
from .synthetic import large_graph

STEPS, RANKED = 2_000, 500


def large(setting: Setting) -> Iterator[Figure]:
    """Measures part of an epoch of JoBi and some ranking, once, in a process that opens the prepared graph."""
    text, name = large_graph(setting)
    call("load", setting.say, setting.home, {"dataset": text})
    steps, ranked = (20, 10) if setting.tiny else (STEPS, RANKED)
    settings = {"dim": 4, "batch_size": 50} if setting.tiny else {"dim": 100, "batch_size": 1000, "negatives": 50}
    arguments = {"dataset": text, "steps": steps, "ranked": ranked, "settings": settings}
    measured = call("epoch", setting.say, setting.home, arguments)
    minutes = measured["step"] * measured["steps"] / 60
    for name_, what, unit, value, target in (
        ("epoch", f"JoBi epoch, from {steps:,} of {measured['steps']:,} steps", "min", minutes, Target("<", 45)),
        ("memory", "peak memory of training and ranking", "MB", measured["peak"], Target("<", 9000)),
        ("memory-training", "peak memory of training", "MB", measured["peak_training"], None),
        ("rank", f"ranking {ranked} test triples, both sides", "s", measured["rank"], None),
        ("filter", "collecting known answers before", "s", measured["filter"], None),
    ):
        yield Figure(f"large/{name_}", what, unit, [value], name, target=target, once=True)
