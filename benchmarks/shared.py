"""Negatives that triples share."""

from collections.abc import Iterator

from .figures import Figure, Ratio
from .setting import Setting
from .steps import Fit, alternate
from .training import paper_settings, steps


def shared(setting: Setting) -> Iterator[Figure]:
    """Times JoBi with shared negatives and with own ones in turns."""
    graph = setting.graph
    fits = {
        mode: Fit(graph, steps(setting), negatives_mode=mode, **paper_settings(setting)) for mode in ("own", "shared")
    }
    seconds = alternate(fits, setting.repeats, setting.say)
    yield Figure(
        "shared/joint",
        "JoBi training, shared negatives",
        "triples/s",
        [fits["shared"].batch / x for x in seconds["shared"]],
        graph.name,
        Ratio.pairwise("rate shared / own", seconds["own"], seconds["shared"]),
    )
