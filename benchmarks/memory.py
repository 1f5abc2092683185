"""Memory must not grow from epoch to epoch."""

from collections.abc import Iterator

from .child import call
from .figures import Figure
from .setting import Setting
from .training import paper_settings

EPOCHS, SETTLED = 20, 3
TRIPLES = 30_000


def memory(setting: Setting) -> Iterator[Figure]:
    """Trains 20 short epochs through `jobi_tf.train`, each with its ranking, in a process of its own."""
    graph = setting.graph
    dataset, home = (setting.graph_text, setting.home) if setting.stand_in else (graph.name, None)
    count = SETTLED + 2 if setting.tiny else EPOCHS
    arguments = {
        "dataset": dataset,
        "train": TRIPLES,
        "count": count,
        "folder": setting.work / "memory-run",
        "settings": paper_settings(setting),
    }
    resident = call("epochs", setting.say, home, arguments)["resident"]
    settled = resident[SETTLED - 1]
    yield Figure("memory/resident", f"resident memory, each of {count} epochs", "MB", resident, graph.name, once=True)
    yield Figure(
        "memory/growth",
        f"most above epoch {SETTLED} later on",
        "MB",
        [max(resident[SETTLED:]) - settled],
        graph.name,
        once=True,
        note=f"{resident[-1] - settled:+,.1f} MB at the end",
    )
