"""A client of `jobi-tf serve` and of TensorFlow Serving, by REST."""

import math
import random
import re
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import numpy as np

from jobi_tf.errors import DataError, JobiError, UsageError, check_at_least, needs

_MOST_ANSWERS = 1000  # the largest `-k` of an export
_ROWS = 1024  # of a request
_FIRST_WAIT = 0.2  # seconds before the first retry, doubled for each further one
_BUSY = (429, 503)


class Scores(NamedTuple):
    """Scores of triples.

    Args:
        score: float32 [N]; the lowest float32 where a name is unknown.
        probability: float32 [N]; 0 where a name is unknown.
        known: bool [N]; whether all three names are known.
    """

    score: np.ndarray
    probability: np.ndarray
    known: np.ndarray


class ServedAnswer(NamedTuple):
    """An entity that completes a triple, its score, its probability, and whether the triple is a known fact."""

    entity: str
    score: float
    probability: float
    seen: bool


class Embeddings(NamedTuple):
    """Embeddings of entities, float32 [N, width], zeros for unknown names; and which names are known, bool [N]."""

    embedding: np.ndarray
    known: np.ndarray


class UnknownNameError(DataError):
    """The model does not know a name of a query, `query`, which is a pair (entity, relation)."""

    def __init__(self, reason: str, query: tuple[str, str]):
        super().__init__(reason)
        self.query = query


class VersionStatus(NamedTuple):
    """A version of a model, its state, such as AVAILABLE or LOADING, and its error message, if any."""

    version: int
    state: str
    error: str


class Client:
    """A client of `jobi-tf serve` and of TensorFlow Serving; it needs neither TensorFlow nor Keras.

    Threads can share a client. Requests are repeated if the server cannot be reached or is busy.

    Args:
        url: `http://HOST:PORT` or `https://HOST:PORT`.
        model: name of the model; by default the one that `jobi-tf serve` serves.
        version: number of the version; by default the newest.
        timeout: seconds to wait for the server in each attempt, at most 10 of them to connect.
        retries: how often a request is repeated.
        token: bearer token.
        certificate: file of the certificates to trust; by default those of the system.

    Raises:
        UsageError: an argument is invalid.
        DataError: the file of certificates is invalid.
        JobiError: no model is given, and the server cannot be reached to ask for its name.
        MissingExtraError: httpx is not installed.

    Example:
        with Client("http://127.0.0.1:8501") as client:
            for answer in client.tails("France", "capital", k=3):
                print(answer.entity, answer.probability)
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        version: int | None = None,
        timeout: float = 10.0,
        retries: int = 3,
        token: str | None = None,
        certificate: str | Path | None = None,
    ):
        with needs("the client needs httpx", "client"):
            import httpx
        if not (
            isinstance(timeout, int | float) and 0 < timeout < math.inf and isinstance(retries, int) and retries >= 0
        ):
            raise UsageError(f"expected a positive time-out and at least 0 retries, got {timeout!r} and {retries!r}")
        if not isinstance(url, str) or not re.fullmatch(r"https?://[^/?#@]+(/[^?#]*)?", url):
            raise UsageError(f"expected the URL of a server, such as http://127.0.0.1:8501, got {url!r}")
        if version is not None:
            check_at_least(1, version=version)
        if not isinstance(model, str | None):
            raise UsageError(f"expected the name of a model, got {model!r}")
        if token is not None and not (isinstance(token, str) and token.strip() and token.isprintable()):
            raise UsageError("expected the token to be printable text, not empty")
        self._httpx = httpx
        self._url = url.rstrip("/")
        self._retries = retries
        self._has_version = version is not None
        headers = {} if token is None else {b"Authorization": f"Bearer {token}".encode()}
        try:
            verify = certificate is None or ssl.create_default_context(cafile=certificate)
        except OSError as error:  # an SSLError is one
            raise DataError(f"expected certificates in PEM in {certificate}: {error.strerror or error}") from None
        try:
            seconds = httpx.Timeout(timeout, connect=min(timeout, 10))
            self._http = httpx.Client(base_url=self._url, headers=headers, verify=verify, timeout=seconds)
            self._http.base_url.host.encode("idna")  # as the socket does
        except (httpx.InvalidURL, UnicodeError) as error:
            raise UsageError(f"expected the URL of a server, got {url!r}: {error}") from None
        try:
            self.model = self._only_model() if model is None else model
        except JobiError:
            self.close()
            raise
        self._path = f"/v1/models/{quote(self.model, safe='')}" + ("" if version is None else f"/versions/{version}")

    def score(self, triples: Iterable[tuple[str, str, str]]) -> Scores:
        """Scores triples (head, relation, tail); unknown names are marked."""
        names = ("head", "relation", "tail")
        outputs = self._predict("serving_default", names, _checked_rows(triples, names), Scores._fields)
        score, probability = (np.array(outputs[name], np.float32) for name in ("score", "probability"))
        return Scores(score, probability, np.array(outputs["known"], bool))

    def tails(self, head: str, relation: str, k: int = 10, new_only: bool = False) -> list[ServedAnswer]:
        """Returns the best tails of (head, relation, ?), best first.

        Args:
            head: name of the entity.
            relation: name of the relation.
            k: number of answers, at most the `-k` of `jobi-tf export`.
            new_only: whether to leave out known facts.

        Raises:
            UnknownNameError: a name is unknown.
            UsageError: `k` is less than 1, or more than the `-k` of the export.
        """
        return self.tails_of([(head, relation)], k, new_only)[0]

    def heads(self, relation: str, tail: str, k: int = 10, new_only: bool = False) -> list[ServedAnswer]:
        """Returns the best heads of (?, relation, tail), best first; otherwise as `tails`."""
        return self.heads_of([(relation, tail)], k, new_only)[0]

    def tails_of(
        self, queries: Iterable[tuple[str, str]], k: int = 10, new_only: bool = False
    ) -> list[list[ServedAnswer]]:
        """Returns the best tails of each query (head, relation); otherwise as `tails`."""
        return self.answers(1, queries, k, new_only)

    def heads_of(
        self, queries: Iterable[tuple[str, str]], k: int = 10, new_only: bool = False
    ) -> list[list[ServedAnswer]]:
        """Returns the best heads of each query (relation, tail); otherwise as `tails`."""
        rows = _checked_rows(queries, ("relation", "tail"))
        return self.answers(0, [(tail, relation) for relation, tail in rows], k, new_only)

    def answers(
        self, side: int, queries: Iterable[tuple[str, str]], k: int = 10, new_only: bool = False
    ) -> list[list[ServedAnswer]]:
        """Returns the best heads (`side` 0) or tails (1) of each query (entity, relation), like `Run.answers`."""
        check_at_least(1, k=k)
        if side not in (0, 1):
            raise UsageError(f"expected side 0 (head) or 1 (tail), got {side!r}")
        if k > _MOST_ANSWERS:
            raise UsageError(f"expected k to be at most {_MOST_ANSWERS:,}, as a model is exported for no more, got {k}")
        other, sought = ("tail", "head") if side == 0 else ("head", "tail")
        rows = _checked_rows(queries, (other, "relation"))
        signature = f"predict_{'new_' if new_only else ''}{sought}s"
        fields = (sought, "score", "probability", "seen")
        outputs = self._predict(signature, (other, "relation"), rows, (*fields, "known"), k=int(k))
        if rows and (most := len(outputs[sought][0])) < k:
            raise UsageError(f"expected k to be at most {most}, as the model was exported for no more, got {k}")
        for (entity, relation), known in zip(rows, outputs["known"], strict=True):
            if not known:
                kind, name = ("relation", relation) if self.embed([entity]).known[0] else ("entity", entity)
                near = " or ".join(map(repr, self._similar(kind, name)))
                hint = f"; did you mean {near}?" if near else ""
                raise UnknownNameError(f"unknown {kind}: {name}{hint}", (entity, relation))
        # Where there are fewer than k answers, the rest of a row has the name "".
        return [
            [ServedAnswer(*answer) for answer in zip(*row, strict=True) if answer[0]]
            for row in zip(*(outputs[name] for name in fields), strict=True)
        ]

    def embed(self, entities: Sequence[str]) -> Embeddings:
        """Returns the embeddings of entities; unknown names are marked."""
        if isinstance(entities, str):
            raise UsageError(f"expected a list of entities, got {entities!r}")
        rows = _checked_rows([(entity,) for entity in entities], ("entity",))
        outputs = self._predict("embed", ("entity",), rows, Embeddings._fields)
        embedding = np.array(outputs["embedding"] or np.empty((0, 0)), np.float32)
        return Embeddings(embedding, np.array(outputs["known"], bool))

    def status(self) -> list[VersionStatus]:
        """Returns the states of the versions of the model."""
        versions = self._call("GET", self._path, "model_version_status")
        return [
            VersionStatus(int(x["version"]), x["state"], x.get("status", {}).get("error_message", "")) for x in versions
        ]

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _only_model(self) -> str:
        try:
            (name,) = self._call("GET", "/v1/models", "models")
        except (DataError, TypeError, ValueError):  # TensorFlow Serving has no such path
            raise UsageError(f"expected the name of a model, as {self._url} does not list its models") from None
        return name

    def _similar(self, kind: str, name: str) -> list[str]:
        """Returns a few names like an unknown one; none from TensorFlow Serving, which has no such path."""
        query = urlencode({"kind": kind, "prefix": name, "limit": 3})
        try:
            return list(self._call("GET", f"{self._path}/names?{query}", "names")) if name else []
        except JobiError:
            return []

    def _predict(
        self, signature: str, names: tuple[str, ...], rows: list[Sequence[str]], expected: Sequence[str], **same: int
    ) -> dict[str, list[Any]]:
        """Returns the expected outputs of a signature, all from one version of the model.

        The inputs are columns of strings, and the values that all rows share.
        """
        if len(rows) <= _ROWS or self._has_version:
            return self._predict_at(self._path, signature, names, rows, expected, **same)
        path = self._newest()
        while True:
            try:
                return self._predict_at(path, signature, names, rows, expected, **same)
            except DataError:  # begins again if that version has been replaced
                before, path = path, self._newest()
                if path == before:
                    raise

    def _predict_at(
        self,
        path: str,
        signature: str,
        names: tuple[str, ...],
        rows: list[Sequence[str]],
        expected: Sequence[str],
        **same: int,
    ) -> dict[str, list[Any]]:
        outputs: dict[str, list[Any]] = {}
        for start in range(0, max(1, len(rows)), _ROWS):
            part = rows[start : start + _ROWS]
            inputs: dict[str, list[Any]] = {name: [row[i] for row in part] for i, name in enumerate(names)}
            inputs |= {name: [value] * len(part) for name, value in same.items()}
            body = {"signature_name": signature, "inputs": inputs}
            answer = self._call("POST", f"{path}:predict", "outputs", body)
            if not (isinstance(answer, dict) and answer.keys() >= {*expected}):
                raise JobiError(f"expected an answer of an exported run from {self._url}, got another")
            for name in expected:
                outputs.setdefault(name, []).extend(answer[name])
        return outputs

    def _newest(self) -> str:
        """Returns the path of the version that is served now."""
        versions = [x.version for x in self.status() if x.state == "AVAILABLE"]
        return f"{self._path}/versions/{max(versions)}" if versions else self._path

    def _call(self, method: str, path: str, key: str, body: Mapping[str, Any] | None = None) -> Any:
        """Returns what the JSON of the server's answer has under a key."""
        for attempt in range(self._retries + 1):
            if attempt:  # not all clients at the same time
                time.sleep(_FIRST_WAIT * 2 ** (attempt - 1) * random.uniform(0.5, 1))
            try:
                reply = self._http.request(method, path, json=body)
            except UnicodeEncodeError:
                raise UsageError("expected names in UTF-8") from None
            except (self._httpx.ReadTimeout, self._httpx.WriteTimeout):
                raise JobiError(f"no answer from {self._url} within {self._http.timeout.read:g} s") from None
            except self._httpx.TransportError as error:
                problem = f"cannot reach {self._url}: {error or type(error).__name__}"
                if "certificate" in problem:  # another try would find the same one
                    raise JobiError(problem) from None
            else:
                if reply.status_code not in _BUSY:
                    return self._content(reply, key)
                problem = f"{self._url} is too busy: {_reason(reply)}"
        raise JobiError(f"{problem} (after {self._retries} retries)")

    def _content(self, reply: Any, key: str) -> Any:
        if reply.status_code != 200:
            error = DataError if reply.status_code in (400, 404) else JobiError
            raise error(f"{self._url} answered {reply.status_code}: {_reason(reply)}")
        try:
            return reply.json()[key]
        except (KeyError, TypeError, ValueError):
            raise JobiError(f"expected a JSON object with {key} from {self._url}, got something else") from None


def _checked_rows(rows: Iterable[Sequence[str]], names: tuple[str, ...]) -> list[Sequence[str]]:
    listed: list[Any] = [rows] if isinstance(rows, str) else [*rows]
    for row in listed:
        if (
            isinstance(row, str)
            or not hasattr(row, "__len__")
            or len(row) != len(names)
            or not all(isinstance(name, str) for name in row)
        ):
            raise UsageError(f"expected names as ({', '.join(names)}), got {row!r}")
    return listed


def _reason(reply: Any) -> str:
    try:
        return str(reply.json()["error"])
    except (KeyError, TypeError, ValueError):
        return reply.reason_phrase if "html" in reply.headers.get("content-type", "") else reply.text[:200]
