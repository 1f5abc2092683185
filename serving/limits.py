"""What a server accepts: who may send requests, and how much at a time."""

import hmac
import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from grpc import StatusCode

from .errors import ServingError, busy, invalid
from .metrics import Metrics
from .settings import ServerSettings

_BODIES = 16  # requests of the greatest size that may be in memory at a time
ARRIVING = 4 * _BODIES  # gRPC messages that are read at a time; their bytes count once they have arrived


class Limits:
    """Checks of requests, which raise a `ServingError`."""

    def __init__(self, settings: ServerSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._token = None if settings.token is None else settings.token.encode()
        self._hosts = {"", "localhost", settings.host.lower(), socket.gethostname().lower()}
        self._requests = 0
        self._bytes = 0
        metrics.in_flight.set_function(lambda: self._requests)

    def check_host(self, header: str) -> None:
        """Checks that a Host header has an IP address, `localhost`, or the name of this machine or of `--host`.

        Otherwise a page of another site could reach the server by DNS rebinding. A token or a certificate keeps it out
        as well, so that with either any name is accepted.
        """
        host, _, port = header.lower().rpartition(":")
        host = host if port.isdigit() else header.lower()
        if self._token is not None or self._settings.certificate is not None or host in self._hosts:
            return
        try:
            ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            names = "an IP address or localhost in the Host header (any name with a token or a certificate)"
            raise invalid(f"expected {names}, got {host!r}", 421) from None

    def check_token(self, authorization: str | bytes | None) -> None:
        """Checks the bearer token of an `Authorization` header of HTTP or metadata entry of gRPC, in constant time."""
        if self._token is None:
            return
        value = authorization.encode() if isinstance(authorization, str) else authorization or b""
        scheme, _, token = value.partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
            got = "a wrong one" if value else "none"
            raise ServingError(StatusCode.UNAUTHENTICATED, f"expected a bearer token, got {got}")

    @contextmanager
    def receiving(self) -> Iterator[Callable[[int], None]]:
        """Counts the bytes of a request until it is answered; gives a function that adds bytes and checks them."""
        size = 0

        def add(count: int) -> None:
            nonlocal size
            size += count
            self._bytes += count
            if size > self._settings.max_body:
                raise invalid(f"expected at most {self._settings.max_body} bytes in a request, got more", 413)
            if self._bytes > _BODIES * self._settings.max_body:
                raise busy(f"expected at most {_BODIES * self._settings.max_body} bytes in all requests")

        try:
            yield add
        finally:
            self._bytes -= size

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Counts a request while it is computed; it must have arrived by then, so that slow clients take no place."""
        if self._requests >= self._settings.max_requests:
            raise busy(f"expected at most {self._settings.max_requests} requests at a time")
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
