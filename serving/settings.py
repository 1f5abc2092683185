"""Settings of a server."""

from dataclasses import dataclass
from pathlib import Path

from jobi_tf.errors import UsageError


@dataclass(frozen=True)
class ServerSettings:
    """What is served, where, and within which limits.

    Raises:
        UsageError: the name cannot be part of a path, only one of `certificate` and `key` is given, or `max_body`,
            `timeout` or `max_requests` are too large for gRPC.
    """

    folder: Path  # exported versions, each in a folder named by its number; the newest is served
    name: str = ""  # of the model in requests; by default that of the folder
    host: str = "127.0.0.1"  # address to listen on
    rest_port: int = 8501  # port of REST, the page, `/healthz` and `/metrics`; 0 lets the system choose
    grpc_port: int = 8500  # 0 lets the system choose
    max_body: int = 2**24  # bytes of a request at most
    max_rows: int = 8192  # rows of a request at most
    max_requests: int = 256  # that are computed or wait to be computed at a time; more are rejected
    timeout: float = 30.0  # seconds that a request may take to arrive, to be computed, and its answer to be read
    certificate: Path | None = None  # file of the TLS certificate, given together with `key`
    key: Path | None = None  # file of the private key of the certificate
    token: str | None = None  # bearer token that requests must carry, except those for the page and for health
    poll: float = 1.0  # seconds between looks for new versions

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.folder.resolve().name)
        if self.name in ("", ".", "..") or "/" in self.name or ":" in self.name:
            raise UsageError(f"expected a model name without / and :, got {self.name!r}: give another one by --name")
        if self.max_body >= 2**31 or self.timeout * 1000 >= 2**31 or self.max_requests >= 2**24:
            raise UsageError(
                "expected a body below 2 GB, a time-out below 2,147,483 seconds and at most 16,777,215 requests, "
                f"got {self.max_body:,} bytes, {self.timeout:,} seconds and {self.max_requests:,} requests"
            )
        if (self.certificate is None) != (self.key is None):
            raise UsageError("expected --certificate and --key together, got only one of them")
