"""What a server serves, and within which limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobi_tf.errors import UsageError

MIB = 2**20


@dataclass(frozen=True)
class ServedModel:
    """A folder of exported versions.

    Args:
        name: what requests call it.
        folder: holds a folder for each version, named by its number.
        latest: how many of the newest versions are served; None for `versions`.
        versions: the versions that are served, if not the latest.
        labels: versions by label, such as `stable` and `canary`.
    """

    name: str
    folder: Path
    latest: int | None = 1
    versions: tuple[int, ...] = ()
    labels: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or ":" in self.name:
            raise UsageError(f"expected a model's name without / and :, got {self.name!r}")
        if (self.latest is None) == (not self.versions):
            raise UsageError(f"expected either a number of latest versions or a list of versions for {self.name}")


@dataclass(frozen=True)
class ServerSettings:
    """Models, addresses and limits of a server.

    Args:
        models: what is served; names differ.
        host: address to listen on.
        rest_port: port of REST, `/healthz`, `/metrics` and the page; 0 lets the system choose, None turns it off.
        grpc_port: likewise for gRPC.
        max_body: bytes of a request at most.
        max_rows: rows of a request at most.
        max_requests: requests in work or waiting at a time; more are turned away.
        timeout: seconds that a request may take, and that its sender may take to send it.
        batch_rows: rows that are computed together at most, from several requests.
        batch_wait: seconds that a request waits at most for others to be computed with; 0 computes each at once when
            nothing else is computed.
        poll: seconds between looks for new versions.
        certificate: file of the TLS certificate, with `key`; both or none.
        key: file of its private key.
        token: bearer token that requests must bring, but for the page and `/healthz`; None asks for none.
    """

    models: tuple[ServedModel, ...]
    host: str = "127.0.0.1"
    rest_port: int | None = 8501
    grpc_port: int | None = 8500
    max_body: int = 16 * MIB
    max_rows: int = 8192
    max_requests: int = 256
    timeout: float = 30.0
    batch_rows: int = 256
    batch_wait: float = 0.0
    poll: float = 1.0
    certificate: Path | None = None
    key: Path | None = None
    token: str | None = None

    def __post_init__(self) -> None:
        names = [model.name for model in self.models]
        if not names or len(set(names)) < len(names):
            raise UsageError(f"expected models with names of their own, got {', '.join(names) or 'none'}")
        if self.rest_port is None and self.grpc_port is None:
            raise UsageError("expected a port for REST, for gRPC or for both, got neither")
        if (self.certificate is None) != (self.key is None):
            raise UsageError("expected a certificate together with its key, got only one of them")
