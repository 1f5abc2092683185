"""Whom `jobi-tf predict` asks: a run, or a server."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from jobi_tf.errors import DataError

from .queries import COLUMNS, SERVED_COLUMNS, Query, Served
from .start import start_tensorflow

if TYPE_CHECKING:
    from jobi_tf.training.run import Answer

SIDES = ("head", "tail")
ANSWERS = 10  # to a query, if nobody says how many


class Asked(Protocol):
    """What answers queries.

    Attributes:
        name: what the table is headed with.
        columns: of a file of answers.
    """

    name: str
    columns: tuple[str, ...]

    def check(self, query: Query) -> None:
        """Raises a DataError for a name that is known to be unknown."""

    def answers(
        self, side: int, queries: Sequence[Query], count: int | None, new_only: bool
    ) -> Sequence[Sequence["Answer | Served"]]:
        """Returns the best answers to queries for one side."""

    def score(self, triple: tuple[str, str, str]) -> tuple[dict[str, Any], list[str]]:
        """Returns what is known of a triple, by names and as lines of text."""

    def close(self) -> None:
        """Lets go of it."""


class AskedRun:
    """A run, on this machine.

    Args:
        path: the run folder.
        typed: whether to answer only with entities that training saw on that side of the relation.
        candidates: file with the names of the only entities that can be answers.
    """

    columns: tuple[str, ...] = COLUMNS

    def __init__(self, path: Path, typed: bool, candidates: Path | None):
        start_tensorflow()
        from jobi_tf import load_run

        self._run = load_run(path)
        self.name = self._run.graph.name
        self._typed = typed
        entities = self._run.graph.entities
        self._candidates = None if candidates is None else [entities[i] for i in entities.ids_in_file(candidates)]

    def check(self, query: Query) -> None:
        """Raises a DataError for a name that the graph does not hold."""
        self._run.graph.relations.id(query.relation)
        self._run.graph.entities.id(query.entity)

    def answers(
        self, side: int, queries: Sequence[Query], count: int | None, new_only: bool
    ) -> Sequence[Sequence["Answer"]]:
        """Returns the best answers to queries for one side."""
        pairs = [(query.entity, query.relation) for query in queries]
        return self._run.answers(side, pairs, count or ANSWERS, new_only, self._typed, self._candidates)

    def score(self, triple: tuple[str, str, str]) -> tuple[dict[str, Any], list[str]]:
        """Scores a triple, and ranks it among the answers that are no known facts."""
        import numpy as np

        from jobi_tf.data.occurrences import KnownAnswers
        from jobi_tf.evaluation.ranker import Ranker

        run, graph = self._run, self._run.graph
        score = float(run.score([triple])[0])
        ids = np.array(
            [[graph.entities.id(triple[0]), graph.relations.id(triple[1]), graph.entities.id(triple[2])]], np.int32
        )
        ranker = Ranker(run.model, KnownAnswers.of_graph(graph, graph.splits, ids))
        ranks = {f"{name}_rank": float(ranker.rank(ids, side).ranks()[0]) for side, name in enumerate(SIDES)}
        known = any(bool((split == ids).all(1).any()) for split in graph.splits.values())
        places = ", ".join(f"{ranks[f'{name}_rank']:,g} as {name}" for name in SIDES)
        lines = [
            f"score {score:.3f}, {'a known fact' if known else 'not a known fact'}",
            f"filtered rank among {graph.num_entities:,} entities: {places}",
        ]
        return {"score": score, "known": known, **ranks, "entities": graph.num_entities}, lines

    def close(self) -> None:
        """Does nothing."""


class AskedServer:
    """A server of an exported model.

    Args:
        url: its address.
        model: the model's name; None for the only one of `jobi-tf serve`.
        token: bearer token.
        certificate: file of the certificates that are trusted.
    """

    columns: tuple[str, ...] = SERVED_COLUMNS

    def __init__(self, url: str, model: str | None, token: str | None, certificate: Path | None):
        from jobi_tf.serving.client import Client

        self._client = Client(url, model, token=token, certificate=certificate)
        self.name = f"{self._client.model} at {url}"

    def check(self, query: Query) -> None:
        """Does nothing: the client reports unknown names."""

    def answers(
        self, side: int, queries: Sequence[Query], count: int | None, new_only: bool
    ) -> Sequence[Sequence[Served]]:
        """Returns the best answers to queries for one side."""
        k = count or ANSWERS
        if side:
            found = self._client.tails_of([(query.entity, query.relation) for query in queries], k, new_only)
        else:
            found = self._client.heads_of([(query.relation, query.entity) for query in queries], k, new_only)
        return [[Served(*answer) for answer in row] for row in found]

    def score(self, triple: tuple[str, str, str]) -> tuple[dict[str, Any], list[str]]:
        """Scores a triple."""
        scores = self._client.score([triple])
        if not scores.known[0]:
            raise DataError(self._unknown(triple))
        score, probability = float(scores.score[0]), float(scores.probability[0])
        return {"score": score, "probability": probability}, [f"score {score:.3f}, probability {probability:.4f}"]

    def _unknown(self, triple: tuple[str, str, str]) -> str:
        head, relation, tail = triple
        known = self._client.embed([head, tail]).known
        unknown = [name for name, is_known in zip((head, tail), known, strict=True) if not is_known]
        return f"unknown entity: {unknown[0]}" if unknown else f"unknown relation: {relation}"

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()
