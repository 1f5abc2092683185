"""What runs in a process of its own: `python -m jobi_tf.benchmarks.tasks TASK ARGUMENTS`, the arguments as JSON.

The last line on stdout is what was measured, as JSON; lines that begin with two blanks tell how far it is.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .load import ask
from .machine import peak_memory, resident_memory


def make_up(folder: str, entities: int, relations: int, triples: int, text: bool) -> dict[str, Any]:
    """Writes a synthetic graph of seed 0, as text or prepared."""
    from jobi_tf.datasets.synthetic import synthesize
    from jobi_tf.datasets.writing import write_text

    graph = synthesize(entities, relations, triples, seed=0)
    if text:
        write_text(graph, Path(folder))
    else:
        graph.save(Path(folder))
    return {"name": graph.name}


def load(dataset: str) -> dict[str, Any]:
    """Times `load_graph`, imports left out: it opens what is prepared, and prepares what is not."""
    from jobi_tf.datasets import load_graph

    start = time.perf_counter()
    graph = load_graph(dataset)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak": peak_memory(), "triples": sum(map(len, graph.splits.values()))}


def epoch(dataset: str, steps: int, ranked: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Trains some steps on a prepared graph, then ranks some test triples."""
    from jobi_tf.data.batches import steps_per_epoch
    from jobi_tf.data.graph import SPLITS
    from jobi_tf.data.occurrences import SIDES, KnownAnswers
    from jobi_tf.datasets import load_graph
    from jobi_tf.evaluation.ranker import Ranker

    from .steps import Fit

    graph = load_graph(dataset)
    fit = Fit(graph, steps, **settings)
    print(f"  {steps:,} steps of training", flush=True)
    times = fit.times()
    peak = peak_memory()
    print(f"  ranking {ranked} test triples", flush=True)
    start = time.perf_counter()
    ranker = Ranker(fit.model, KnownAnswers.of_graph(graph, SPLITS, graph.test[:ranked]))
    filtered = time.perf_counter()
    for side in range(len(SIDES)):
        ranker.rank(graph.test[:ranked], side)
    return {
        "step": sum(times) / len(times),
        "steps": steps_per_epoch(len(graph.train), fit.batch),
        "peak_training": peak,
        "filter": filtered - start,
        "rank": time.perf_counter() - filtered,
        "peak": peak_memory(),
    }


def point(folder: str, steps: int, repeats: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Times steps of one kind on a graph that `make_up` saved; the first round does not count."""
    from jobi_tf.data.graph import Graph

    from .steps import Fit

    fit = Fit(Graph.open(Path(folder)), steps, **settings)
    return {"seconds": [fit() for _ in range(1 + repeats)][1:], "peak": peak_memory()}


def epochs(dataset: str, train: int, count: int, folder: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Trains some epochs, each of them ranked, and keeps the resident memory at the end of each.

    The training split is cut to `train` triples, so that an epoch is short; validation is ranked whole.
    """
    from dataclasses import replace

    import keras
    import numpy as np

    from jobi_tf.datasets import load_graph
    from jobi_tf.training.train import train as run_training

    resident = []

    class Memory(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
            resident.append(resident_memory())
            print(f"  epoch {epoch + 1} of {count}: {resident[-1]:,.0f} MB", flush=True)

    graph = load_graph(dataset)
    graph = replace(graph, splits={**graph.splits, "train": np.asarray(graph.train[:train])})
    settings = {**settings, "epochs": count, "eval_every": 1, "patience": count, "run_dir": folder}
    run_training(graph, callbacks=[Memory()], **settings)
    return {"resident": resident}


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    task.__name__: task for task in (make_up, load, epoch, point, epochs, ask)
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
