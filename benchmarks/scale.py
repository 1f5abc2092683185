"""A training step must not cost more where there are more entities."""

from collections.abc import Iterator

from jobi_tf.datasets.synthetic import synthesize

from .figures import Figure, Ratio, Target
from .setting import Setting
from .steps import Fit, alternate

ENTITIES = (14_541, 1_900_000)
RELATIONS, TRIPLES = 3_247, 2_000_000


def scale(setting: Setting) -> Iterator[Figure]:
    """Times a step on two synthetic graphs in turns that differ in their number of entities only."""
    few, many = (64, 400) if setting.tiny else ENTITIES
    relations, triples = (5, 1_000) if setting.tiny else (RELATIONS, TRIPLES)
    settings = {"dim": 4, "batch_size": 50, "negatives": 5} if setting.tiny else {"dim": 100, "batch_size": 1000}
    fits = {}
    for entities in (few, many):
        setting.say(f"  making up a graph of {entities:,} entities and {triples:,} triples")
        graph = synthesize(entities, relations, triples)
        for mode in ("own", "shared"):
            fits[f"{mode} {entities}"] = Fit(graph, 5 if setting.tiny else 30, negatives_mode=mode, **settings)
    seconds = alternate(fits, setting.repeats, setting.say)
    for mode in ("own", "shared"):
        yield Figure(
            f"scale/{mode}",
            f"JoBi step, d = {settings['dim']}, {many:,} entities, {mode} negatives",
            "ms",
            [1e3 * x for x in seconds[f"{mode} {many}"]],
            graph.name,
            Ratio.pairwise(f"/ {few:,} entities", seconds[f"{mode} {many}"], seconds[f"{mode} {few}"]),
            Target("<=", 1.25),
        )
