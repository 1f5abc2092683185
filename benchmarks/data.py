"""Opening of prepared graphs, and the preparation of a large one."""

from collections.abc import Iterator

from .child import call
from .figures import Figure, Target
from .setting import Setting
from .synthetic import large_graph


def data(setting: Setting) -> Iterator[Figure]:
    """Times `load_graph` in fresh processes, imports left out; it runs before what else prepares the large graph."""
    graph = setting.graph
    dataset, home = (setting.graph_text, setting.home) if setting.stand_in else (graph.name, None)
    if home:
        call("load", setting.say, home, {"dataset": dataset})
    yield Figure(
        "data/open",
        f"opening {graph.name}, prepared",
        "s",
        [call("load", setting.say, home, {"dataset": dataset})["seconds"] for _ in range(setting.repeats)],
        graph.name,
        target=Target("<", 0.3),
    )
    text, name = large_graph(setting)
    setting.say("  preparing it from text")
    prepared = call("load", setting.say, setting.home, {"dataset": text})
    what = f"{prepared['triples']:,} triples"
    yield Figure(
        "data/prepare", f"preparing {what} of text", "s", [prepared["seconds"]], name, None, Target("<", 300), True
    )
    yield Figure(
        "data/prepare-memory",
        f"preparing {what} of text, peak memory",
        "MB",
        [prepared["peak"]],
        name,
        target=Target("<", 6000),
        once=True,
    )
    yield Figure(
        "data/open-large",
        f"opening {what}, prepared",
        "s",
        [call("load", setting.say, setting.home, {"dataset": text})["seconds"] for _ in range(setting.repeats)],
        name,
        target=Target("<", 2),
    )
