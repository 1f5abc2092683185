"""What a report knows about a run: its records, and its model measured on a split."""

import dataclasses
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import SIDES, KnownAnswers, Occurrences
from jobi_tf.errors import DataError, UsageError
from jobi_tf.evaluation.breakdowns import FirstAnswers, first_answers
from jobi_tf.evaluation.evaluate import Evaluation, evaluate
from jobi_tf.evaluation.metrics import best_row
from jobi_tf.report.predictions import Examples, examples
from jobi_tf.training.assembly import completed
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.run import Run, load_run
from jobi_tf.training.run_folder import RunFolder

FILTERS = {"valid": ("train", "valid"), "test": ("train", "valid", "test")}
_DEPENDENT = ("batch_size", "learning_rate", "margin")  # whose defaults depend on other settings or on the graph


@dataclass(frozen=True)
class Measured:
    """A run, measured.

    Args:
        path: its folder.
        config: its settings.
        usual: the default of each setting, for a run like this on this graph.
        epochs: the metrics of each epoch.
        environment: what was recorded when it began; empty if nothing was.
        parameters: real numbers that the saved model holds.
        evaluation: ranks of the split, or of a sample of it.
        first: the first answers on each side, by its name.
        examples: its worst and best predictions.
    """

    path: Path
    config: TrainConfig
    usual: dict[str, Any]
    epochs: list[dict[str, Any]]
    environment: dict[str, Any]
    parameters: int
    evaluation: Evaluation
    first: dict[str, FirstAnswers]
    examples: Examples

    @property
    def best_epoch(self) -> int | None:
        """The epoch that the model is of; None if none was ranked."""
        best = best_row(self.epochs, self.config.monitor)
        return best["epoch"] if best else None

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting, but for the folder."""
        return self.config.model_dump(exclude={"run_dir"})


def measure(
    path: Path, split: str, limit: int | None = None, progress: Callable[[int], None] | None = None
) -> Measured:
    """Ranks a split with a run and looks at its answers.

    Args:
        path: the run folder.
        split: `valid` or `test`.
        limit: the most triples to rank; of more, a sample that is the same for all runs on the graph.
        progress: called with the number of triples ranked on a side since its last call.

    Raises:
        DataError: the folder is not that of a run that finished an epoch, or its split is empty.
    """
    folder, run = RunFolder(path), load_run(path)
    triples = sampled(run.graph, split, limit)
    evaluation = evaluate(run, triples=triples, filter_with=FILTERS[split], progress=progress)
    known = KnownAnswers.of_graph(run.graph, FILTERS[split], triples)
    occurrences = Occurrences.of_graph(run.graph)
    first = {
        name: first_answers(run.model, known, occurrences, triples, side, evaluation.ranks[name])
        for side, name in enumerate(SIDES)
    }
    return Measured(
        path,
        run.config,
        _usual(run),
        folder.read_metrics(),
        _environment(path / "environment.json"),
        sum(int(np.prod(weight.shape)) for weight in run.model.trainable_variables),
        dataclasses.replace(evaluation, split=split),
        first,
        examples(run, evaluation, first, known, occurrences),
    )


def sampled(graph: Graph, split: str, limit: int | None) -> np.ndarray:
    """Returns the triples of a split, or `limit` of them, always the same, in their order: int32 [N, 3].

    Raises:
        DataError: the split is empty.
    """
    triples = np.asarray(graph.split(split))
    if not len(triples):
        raise DataError(f"expected triples in the split {split!r} of {graph.name}, found none: see --split")
    if limit is None or limit >= len(triples):
        return triples
    return triples[np.sort(np.random.default_rng(0).choice(len(triples), limit, replace=False))]


def _usual(run: Run) -> dict[str, Any]:
    usual = {name: field.get_default() for name, field in TrainConfig.model_fields.items() if not field.is_required()}
    with suppress(UsageError):  # settings that an older version allowed
        others = run.config.effective().model_dump(exclude_unset=True, exclude=set(_DEPENDENT))
        filled = completed(TrainConfig.create(others), run.graph)
        usual |= {name: getattr(filled, name) for name in _DEPENDENT}
    return usual


def _environment(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"expected the environment of a run in {path}, which is damaged: {error}") from None
    if not isinstance(found, dict):
        raise DataError(f"expected the environment of a run in {path}, which is damaged: it holds no object")
    return found
