"""Negatives that triples share."""

from collections.abc import Iterator

from jobi_tf.training.config import TrainConfig

from .figures import Figure, Ratio, Unmeasured
from .setting import Setting
from .steps import Fit, alternate
from .training import paper_settings, steps


def has_shared_negatives() -> bool:
    """Tells whether this version of jobi-tf has them."""
    return "negatives_mode" in TrainConfig.model_fields


def shared(setting: Setting) -> Iterator[Figure | Unmeasured]:
    """Times JoBi with shared negatives and with own ones in turns."""
    if not has_shared_negatives():
        yield Unmeasured("shared/joint", "this version has no shared negatives")
        return
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
