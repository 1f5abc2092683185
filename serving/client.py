"""Asks a server of exported models, by name."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

import numpy as np

from jobi_tf.errors import JobiError, UsageError

from .address import Address, Calls, Model, VersionStatus
from .retrying import Patience

ROWS = 1024  # of a request at most
_SIGNATURES = {"tail": ("predict_tails", ("head", "relation")), "head": ("predict_heads", ("relation", "tail"))}
Row = TypeVar("Row")


class Scores(NamedTuple):
    """Of each triple: its score, how likely it is true, and whether its three names are known.

    Args:
        score: float32 [N]; float32's lowest value where a name is unknown.
        probability: float32 [N]; 0 where a name is unknown.
        known: bool [N].
    """

    score: np.ndarray
    probability: np.ndarray
    known: np.ndarray


class ServedAnswer(NamedTuple):
    """An entity that completes a triple, its score, how likely it is true, and whether it is a known fact."""

    entity: str
    score: float
    probability: float
    seen: bool


class Embeddings(NamedTuple):
    """Of each entity: its vector, float32 [N, width], zeros where the name is unknown; and whether it is known, [N]."""

    embedding: np.ndarray
    known: np.ndarray


class Client:
    """Asks TensorFlow Serving or the embedded server. It needs neither TensorFlow nor Keras.

    A client may be shared by threads. Requests are sent again while the server cannot be reached or is too busy.

    Args:
        url: `grpc://HOST:PORT` or `http://HOST:PORT`; with TLS `grpcs://` or `https://`.
        model: the model's name; None asks the embedded server, by http, for the only one it serves.
        version: the number of the version that answers; the newest if neither this nor `label` is given.
        label: the label of the version that answers, such as `stable`.
        timeout: seconds that a request of at most 1,024 rows may take, with its retries.
        retries: how often a request is sent again.
        token: bearer token.
        certificate: file of the certificates that are trusted, if not those that the system trusts.

    Raises:
        UsageError: the arguments cannot work.
        MissingExtraError: the library for the protocol is not installed.

    Example:
        with Client("http://127.0.0.1:8501", "world") as client:
            for answer in client.tails("France", "capital"):
                print(answer.entity, answer.probability)
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        version: int | None = None,
        label: str | None = None,
        timeout: float = 10.0,
        retries: int = 3,
        token: str | None = None,
        certificate: str | Path | None = None,
    ):
        if timeout <= 0 or retries < 0:
            raise UsageError(f"expected a positive time-out and retries of 0 or more, got {timeout:g} and {retries}")
        address = Address.parse(url, token, certificate)
        self._url = address.url
        self._patience = Patience(timeout, retries)
        self._calls = _calls(address)
        try:
            self._model = Model(self._only_model() if model is None else model, version, label)
        except JobiError:
            self.close()
            raise

    @property
    def model(self) -> str:
        """The name of the model that is asked."""
        return self._model.name

    def score(self, triples: Sequence[tuple[str, str, str]]) -> Scores:
        """Scores triples of names (head, relation, tail); unknown names are marked, not refused."""
        parts: list[Scores] = []
        for rows in _split(triples):
            heads, relations, tails = (list(names) for names in zip(*rows, strict=True))
            outputs = self._predict("serving_default", {"head": heads, "relation": relations, "tail": tails})
            score, probability = (self._floats(outputs, name, len(rows)) for name in ("score", "probability"))
            parts.append(Scores(score, probability, self._output(outputs, "known", len(rows)).astype(bool)))
        if not parts:
            return Scores(np.empty(0, np.float32), np.empty(0, np.float32), np.empty(0, bool))
        return Scores(*(np.concatenate(field) for field in zip(*parts, strict=True)))

    def tails(self, head: str, relation: str) -> list[ServedAnswer]:
        """Returns the best tails of (head, relation, ?), best first: as many as the model was exported for.

        Raises:
            DataError: a name is unknown.
        """
        return self.tails_of([(head, relation)])[0]

    def heads(self, relation: str, tail: str) -> list[ServedAnswer]:
        """Returns the best heads of (?, relation, tail); otherwise as `tails`."""
        return self.heads_of([(relation, tail)])[0]

    def tails_of(self, queries: Sequence[tuple[str, str]]) -> list[list[ServedAnswer]]:
        """Returns the best tails of each query (head, relation); otherwise as `tails`."""
        return self._answers("tail", queries)

    def heads_of(self, queries: Sequence[tuple[str, str]]) -> list[list[ServedAnswer]]:
        """Returns the best heads of each query (relation, tail); otherwise as `tails`."""
        return self._answers("head", queries)

    def top_k(self) -> int:
        """Returns how many answers the model gives to a query."""
        shapes = self._patience.call(lambda seconds: self._calls.shapes(self._model, seconds))
        shape = shapes.get("predict_tails", {}).get("tail", [])
        if len(shape) != 2 or shape[1] < 1:
            raise self._foreign("tail", "a fixed number of answers")
        return shape[1]

    def embed(self, entities: Sequence[str]) -> Embeddings:
        """Returns the vectors of entities; unknown names are marked, not refused."""
        parts: list[Embeddings] = []
        for rows in _split(entities):
            outputs = self._predict("embed", {"entity": list(rows)})
            embedding, known = self._floats(outputs, "embedding", len(rows)), self._output(outputs, "known", len(rows))
            parts.append(Embeddings(embedding, known.astype(bool)))
        if not parts:
            return Embeddings(np.empty((0, 0), np.float32), np.empty(0, bool))
        return Embeddings(*(np.concatenate(field) for field in zip(*parts, strict=True)))

    def status(self) -> list[VersionStatus]:
        """Returns the states of the model's versions."""
        return self._patience.call(lambda seconds: self._calls.status(self._model, seconds))

    def close(self) -> None:
        """Closes the connections."""
        self._calls.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _only_model(self) -> str:
        names = self._patience.call(self._calls.models)
        if len(names) == 1:
            return names[0]
        found = f"it serves {', '.join(names)}" if names else "the server does not tell which it serves"
        raise UsageError(f"expected the name of a model at {self._url}: {found}")

    def _answers(self, side: str, queries: Sequence[tuple[str, str]]) -> list[list[ServedAnswer]]:
        signature, names = _SIGNATURES[side]
        answers: list[list[ServedAnswer]] = []
        for rows in _split(queries):
            columns = (list(column) for column in zip(*rows, strict=True))
            outputs = self._predict(signature, dict(zip(names, columns, strict=True)))
            fields = [self._output(outputs, name, len(rows)) for name in (side, "score", "probability", "seen")]
            # Where fewer entities are left than the model gives, "" fills up.
            answers += [
                [ServedAnswer(*answer) for answer in zip(*row, strict=True) if answer[0]]
                for row in zip(*(field.tolist() for field in fields), strict=True)
            ]
        return answers

    def _predict(self, signature: str, inputs: Mapping[str, list[str]]) -> dict[str, np.ndarray]:
        return self._patience.call(lambda seconds: self._calls.predict(self._model, signature, inputs, seconds))

    def _floats(self, outputs: Mapping[str, np.ndarray], name: str, rows: int) -> np.ndarray:
        return self._output(outputs, name, rows).astype(np.float32)

    def _output(self, outputs: Mapping[str, np.ndarray], name: str, rows: int) -> np.ndarray:
        if name not in outputs or outputs[name].shape[:1] != (rows,):
            raise self._foreign(name, f"{rows} rows")
        return outputs[name]

    def _foreign(self, output: str, expected: str) -> JobiError:
        model = f"{self._model.name!r} at {self._url}"
        return JobiError(f"expected the output {output!r} of {model} to have {expected}: it is no export of a run")


def _calls(address: Address) -> Calls:
    if address.scheme.startswith("grpc"):
        from .grpc_calls import GrpcCalls

        return GrpcCalls(address)
    from .rest_calls import RestCalls

    return RestCalls(address)


def _split(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), ROWS):
        yield rows[start : start + ROWS]
