"""A trained run, to be queried by name."""

import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.shards import blocks
from jobi_tf.errors import DataError, UsageError, check_at_least
from jobi_tf.evaluation.answers import ByName
from jobi_tf.evaluation.calibration import Calibration, calibrate
from jobi_tf.evaluation.explain import Explanation, best_new_triples, cosines, explain
from jobi_tf.evaluation.metrics import best_row
from jobi_tf.evaluation.ranker import check_finite, check_graph, full_float32
from jobi_tf.files import check_new, new_folder
from jobi_tf.models import scorers
from jobi_tf.models.jobi import JoBi
from jobi_tf.tables import Table
from jobi_tf.training.assembly import config_of, new_model
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.run_folder import RunFolder, run_path, stored_evaluation
from jobi_tf.training.storage import has_weights, load_model, read_weights, save_model
from jobi_tf.workers import parts_of, read_in_blocks

RECORDS = ("metrics.jsonl", "metrics.csv", "merged.json", "auto.json", "environment.json")  # of how a run was trained


class RelationAnswer(NamedTuple):
    """A relation between two entities, its score, whether the triple is a known fact, and the split that has it."""

    relation: str
    score: float
    known: bool
    split: str | None


class Neighbor(NamedTuple):
    """An entity and the cosine similarity of its embedding, from -1 to 1."""

    entity: str
    similarity: float


class NewTriple(NamedTuple):
    """A triple that the graph does not contain, and its score."""

    head: str
    relation: str
    tail: str
    score: float


class Run(ByName):
    """A trained model with its graph and settings.

    Args:
        path: the run folder; None for a run that is not saved yet.
        config: the settings.
        graph: the graph.
        model: the model, with the best weights; or a function that reads it when it is first needed.
    """

    def __init__(self, path: Path | None, config: TrainConfig, graph: Graph, model: JoBi | Callable[[], JoBi]):
        self.path, self.config, self.graph, self._model = path, config, graph, model
        self.records = path  # the folder with the records of the training

    @classmethod
    def from_model(cls, model: JoBi, graph: Graph, **settings: Any) -> "Run":
        """Returns a run of a model that your own program trained, to be queried by name, saved and exported.

        Args:
            model: the model. To open the saved run elsewhere, a scorer of your own has to be in a module that can be
                imported there.
            graph: the graph that the model was trained on.
            **settings: other settings of the training that should be known, such as `p` and `negatives`.

        Raises:
            UsageError: the model has other numbers of entities and relations than the graph, or a setting is wrong.

        Example:
            >>> run = jobi_tf.Run.from_model(model, graph).save("runs/mine")
        """
        if not isinstance(model, JoBi):
            raise UsageError(f"expected a JoBi as model, got {type(model).__name__}")
        check_graph(model, graph)
        return cls(None, config_of(model, graph, **settings), graph, model)

    @cached_property
    def model(self) -> JoBi:
        """The model, with the best weights."""
        return self._model if isinstance(self._model, JoBi) else self._model()

    def __repr__(self) -> str:
        model, heads = self.model, "JoBi" if self.model.joint else "plain"
        return f"<Run {self.path or 'not saved'}: {heads} {model.scorer.name}, d = {model.dim}, {self.graph!r}>"

    def _repr_html_(self) -> str:
        settings = self.config.model_dump(exclude_unset=True).items()
        return Table([(k, str(v)) for k, v in settings], ("setting", "value"), repr(self))._repr_html_()

    @property
    def history(self) -> dict[str, list[Any]]:
        """The metrics of each epoch by name, as in Keras' `History.history`; None for epochs without a value."""
        rows = RunFolder(self.records).read_metrics() if self.records else []
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}

    @property
    def test_metrics(self) -> dict[str, Any]:
        """The metrics of the test split that `jobi-tf evaluate` stored for this model, by name; empty without them."""
        return stored_evaluation(self.path) if self.path else {}

    def _scores(self, triples: np.ndarray) -> np.ndarray:
        with full_float32():
            return self.model.score(triples).numpy()

    def relations(self, head: str, tail: str, k: int = 10) -> Table[RelationAnswer]:
        """Returns the k best relations of (head, ?, tail), best first.

        Scores of different relations are only roughly comparable, since training compares entities, unless the model
        was trained with relation prediction.

        Raises:
            DataError: a name is unknown.
            UsageError: `k` is below 1.
        """
        check_at_least(1, k=k)
        ends, names = self.graph.entities.ids([head, tail]), self.graph.relations
        triples = np.stack([np.full(len(names), ends[0]), np.arange(len(names)), np.full(len(names), ends[1])], 1)
        scores = self.finite_scores(triples)
        splits: dict[int, str] = {}
        for split, known in reversed(list(self.graph.splits.items())):
            for rows in blocks(known):  # which may be in files
                splits |= dict.fromkeys(rows[(rows[:, 0] == ends[0]) & (rows[:, 2] == ends[1]), 1].tolist(), split)
        best = np.argsort(-scores, kind="stable")[:k].tolist()
        answers = [RelationAnswer(names[i], float(scores[i]), i in splits, splits.get(i)) for i in best]
        return Table(answers, RelationAnswer._fields, f"relations of ({head}, ?, {tail})")

    def embedding(self, name: str) -> np.ndarray:
        """Returns the embedding of an entity, float32 [width]; for ComplEx the real parts, then the imaginary parts.

        Raises:
            DataError: the name is unknown.
        """
        return self.model.entities.rows(self.graph.entities.ids([name])).numpy()[0]

    def nearest(self, name: str, k: int = 10) -> Table[Neighbor]:
        """Returns the k entities with the most similar embeddings by cosine, best first.

        Raises:
            DataError: the name is unknown.
            UsageError: `k` is below 1.
        """
        check_at_least(1, k=k)
        table, own = read_in_blocks(*parts_of(self.model.entities.table)), self.graph.entities.id(name)
        check_finite(np.isfinite(table).all())
        similarities = cosines(table, table[own])
        similarities[own] = -np.inf
        best = np.argsort(-similarities, kind="stable")[: min(k, len(table) - 1)].tolist()
        rows = [Neighbor(self.graph.entities[i], float(similarities[i])) for i in best]
        return Table(rows, Neighbor._fields, f"entities near {name}")

    def explain(self, head: str, relation: str, tail: str) -> Explanation:
        """Returns scores, ranks and probability of a triple, and the training triples and paths that support it.

        Raises:
            DataError: a name is unknown.
        """
        (triple,) = self.graph.ids_of_triples([(head, relation, tail)])
        score = self.finite_scores(triple[None])
        return explain(self.model, self.graph, triple, float(self.calibration.probability(score)[0]))

    @cached_property
    def calibration(self) -> Calibration:
        """The calibration of scores to probabilities, fitted on validation triples."""
        return calibrate(self.finite_scores, self.graph, self.config.p, self.config.seed)

    def complete(self, relation: str | None = None, k: int = 100) -> Table[NewTriple]:
        """Returns the k triples with the highest scores that the graph does not contain.

        Only entities that training saw on their side of the relation are considered. Head and tail differ, unless
        training has a triple of the relation in which they are equal. Scores of different relations are only roughly
        comparable, since training compares the candidates of a query.

        Args:
            relation: the relation of the triples; None: all relations.
            k: largest number of triples.

        Raises:
            DataError: the name is unknown.
            UsageError: `k` is below 1.
        """
        check_at_least(1, k=k)
        number = None if relation is None else self.graph.relations.id(relation)
        triples, scores = best_new_triples(self.model, self.graph, number, k)
        entities, relations = self.graph.entities, self.graph.relations
        rows = [
            NewTriple(entities[h], relations[r], entities[t], score)
            for (h, r, t), score in zip(triples.tolist(), scores.tolist(), strict=True)
        ]
        return Table(rows, NewTriple._fields, f"new triples of {relation or self.graph.name}")

    def extend(self, triples: Sequence[tuple[str, str, str]], **options: Any) -> "Run":
        """Returns a new run that knows more entities; see `jobi_tf.training.extend.extend`."""
        from jobi_tf.training.extend import extend

        return extend(self, triples, **options)

    def save(self, folder: str | Path) -> "Run":
        """Writes the run to a new folder, which `jobi_tf.load_run` opens, and returns the run in the folder.

        The history is copied; checkpoints, evaluations and logs are not.

        Raises:
            UsageError: the folder is not empty, or the scorer cannot be imported by its name.
            DataError: the model has an object of a class that is not registered.
            OSError: it cannot be written.
        """
        check_new(Path(folder))
        with new_folder(Path(folder)) as beside:
            RunFolder(beside).begin(self.config, self.graph)
            for record in [self.records / name for name in RECORDS] if self.records else []:
                with suppress(FileNotFoundError):
                    shutil.copyfile(record, beside / record.name)
            save_model(self.model, beside / "model.keras")
            model = read_model(RunFolder(beside), self.config, self.graph)  # raises before there is a folder
        files = RunFolder(Path(folder))
        return Run(files.path, files.read_config(), Graph.open(files.graph), model)


def load_run(folder: str | Path) -> Run:
    """Opens the folder of a run, with its best model or, if there is none yet, with the last checkpoint.

    In the scope of a `tf.distribute.ParameterServerStrategy`, the servers read the weights, so that this process needs
    no memory for the tables.

    Args:
        folder: the folder; or `"world"`, a pretrained run on the data set `world`, which is part of the package.

    Example:
        >>> jobi_tf.load_run("world").tails("Switzerland", "neighbour", k=3)

    Raises:
        DataError: the folder is not that of a run, or the run has no checkpoint yet.
    """
    files = RunFolder(run_path(folder))
    config, graph = files.read_config(), Graph.open(files.graph)
    return Run(files.path, config, graph, read_model(files, config, graph))


def load_runs(runs: Iterable[Run | str | Path]) -> list[Run]:
    """Returns runs, of which some may be given by their folders.

    Raises:
        UsageError: it is the folder of one run instead of a list, or an item is neither a run nor a folder.
        DataError: a folder is not that of a run.
    """
    if isinstance(runs, str | Path) or not isinstance(runs, Iterable):
        raise UsageError(f"expected a list of runs, got {str(runs)!r}")
    runs = [*runs]
    for run in runs:
        if not isinstance(run, Run | str | Path):
            raise UsageError(f"expected runs or their folders, got {type(run).__name__}")
    return [x if isinstance(x, Run) else load_run(x) for x in runs]


def read_model(files: RunFolder, config: TrainConfig, graph: Graph) -> JoBi:
    """Reads the best model of a run, or that of the last checkpoint; a `DataError` if it is missing or damaged."""
    path = files.stored_model()
    if path not in (files.model, files.sharded_model) and best_row(files.read_metrics(), config.monitor):
        raise DataError(f"expected the model of the best epoch in {files.model}, which does not exist")
    if path is None:
        raise DataError(f"expected a trained model in {files.path}, but that run has no checkpoint yet")
    if has_weights(path):
        model = new_model(config, graph)
        read_weights(model, path)
        return model
    scorers.get(config.model)  # imports the module of a scorer of your own
    path = path / "model.keras" if path.is_dir() else path
    model = load_model(path, compile=False)
    sizes = (graph.num_entities, graph.num_relations)
    if (model.num_entities, model.num_relations) != sizes:
        other = f"{model.num_entities, model.num_relations}: the files belong to different runs"
        raise DataError(f"expected a model of {sizes} entities and relations in {path}, got {other}")
    return model if model.table_dtype == "float32" else model.in_float32()
