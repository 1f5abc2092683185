"""Training as `fit` does it, the sampler included."""

from collections.abc import Callable, Iterator

from .figures import Figure, Ratio, Target
from .setting import Setting
from .steps import Fit, alternate

PLAIN = {"joint": False, "p": 0.0}


def paper_settings(setting: Setting) -> dict:
    """Returns the settings that all libraries are timed with: ComplEx, d = 200, batch 1000, 50 negatives."""
    if setting.tiny:
        return {"dim": 4, "batch_size": 100, "negatives": 5}
    return {"dim": 200, "batch_size": 1000, "negatives": 50}


def steps(setting: Setting) -> int:
    """Returns how many steps a round has."""
    return 5 if setting.tiny else 30


def training(setting: Setting) -> Iterator[Figure]:
    """Times JoBi, plain ComplEx and the sampler in turns."""
    graph, settings = setting.graph, paper_settings(setting)
    joint = Fit(graph, steps(setting), **settings)
    plain = Fit(graph, steps(setting), **settings, **PLAIN)
    biased = Fit(graph, steps(setting), **settings, joint=False)
    variants: dict[str, Callable[[], float]] = {"joint": joint, "plain": plain, "biased": biased}
    variants["sampler"] = joint.sample
    seconds = alternate(variants, setting.repeats, setting.say)
    for name, what in (("joint", "JoBi training, ComplEx"), ("plain", "plain ComplEx training")):
        rates = [joint.batch / x for x in seconds[name]]
        yield Figure(f"training/{name}", what, "triples/s", rates, graph.name)
    for name, what, timed, of, (above, below), target in (
        ("step", "JoBi step", "joint", "joint / plain", ("joint", "plain"), Target("<=", 1.12)),
        ("biased", "step without pair head, negatives as JoBi's", "biased", "JoBi / this", ("joint", "biased"), None),
        ("sampler", "sampler alone, a batch", "sampler", "sampler / JoBi step", ("sampler", "joint"), None),
    ):
        ratio = Ratio.pairwise(of, seconds[above], seconds[below])
        yield Figure(f"training/{name}", what, "ms", [1e3 * x for x in seconds[timed]], graph.name, ratio, target)
