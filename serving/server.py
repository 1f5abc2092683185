"""A server of an exported model: TensorFlow Serving's REST and gRPC in one process."""

import asyncio
import gc
import logging
import math
import resource
import signal
import socket
import ssl
from asyncio import constants
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import httptools
import tensorflow as tf
import uvicorn
from grpc_health.v1 import health, health_pb2_grpc
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from jobi_tf.errors import JobiError

from .grpc_api import Interceptor, Services
from .limits import Limits
from .metrics import Metrics
from .model import Model
from .rest import RestApp
from .settings import ServerSettings

_LONGEST_HEAD = 2**16  # bytes
_BACKLOG = 128  # connections to accept at a time; without free file descriptors, asyncio logs an error for each
_log = logging.getLogger("jobi_tf.serving")


def serve(settings: ServerSettings, log: Callable[[str], None] = print) -> None:
    """Serves until SIGTERM or SIGINT; then answers the requests in flight and returns.

    `log` gets a line for each version that begins or ends to be served, or cannot be.

    Raises:
        JobiError: an address is in use, a certificate cannot be used, or there is no version that can be served.
    """
    tf.get_logger().setLevel("ERROR")  # otherwise it writes that sessions are deprecated
    gc.collect()
    gc.freeze()  # otherwise each collection looks through all of TensorFlow, which takes 0.1 s
    asyncio.run(_until_signal(settings, log))


async def _until_signal(settings: ServerSettings, log: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(settings, stop, log)


async def run(settings: ServerSettings, stop: asyncio.Event, log: Callable[[str], None]) -> None:
    """Serves until `stop` is set; otherwise as `serve`."""
    metrics = Metrics()
    limits = Limits(settings, metrics)
    model = Model(settings, metrics, log)
    # The addresses are taken before the model is loaded, since that may take long.
    with _listener(settings) as listener:
        rest = _rest_server(settings, RestApp(model, limits, metrics))
        grpc_server, grpc_port = _grpc_server(settings, [Interceptor(limits, metrics, settings.timeout)])
        services = Services(model)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(services, grpc_server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(services, grpc_server)
        health_service = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(health_service, grpc_server)
        try:
            await model.load()
            serving = asyncio.create_task(rest.serve([listener]))
            await grpc_server.start()
            while not rest.started and not serving.done():
                await asyncio.sleep(0.005)
            if serving.done():
                await serving  # which raises why
            s = "" if settings.certificate is None else "s"
            rest_url = f"http{s}://{_address(settings.host, listener.getsockname()[1])}"
            model.announce(f"{rest_url} and grpc{s}://{_address(settings.host, grpc_port)}")
            watching = asyncio.create_task(_watch(model, settings.poll))
            await stop.wait()
            watching.cancel()
            rest.should_exit = True
            await health_service.enter_graceful_shutdown()
            await asyncio.gather(serving, grpc_server.stop(settings.timeout))
        finally:
            await grpc_server.stop(0)
            model.close()


async def _watch(model: Model, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await model.refresh()
        except Exception:
            _log.exception("looking for new versions failed")


def _listener(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    both = settings.host == "::" and socket.has_dualstack_ipv6()  # IPv4 too, as gRPC does
    try:
        listener = socket.create_server((settings.host, settings.rest_port), family=family, dualstack_ipv6=both)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]  # it repeats the address
        raise JobiError(f"cannot listen on {_address(settings.host, settings.rest_port)}: {reason}") from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio sets it only on sockets that it creates
    return listener


def _rest_server(settings: ServerSettings, app: Any) -> uvicorn.Server:
    seconds = math.ceil(settings.timeout)
    config = uvicorn.Config(
        app,
        http=_Connection,
        loop="asyncio",
        ws="none",
        lifespan="off",
        backlog=_BACKLOG,
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=seconds,
        timeout_graceful_shutdown=seconds,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )

    def refuse() -> str:  # gRPC cannot decrypt a key
        raise JobiError(f"expected a private key without a passphrase in {settings.key}")

    try:
        if settings.certificate is not None:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.certificate, settings.key, refuse)
            constants.SSL_HANDSHAKE_TIMEOUT = settings.timeout  # uvicorn has no option for it
        config.load()
    except OSError as error:  # from the certificate or its key
        files = f"the certificate {settings.certificate} with the key {settings.key}"
        raise JobiError(f"cannot use {files}: {error.strerror or error}") from None
    return _Server(config)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to `serve`, which ends gRPC as well."""
        yield


class _Connection(HttpToolsProtocol):
    """A connection that is closed if a request arrives or its answer is read too slowly, or if the head is too long.

    If a request offers to upgrade to HTTP/2, as those of Java's client do, httptools does not read its body; the
    request is then read again without the offer.
    """

    # Connections at a time; the rest of the server needs files as well.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
    _head: int | None = None  # bytes of the head so far
    _again: bool = False  # the head is parsed again; its time limit is not restarted

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._start_timer("request")
        if len(self.connections) > self.limit:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer("request")
        self._stop_timer("answer")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.send_400_response("expected a request of HTTP/1.1 with a percent-encoded address")
        if self._head is not None and self._head > _LONGEST_HEAD:
            self.transport.abort()

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            kept = [header for header in self.headers if header[0] != b"upgrade"]
            if len(kept) == len(self.headers):  # the method is CONNECT
                raise httptools.HttpParserError from None
            version = self.parser.get_http_version().encode()
            lines = [b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, version)]
            lines += [b"%s: %s\r\n" % header for header in kept]
            self.parser, self._again = httptools.HttpRequestParser(self), True
            self._feed(b"".join([*lines, b"\r\n", data[offer.args[0] :]]))

    def on_message_begin(self) -> None:
        self._head = 0
        self._unset_keepalive_if_required()  # line breaks between requests do not end the time limit
        if not self._again:
            self._start_timer("request")
        self._again = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head = None
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            self._stop_timer("request")
            self._unset_keepalive_if_required()  # it began when the answer to the request before was sent
            super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_timer("answer")

    def resume_writing(self) -> None:
        self._stop_timer("answer")
        super().resume_writing()

    def _start_timer(self, what: str) -> None:
        self._stop_timer(what)
        self._timers[what] = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def _stop_timer(self, what: str) -> None:
        if timer := self._timers.pop(what, None):
            timer.cancel()


def _grpc_server(settings: ServerSettings, interceptors: list[Any]) -> tuple[grpc.aio.Server, int]:
    most = 4 * settings.max_requests + 64  # many may be arriving while few are computed
    server = grpc.aio.server(
        interceptors=interceptors,
        maximum_concurrent_rpcs=most,
        options=[
            ("grpc.max_receive_message_length", settings.max_body),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", most),
            ("grpc.server_handshake_timeout_ms", int(1000 * settings.timeout)),
            ("grpc.so_reuseport", 0),  # otherwise two servers could share a port
        ],
    )
    address, port = _address(settings.host, settings.grpc_port), 0
    with suppress(RuntimeError):  # the address is in use
        if settings.certificate is None or settings.key is None:
            port = server.add_insecure_port(address)
        else:
            files = settings.key.read_bytes(), settings.certificate.read_bytes()
            port = server.add_secure_port(address, grpc.ssl_server_credentials([files]))
    if not port:
        raise JobiError(f"cannot listen on {address}: it is in use or not an address of this machine")
    return server, port


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
