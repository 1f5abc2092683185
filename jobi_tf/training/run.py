"""A trained run, ready to be asked by name."""

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.occurrences import HEAD, TAIL, KnownAnswers, Occurrences, column
from jobi_tf.errors import DataError
from jobi_tf.evaluation.answers import best_answers
from jobi_tf.models.jobi import JoBi
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.run_folder import RunFolder


class Answer(NamedTuple):
    """An entity that completes a triple, its score, whether the triple is a known fact, and the split that holds it."""

    entity: str
    score: float
    known: bool
    split: str | None


@dataclass(frozen=True)
class Run:
    """A trained model with its graph and settings.

    Args:
        path: the run folder.
        config: the settings.
        graph: the graph.
        model: the model, with the best weights.
    """

    path: Path
    config: TrainConfig
    graph: Graph
    model: JoBi

    @cached_property
    def known(self) -> KnownAnswers:
        """The true answers that the three splits hold."""
        return KnownAnswers.of_graph(self.graph, SPLITS)

    @cached_property
    def occurrences(self) -> Occurrences:
        """The entities that training saw with each relation."""
        return Occurrences.of_graph(self.graph)

    @cached_property
    def _held_out(self) -> dict[tuple[int, int, int], str]:
        """The triples that training did not see, with their splits."""
        return {(h, r, t): name for name in ("valid", "test") for h, r, t in self.graph.split(name).tolist()}

    def score(self, triples: Sequence[tuple[str, str, str]]) -> np.ndarray:
        """Returns the scores of triples of names (head, relation, tail): float32 [N]. Higher is more likely true.

        Raises:
            DataError: a name is unknown.
        """
        if not len(triples):
            return np.empty(0, np.float32)
        heads, relations, tails = zip(*triples, strict=True)
        entities = self.graph.entities
        ids = [entities.ids(heads), self.graph.relations.ids(relations), entities.ids(tails)]
        return self.model.score(np.stack(ids, 1)).numpy()

    def tails(self, head: str, relation: str, k: int = 10, new_only: bool = False, typed: bool = False) -> list[Answer]:
        """Returns the k best tails of (head, relation, ?), best first.

        Args:
            head: the known entity.
            relation: the relation.
            k: answers at most.
            new_only: drop known facts.
            typed: drop entities that training never saw on that side of the relation.

        Raises:
            DataError: a name is unknown.
            UsageError: `k` is below 1.
        """
        return self.answers(TAIL, [(head, relation)], k, new_only, typed)[0]

    def heads(self, relation: str, tail: str, k: int = 10, new_only: bool = False, typed: bool = False) -> list[Answer]:
        """Returns the k best heads of (?, relation, tail), best first; otherwise as `tails`."""
        return self.answers(HEAD, [(tail, relation)], k, new_only, typed)[0]

    def answers(
        self, side: int, queries: Sequence[tuple[str, str]], k: int = 10, new_only: bool = False, typed: bool = False
    ) -> list[list[Answer]]:
        """Returns the k best entities on `side` of each query (known entity, relation); otherwise as `tails`."""
        triples = np.zeros((len(queries), 3), np.int32)
        triples[:, column(1 - side)] = self.graph.entities.ids(entity for entity, _ in queries)
        triples[:, 1] = self.graph.relations.ids(relation for _, relation in queries)
        seen = self.occurrences if typed else None
        best = best_answers(self.model, self.known, triples, side, k, new_only, seen)
        return [
            [
                self._answer(triple, side, entity, score, known)
                for entity, score, known in zip(*row, strict=True)
                if entity >= 0
            ]
            for triple, *row in zip(triples, best.entities, best.scores, best.known, strict=True)
        ]

    def _answer(self, query: np.ndarray, side: int, entity: int, score: float, known: bool) -> Answer:
        triple = query.tolist()
        triple[column(side)] = int(entity)
        split = self._held_out.get(tuple(triple), "train") if known else None
        return Answer(self.graph.entities[entity], float(score), bool(known), split)


def load_run(folder: str | Path) -> Run:
    """Opens the folder of a run; of one that has no best model yet, the last checkpoint.

    Raises:
        DataError: the folder is not that of a run, or the run has not finished an epoch.
    """
    files = RunFolder(Path(folder))
    config = files.read_config()
    graph = files.open_graph()
    path = files.model
    if not path.is_file():
        checkpoints = files.checkpoints()
        if not checkpoints:
            raise DataError(f"expected a trained model in {folder}, but that run has not finished an epoch")
        path = checkpoints[-1] / "model.keras"
    model = load_model(path, compile=False)
    sizes = (graph.num_entities, graph.num_relations)
    if (model.num_entities, model.num_relations) != sizes:
        raise DataError(
            f"expected the numbers of entities and relations of {files.graph}, {sizes}, in {path}, "
            f"got {model.num_entities, model.num_relations}: the files of two runs are mixed"
        )
    return Run(files.path, config, graph, model)


def load_model(path: str | Path, compile: bool = True) -> JoBi:
    """Reads a model that was saved as a `.keras` file, by `model.save` or by a run.

    Args:
        path: the file.
        compile: whether its optimizer and losses come with it, if it was compiled.

    Raises:
        DataError: the file is missing or damaged.
    """
    if not zipfile.is_zipfile(path):
        raise DataError(f"expected a saved model in {path}, which is missing, cut short or another kind of file")
    try:
        return keras.saving.load_model(path, custom_objects={"jobi_tf>JoBi": JoBi}, compile=compile)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"expected a saved model in {path}, which is damaged: {reason}") from None
