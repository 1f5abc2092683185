"""Timing of training steps, several kinds of them in turns."""

import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras

from jobi_tf.cli.start import keep_memory
from jobi_tf.data.graph import Graph
from jobi_tf.training.assembly import build_batches, build_model, completed
from jobi_tf.training.config import TrainConfig

_UNSETTLED = 3  # steps of a fit that begin with an empty stream


class StepTimes(keras.callbacks.Callback):
    """Keeps when each step ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Looks at the clock."""
        self.ends.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Returns how long each step took after the first ones."""
        settled = self.ends[min(_UNSETTLED, len(self.ends) - 2) :]
        return [after - before for before, after in itertools.pairwise(settled)]


class Fit:
    """A model with its stream of batches; each call trains a few steps and returns the seconds of the median one.

    Args:
        graph: the graph to train on.
        steps: steps a call.
        **settings: fields of `TrainConfig`.
    """

    def __init__(self, graph: Graph, steps: int, **settings: Any):
        keep_memory()  # as training does
        self.config = completed(TrainConfig.create({"dataset": graph.name, **settings}), graph)
        self.batch = self.config.batch_size or 0
        self.steps = steps
        self.model = build_model(self.config, graph)
        self.batches = build_batches(self.config, graph)

    def __call__(self) -> float:
        """Trains and returns the seconds of the median step."""
        return statistics.median(self.times())

    def times(self) -> list[float]:
        """Trains and returns the seconds of each step but the first few."""
        times = StepTimes()
        self.model.fit(self.batches, steps_per_epoch=self.steps, epochs=1, verbose=0, shuffle=False, callbacks=[times])
        return times.seconds()

    def sample(self) -> float:
        """Returns the seconds that a batch takes to be made when nothing else runs."""
        batches = iter(self.batches)
        for _ in range(_UNSETTLED):
            next(batches)
        count = 10 * self.steps  # many, as the first ones were made before the clock started
        start = time.perf_counter()
        for _ in range(count):
            next(batches)
        return (time.perf_counter() - start) / count


def alternate(
    variants: Mapping[str, Callable[[], float]], rounds: int, say: Callable[[str], None]
) -> dict[str, list[float]]:
    """Measures variants in turns, A B A B …, after a first round that does not count.

    Returns:
        For each variant its `rounds` measurements; those of one round stand in the same place.
    """
    measured = []
    for turn in range(1 + rounds):
        say(f"  round {turn} of {rounds}" if turn else "  warming up")
        measured.append({name: measure() for name, measure in variants.items()})
    return {name: [one_round[name] for one_round in measured[1:]] for name in variants}
