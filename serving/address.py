"""Where a client finds its server."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import numpy as np

from jobi_tf.errors import DataError, UsageError

SCHEMES = ("grpc", "grpcs", "http", "https")


@dataclass(frozen=True)
class Address:
    """A server's address, and what a client needs to be let in.

    Args:
        url: the whole address, for messages; without a / at the end.
        scheme: one of `SCHEMES`.
        target: host and port.
        token: bearer token.
        certificates: those that are trusted, in PEM; None for those that the system trusts.
    """

    url: str
    scheme: str
    target: str
    token: str | None = None
    certificates: bytes | None = None

    @classmethod
    def parse(cls, url: str, token: str | None = None, certificate: str | Path | None = None) -> "Address":
        """Reads `grpc://HOST:PORT` or `http://HOST[:PORT]`, with an s for TLS, and the file of certificates.

        Raises:
            UsageError: it is none.
            DataError: the file cannot be read.
        """
        expected = "expected the address of a server, such as grpc://127.0.0.1:8500 or http://127.0.0.1:8501"
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"{expected}, got {url!r}: {error}") from None
        if parts.scheme not in SCHEMES or not host or parts.query or parts.fragment or "@" in parts.netloc:
            raise UsageError(f"{expected}, got {url!r}")
        if parts.scheme.startswith("grpc") and (port is None or parts.path.strip("/")):
            raise UsageError(f"{expected}, got {url!r}: gRPC takes a host and a port")
        if certificate is not None and not parts.scheme.endswith("s"):
            raise UsageError(f"a certificate is for grpcs:// and https://, got {url!r}")
        try:
            trusted = None if certificate is None else Path(certificate).read_bytes()
        except OSError as error:
            raise DataError(f"expected a file of certificates at {certificate}: {error.strerror}") from None
        return cls(url.rstrip("/"), parts.scheme, parts.netloc, token, trusted)


@dataclass(frozen=True)
class Model:
    """The model that is asked: its newest version, or the one that is chosen by number or label."""

    name: str
    version: int | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        if self.version is not None and self.label is not None:
            raise UsageError(f"expected a version or a label, got version {self.version} and label {self.label!r}")


class VersionStatus(NamedTuple):
    """A version of a model, its state such as AVAILABLE or LOADING, and what went wrong, if anything."""

    version: int
    state: str
    error: str


class Calls(Protocol):
    """The requests of a protocol; `seconds` is what each may take. Failures that may pass are `PassingError`."""

    def predict(
        self, model: Model, signature: str, inputs: Mapping[str, list[str]], seconds: float
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature, for inputs of strings [N]."""

    def status(self, model: Model, seconds: float) -> list[VersionStatus]:
        """Returns the states of the model's versions."""

    def shapes(self, model: Model, seconds: float) -> dict[str, dict[str, list[int]]]:
        """Returns for each signature the shape of each output, -1 being open."""

    def models(self, seconds: float) -> list[str]:
        """Returns the names of the models that are served; none if the server does not tell."""

    def close(self) -> None:
        """Closes the connections."""
