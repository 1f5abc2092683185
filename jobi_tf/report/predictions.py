"""The worst and the best predictions of a run, in names."""

from dataclasses import dataclass

import numpy as np

from jobi_tf.data.occurrences import SIDES, KnownAnswers, Occurrences, column
from jobi_tf.evaluation.answers import best_answers
from jobi_tf.evaluation.breakdowns import FirstAnswers
from jobi_tf.evaluation.evaluate import Evaluation
from jobi_tf.training.run import Run

COUNT, OF_A_RELATION, ANSWERS = 10, 2, 5


@dataclass(frozen=True)
class Answer:
    """An entity, whether it is the true answer, and whether training saw it on that side of the relation."""

    entity: str
    true: bool
    plausible: bool


@dataclass(frozen=True)
class Prediction:
    """A query, the rank of its true answer, and the best candidates.

    Args:
        head: the head; the true answer where `side` is `head`.
        relation: the relation.
        tail: the tail.
        side: what was sought.
        rank: the filtered rank of the true answer.
        confidence: that of the first answer, 0 to 1.
        answers: the best candidates, best first.
    """

    head: str
    relation: str
    tail: str
    side: str
    rank: float
    confidence: float
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class Examples:
    """The worst predictions, those with the largest ranks, and the best, the surest of the right ones."""

    worst: tuple[Prediction, ...]
    best: tuple[Prediction, ...]


def examples(
    run: Run, evaluation: Evaluation, first: dict[str, FirstAnswers], known: KnownAnswers, occurrences: Occurrences
) -> Examples:
    """Picks predictions of both sides, at most `OF_A_RELATION` of a relation; otherwise as `first_answers`."""
    ranks = np.concatenate([evaluation.ranks[side].ranks() for side in SIDES])
    confidence = np.concatenate([first[side].confidence for side in SIDES])
    order = np.lexsort((-confidence, ranks))
    relations = np.tile(evaluation.triples[:, 1], len(SIDES))

    def predictions(places: list[int]) -> tuple[Prediction, ...]:
        return tuple(_prediction(run, evaluation, first, known, occurrences, place) for place in places)

    return Examples(predictions(_varied(order[::-1], relations)), predictions(_varied(order, relations)))


def _varied(order: np.ndarray, relations: np.ndarray) -> list[int]:
    """Returns the first places of `order`, with few of a relation."""
    chosen: list[int] = []
    taken: dict[int, int] = {}
    for place in order.tolist():
        relation = int(relations[place])
        if taken.get(relation, 0) < OF_A_RELATION:
            taken[relation] = taken.get(relation, 0) + 1
            chosen.append(place)
            if len(chosen) == COUNT:
                break
    return chosen


def _prediction(
    run: Run,
    evaluation: Evaluation,
    first: dict[str, FirstAnswers],
    known: KnownAnswers,
    occurrences: Occurrences,
    place: int,
) -> Prediction:
    """Describes one prediction; `place` counts the triples once for each side."""
    side, row = divmod(place, len(evaluation.triples))
    name, triple = SIDES[side], evaluation.triples[row]
    others = best_answers(run.model, known, triple[None], side, ANSWERS, new_only=True).entities[0]
    true = int(triple[column(side)])
    better = int(evaluation.ranks[name].greater[row] + evaluation.ranks[name].equal[row])
    best = [entity for entity in others.tolist() if entity not in (-1, true)]
    best.insert(better, true)  # after its equals, as a tie counts for the first answer
    best = best[:ANSWERS]
    plausible = np.isin(best, occurrences.of(side, int(triple[1])))
    entities, relations = run.graph.entities, run.graph.relations
    answers = [Answer(entities[x], x == true, bool(y)) for x, y in zip(best, plausible, strict=True)]
    return Prediction(
        entities[triple[0]],
        relations[triple[1]],
        entities[triple[2]],
        name,
        float(evaluation.ranks[name].ranks()[row]),
        float(first[name].confidence[row]),
        tuple(answers),
    )
