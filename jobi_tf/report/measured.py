"""What a report knows about a run: its records, its model measured on a split, and the answers behind Hits@1."""

import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from jobi_tf.data.occurrences import SIDES, KnownAnswers, Occurrences, column, find
from jobi_tf.errors import DataError, UsageError, needs
from jobi_tf.evaluation.answers import best_answers
from jobi_tf.evaluation.evaluate import Evaluation, evaluate
from jobi_tf.evaluation.metrics import best_row
from jobi_tf.evaluation.ranker import full_float32
from jobi_tf.evaluation.ranks import rank_metrics
from jobi_tf.files import read_json
from jobi_tf.models.jobi import JoBi
from jobi_tf.report.runs import settings_of
from jobi_tf.training.assembly import completed
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.run import Run, load_run
from jobi_tf.training.run_folder import RunFolder

with needs("reports need pandas and Jinja2", "report"):
    import pandas as pd

SCORES_A_BLOCK = 2**24
COUNT, OF_A_RELATION, ANSWERS = 10, 2, 5  # predictions, of one relation, and their answers
FILTERS = {"valid": ("train", "valid"), "test": ("train", "valid", "test")}
_DEPENDENT = ("batch_size", "learning_rate", "margin")  # whose defaults depend on other settings or on the graph


def first_answers(model: JoBi, evaluation: Evaluation, known: KnownAnswers, occurrences: Occurrences) -> pd.DataFrame:
    """Finds what comes first among the candidates of each query of an evaluation on both sides.

    The `known` answers, those that its ranks were filtered with, are no candidates, but for the true one.

    Returns:
        A row for each triple with its head as the answer, then one for each with its tail. The columns are `side`
        (`head` or `tail`), `relation` (an id), `rank`, `entity` (the first answer, an id), `confidence` (its share of
        the softmax over all candidates), `right` (whether it is the true answer; where another candidate has the same
        score, it is not: as in Hits@1 with realistic ties), `plausible` (whether training saw it on that side of the
        relation) and `true_plausible` (the same of the true answer).
    """
    block = max(1, SCORES_A_BLOCK // model.num_entities)
    rows, seen, parts = model.candidates(), occurrences.keys(), []
    places = [slice(i, i + block) for i in range(0, len(evaluation.triples), block)]
    for side, place in itertools.product(range(len(SIDES)), places):
        triples, ranks = evaluation.triples[place], evaluation.ranks[SIDES[side]][place]
        relations, true = triples[:, 1], triples[:, column(side)]
        with full_float32():
            scores = model.scores(tf.constant(triples, tf.int32), side, rows)  # [b, E]
        true_scores = tf.gather(scores, true, batch_dims=1).numpy()
        queries, facts = known.lookup(side, triples)
        left_out = np.stack([np.append(queries, np.arange(len(triples))), np.append(facts, true)], 1)
        others = tf.tensor_scatter_nd_update(scores, left_out, tf.fill([len(left_out)], -np.inf))
        total = np.logaddexp(true_scores, tf.reduce_logsumexp(others, 1).numpy())
        right = (ranks.greater == 0) & (ranks.equal == 0)
        first = np.where(right, true, tf.argmax(others, 1, tf.int32).numpy())
        score = np.where(right, true_scores, tf.reduce_max(others, 1).numpy())
        keys = (side * occurrences.num_relations + relations.astype(np.int64)) * occurrences.num_entities
        columns = {
            "side": SIDES[side],
            "relation": relations,
            "rank": ranks.ranks(),
            "entity": first,
            "confidence": np.exp(score.astype(np.float64) - total),
            "right": right,
            "plausible": find(seen, keys + first)[1],
            "true_plausible": find(seen, keys + true)[1],
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def breakdown(answers: pd.DataFrame) -> dict[str, float]:
    """Returns the metrics of `first_answers`, and how many are wrong, implausible and both."""
    wrong, implausible = ~answers["right"], ~answers["plausible"]
    return {
        **rank_metrics(answers["rank"].to_numpy()),
        "triples": len(answers),
        "wrong": int(wrong.sum()),
        "implausible": int(implausible.sum()),
        "wrong_implausible": int((wrong & implausible).sum()),
    }


@dataclass(frozen=True)
class Measured:
    """A run, measured."""

    path: Path
    config: TrainConfig
    usual: dict[str, Any]  # the default of each setting, for a run like this on this graph
    epochs: list[dict[str, Any]]  # the metrics of each; none of merged runs
    environment: dict[str, Any]  # recorded when it began; empty if nothing was
    parameters: int  # real numbers that the saved model holds
    evaluation: Evaluation  # of the split, or of a sample of it
    answers: pd.DataFrame  # see `first_answers`
    worst: list[dict[str, Any]]  # the predictions with the largest ranks, see `_prediction`
    best: list[dict[str, Any]]  # the most confident of those with the smallest ranks

    @property
    def best_epoch(self) -> int | None:
        """The epoch that the model is of; None if none was ranked."""
        best = best_row(self.epochs, self.config.monitor)
        return best["epoch"] if best else None

    @property
    def settings(self) -> dict[str, Any]:
        """Its settings, see `settings_of`."""
        return settings_of(self.config)


def measure(
    path: Path, split: str, limit: int | None = None, progress: Callable[[int], None] | None = None
) -> Measured:
    """Ranks a split with a run and looks at its answers; the arguments are those of `write_report`."""
    run = load_run(path)
    triples = np.asarray(run.graph.split(split))
    if not len(triples):
        raise DataError(f"expected triples in the split {split!r} of {run.graph.name}, found none: see --split")
    if limit is not None and limit < len(triples):
        triples = triples[np.sort(np.random.default_rng(0).choice(len(triples), limit, replace=False))]
    evaluation = evaluate(run, triples=triples, filter_with=FILTERS[split], progress=progress)
    known = KnownAnswers.of_graph(run.graph, FILTERS[split], triples)
    occurrences = Occurrences.of_graph(run.graph)
    answers = first_answers(run.model, evaluation, known, occurrences)

    def predictions(sort: list[str], ascending: list[bool]) -> list[dict[str, Any]]:
        chosen = answers.sort_values(sort, ascending=ascending).groupby("relation").head(OF_A_RELATION)[:COUNT]
        places = (divmod(i, len(triples)) for i in chosen.index)
        return [_prediction(run, evaluation, known, occurrences, *place) for place in places]

    return Measured(
        path,
        run.config,
        _usual(run),
        [] if run.config.merged_from else RunFolder(path).read_metrics(),
        read_json(path / "environment.json", "the environment of a run", "date"),
        run.model.count_params(),
        replace(evaluation, split=split),
        answers,
        worst=predictions(["rank", "confidence"], [False, True]),
        best=predictions(["rank", "confidence"], [True, False]),
    )


def _prediction(
    run: Run, evaluation: Evaluation, known: KnownAnswers, occurrences: Occurrences, side: int, row: int
) -> dict[str, Any]:
    """Returns the names of a triple, the side that is sought, its rank, and the best answers but for other facts."""
    ranks, triple = evaluation.ranks[SIDES[side]], evaluation.triples[row]
    others = best_answers(run.model, known, triple[None], side, ANSWERS, new_only=True).entities[0]
    true = int(triple[column(side)])
    best = [entity for entity in others.tolist() if entity not in (-1, true)]
    place = int(ranks.greater[row] + ranks.equal[row])  # after its equals, as a tie counts for the first answer
    best = [*best[:place], true, *best[place:]][:ANSWERS]
    plausible = np.isin(best, occurrences.of(side, int(triple[1])))
    entities = run.graph.entities
    return {
        **{"head": entities[triple[0]], "relation": run.graph.relations[triple[1]], "tail": entities[triple[2]]},
        "side": SIDES[side],
        "rank": float(ranks.ranks()[row]),
        "answers": [
            {"entity": entities[x], "true": x == true, "plausible": bool(y)}
            for x, y in zip(best, plausible, strict=True)
        ],
    }


def _usual(run: Run) -> dict[str, Any]:
    usual = {name: field.get_default() for name, field in TrainConfig.model_fields.items() if not field.is_required()}
    with suppress(UsageError):  # settings that an older version allowed
        others = run.config.effective().model_dump(exclude_unset=True, exclude={*_DEPENDENT, "merged_from"})
        filled = completed(TrainConfig.create(others), run.graph)
        usual |= {name: getattr(filled, name) for name in _DEPENDENT}
    return usual
