"""What a report knows about a run: its records, and its model measured on a split."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import SIDES, KnownAnswers, Occurrences, column
from jobi_tf.errors import DataError, UsageError
from jobi_tf.evaluation.answers import best_answers
from jobi_tf.evaluation.breakdowns import FirstAnswers, first_answers
from jobi_tf.evaluation.evaluate import Evaluation, evaluate
from jobi_tf.evaluation.metrics import best_row
from jobi_tf.training.assembly import completed
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.run import Run, load_run
from jobi_tf.training.run_folder import RunFolder

COUNT, OF_A_RELATION, ANSWERS = 10, 2, 5  # predictions, of one relation, and their answers
FILTERS = {"valid": ("train", "valid"), "test": ("train", "valid", "test")}
_DEPENDENT = ("batch_size", "learning_rate", "margin")  # whose defaults depend on other settings or on the graph


class Answer(NamedTuple):
    """An entity, whether it is the true answer, and whether training saw it on that side of the relation."""

    entity: str
    true: bool
    plausible: bool


class Prediction(NamedTuple):
    """A triple whose `side` is sought, the filtered rank of its true answer, and the best candidates, best first."""

    head: str
    relation: str
    tail: str
    side: str
    rank: float
    answers: list[Answer]


class Examples(NamedTuple):
    """The worst predictions, those with the largest ranks, and the best, the most confident of the right ones."""

    worst: list[Prediction]
    best: list[Prediction]


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
        _examples(run, evaluation, first, known, occurrences),
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


def _examples(
    run: Run, evaluation: Evaluation, first: dict[str, FirstAnswers], known: KnownAnswers, occurrences: Occurrences
) -> Examples:
    """Picks predictions of both sides, at most `OF_A_RELATION` of a relation."""
    ranks = np.concatenate([evaluation.ranks[side].ranks() for side in SIDES])
    confidence = np.concatenate([first[side].confidence for side in SIDES])
    order = np.lexsort((-confidence, ranks))
    relations = np.tile(evaluation.triples[:, 1], len(SIDES))

    def predictions(order: np.ndarray) -> list[Prediction]:
        taken, chosen = Counter[int](), []
        for place in order.tolist():
            taken[relations[place]] += 1
            if taken[relations[place]] <= OF_A_RELATION:
                chosen.append(_prediction(run, evaluation, known, occurrences, *divmod(place, len(evaluation.triples))))
            if len(chosen) == COUNT:
                break
        return chosen

    return Examples(predictions(order[::-1]), predictions(order))


def _prediction(
    run: Run, evaluation: Evaluation, known: KnownAnswers, occurrences: Occurrences, side: int, row: int
) -> Prediction:
    ranks, triple = evaluation.ranks[SIDES[side]], evaluation.triples[row]
    others = best_answers(run.model, known, triple[None], side, ANSWERS, new_only=True).entities[0]
    true = int(triple[column(side)])
    best = [entity for entity in others.tolist() if entity not in (-1, true)]
    place = int(ranks.greater[row] + ranks.equal[row])  # after its equals, as a tie counts for the first answer
    best.insert(place, true)
    best = best[:ANSWERS]
    plausible = np.isin(best, occurrences.of(side, int(triple[1])))
    entities = run.graph.entities
    answers = [Answer(entities[x], x == true, bool(y)) for x, y in zip(best, plausible, strict=True)]
    names = (entities[triple[0]], run.graph.relations[triple[1]], entities[triple[2]])
    return Prediction(*names, SIDES[side], float(ranks.ranks()[row]), answers)


def _usual(run: Run) -> dict[str, Any]:
    usual = {name: field.get_default() for name, field in TrainConfig.model_fields.items() if not field.is_required()}
    with suppress(UsageError):  # settings that an older version allowed
        others = run.config.effective().model_dump(exclude_unset=True, exclude=set(_DEPENDENT))
        filled = completed(TrainConfig.create(others), run.graph)
        usual |= {name: getattr(filled, name) for name in _DEPENDENT}
    return usual


def _environment(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except (ValueError, TypeError) as error:
        raise DataError(f"expected the environment of a run in {path}, which is damaged: {error}") from None
