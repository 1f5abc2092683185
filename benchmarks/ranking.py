"""Filtered ranking, and the matrix product that it cannot do without."""

import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from jobi_tf.cli.start import keep_memory
from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.occurrences import SIDES, KnownAnswers
from jobi_tf.evaluation.ranker import Ranker
from jobi_tf.models.jobi import JoBi

from .figures import Figure, Ratio, Target
from .setting import Setting
from .steps import alternate
from .training import paper_settings

BLOCKS = (128, 256, 512, 1024, 2048)


def ranking(setting: Setting) -> Iterator[Figure]:
    """Times the ranking of the test split on both sides, and the bare product, in turns."""
    keep_memory()
    graph = setting.graph
    model = JoBi(graph.num_entities, graph.num_relations, paper_settings(setting)["dim"])
    triples = np.asarray(graph.test)
    product = bare_product(model, triples, setting.say)
    seconds = alternate({"rank": ranked(model, graph, triples), "product": product}, setting.repeats, setting.say)
    rates = {name: [len(triples) / x for x in times] for name, times in seconds.items()}
    ratio = Ratio.pairwise("rate / bare product's", rates["rank"], rates["product"])
    what = "filtered ranking, both sides"
    yield Figure("ranking/product", "bare matrix product of all scores", "triples/s", rates["product"], graph.name)
    yield Figure("ranking/rank", what, "triples/s", rates["rank"], graph.name, ratio, Target(">=", 0.7))


def ranked(model: JoBi, graph: Graph, triples: np.ndarray) -> Callable[[], float]:
    """Returns a function that ranks triples on both sides and returns the seconds; the filter is at hand before."""
    ranker = Ranker(model, KnownAnswers.of_graph(graph, SPLITS, triples))

    def seconds() -> float:
        start = time.perf_counter()
        for side in range(len(SIDES)):
            ranker.rank(triples, side)
        return time.perf_counter() - start

    return seconds


def bare_product(model: JoBi, triples: np.ndarray, say: Callable[[str], None]) -> Callable[[], float]:
    """Returns a function that only multiplies the queries of both sides with all entities, in the best of some blocks.

    It takes TensorFlow's float32 product on all cores, as ranking does.
    """
    ids = tf.constant(triples, tf.int32)
    queries = tf.concat([model.queries(ids, side) for side in range(len(SIDES))], 0)  # [2 N, width]
    entities = tf.convert_to_tensor(model.candidates())

    def seconds(block: int, count: int) -> float:
        start = time.perf_counter()
        for i in range(0, count, block):
            tf.matmul(queries[i : i + block], entities, transpose_b=True)
        return time.perf_counter() - start

    some = min(len(queries), 2 * max(BLOCKS))
    seconds(BLOCKS[0], some)  # threads start
    best = min(BLOCKS, key=lambda block: min(seconds(block, some) for _ in range(2)))
    say(f"  the bare product is fastest in blocks of {best} queries")
    return lambda: seconds(best, len(queries))
