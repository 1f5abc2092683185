"""Where requests come in: a door for each protocol."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import grpc
import uvicorn

from jobi_tf.errors import JobiError

from .connections import limited
from .rest import RestApp
from .service import Service
from .settings import MIB, ServerSettings


class Door(Protocol):
    """An address, taken when the door is made, at which requests are answered once it is open."""

    address: str

    async def open(self) -> None:
        """Begins to answer."""

    async def close(self) -> None:
        """Answers the requests in work, but no new ones."""


class RestDoor:
    """REST, the page, the health check and the metrics.

    Args:
        settings: address and limits.
        service: answers.

    Raises:
        JobiError: the address is taken, or the certificate cannot be used.
    """

    def __init__(self, settings: ServerSettings, service: Service) -> None:
        certificate, key = checked_certificate(settings)
        self._socket = _bound(settings.host, settings.rest_port or 0)
        scheme = "http" if certificate is None else "https"
        self.address = f"{scheme}://{_at(settings.host, self._socket.getsockname()[1])}"
        self._server = _Uvicorn(
            uvicorn.Config(
                RestApp(service),
                interface="asgi3",
                http=limited(settings.timeout, _connections(settings), 8 * settings.max_body + MIB),
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=max(1, int(settings.timeout)),
                timeout_graceful_shutdown=max(1, int(settings.timeout)),
                ssl_certfile=certificate,
                ssl_keyfile=key,
            )
        )
        self._serving: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Begins to answer."""
        self._serving = asyncio.ensure_future(self._server.serve([self._socket]))
        while not (self._server.started or self._serving.done()):
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        """Answers the requests in work, but no new ones."""
        if self._serving is not None:
            self._server.should_exit = True
            await self._serving
        self._socket.close()


class GrpcDoor:
    """gRPC.

    Args:
        settings: address and limits.
        service: answers.

    Raises:
        JobiError: the address is taken, or the certificate cannot be used.
    """

    def __init__(self, settings: ServerSettings, service: Service) -> None:
        from .grpc_service import handlers

        certificate, key = checked_certificate(settings)
        milliseconds = int(1000 * settings.timeout)
        self._settings = settings
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=2 * settings.max_requests,
            options=[
                ("grpc.max_receive_message_length", settings.max_body),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", 2 * settings.max_requests),
                ("grpc.server_handshake_timeout_ms", milliseconds),
                ("grpc.so_reuseport", 0),  # else two servers share a port, and each gets some of the requests
            ],
        )
        self._server.add_generic_rpc_handlers(handlers(service))
        at = _at(settings.host, settings.grpc_port or 0)
        try:
            if certificate is None or key is None:
                port = self._server.add_insecure_port(at)
            else:
                credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
                port = self._server.add_secure_port(at, credentials)
        except RuntimeError:
            port = 0
        if not port:
            raise JobiError(f"cannot listen on {at}, for gRPC: the address is taken or not this machine's")
        scheme = "grpc" if certificate is None else "grpcs"
        self.address = f"{scheme}://{_at(settings.host, port)}"

    async def open(self) -> None:
        """Begins to answer."""
        await self._server.start()

    async def close(self) -> None:
        """Answers the requests in work, but no new ones."""
        await self._server.stop(self._settings.timeout)


class _Uvicorn(uvicorn.Server):
    """The ASGI server, which leaves signals to who runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def checked_certificate(settings: ServerSettings) -> tuple[Path | None, Path | None]:
    """The files of the certificate and its key, if there are any.

    Raises:
        JobiError: they cannot be used.
    """
    certificate, key = settings.certificate, settings.key
    if certificate is not None and key is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        except OSError as error:
            reason = error.strerror or str(error)
            raise JobiError(f"cannot use the certificate {certificate} with the key {key}: {reason}") from None
    return certificate, key


def _bound(host: str, port: int) -> socket.socket:
    try:
        # The protocol is named, since asyncio sends small answers at once only on sockets that name it.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise JobiError(f"cannot listen on {_at(host, port)}, for REST: {error.strerror}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise JobiError(f"cannot listen on {_at(host, port)}, for REST: {error.strerror}") from None
    return bound


def _at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _connections(settings: ServerSettings) -> int:
    """Connections of HTTP at a time: more than requests, as some wait, but fewer than the system's files."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = 4 * settings.max_requests + 64
    return most if files == resource.RLIM_INFINITY else min(most, max(16, files // 2))
