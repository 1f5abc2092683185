"""The large synthetic graph, made once for all benchmarks that want it."""

from pathlib import Path

from .child import call
from .setting import Setting

LARGE = {"entities": 1_900_000, "relations": 3_247, "triples": 19_300_000}
TINY = {"entities": 200, "relations": 5, "triples": 2_000}


def large_graph(setting: Setting) -> tuple[Path, str]:
    """Returns the folder of the large graph as text, and the graph's name; nothing is prepared yet."""
    size = TINY if setting.tiny else LARGE
    name = f"synthetic-{size['entities']}-{size['relations']}-{size['triples']}-0"
    folder = setting.work / name
    if not folder.exists():
        setting.say(f"  making up a graph of {size['entities']:,} entities and {size['triples']:,} triples")
        call("make_up", setting.say, None, {"folder": folder, "text": True, **size})
    return folder, name
