"""Connections of HTTP, with limits that the ASGI server does not have of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from . import rest_answers
from .errors import phrase

_LONGEST_HEAD = 2**16  # bytes of a request's line and headers, beyond the piece in which they begin


class Connection(HttpToolsProtocol):
    """A connection that is closed when a request does not arrive in time, or its answer is not fetched in time.

    `limited` makes subclasses with other limits.

    Attributes:
        seconds: that a request may take to arrive, and an answer to be fetched.
        most: connections at a time.
        longest: bytes of a request that are read at most; of one that is refused, the rest is read in vain.
    """

    seconds: float = 30.0
    most: int = 1024
    longest: int = 2**27

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._arriving: asyncio.TimerHandle | None = None
        self._fetching: asyncio.TimerHandle | None = None
        self._piece = 0  # bytes of the piece that is read just now
        self._read = 0  # bytes of the request so far, without the piece in which it begins
        self._begun = False  # a request has begun to arrive, and has not ended
        self._in_head = False
        self._before: object = None  # what answers the request before it
        self._unparsed = 0  # bytes of a body that the parser leaves alone
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the time for the first request."""
        super().connection_made(transport)
        self.transport = Joining(transport, self.loop)  # type: ignore[assignment]
        if len(self.connections) > self.most:
            self._close_with(429, f"expected at most {self.most} connections at a time: try again later")
        else:
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops all timers."""
        self._stop("_arriving")
        self._stop("_fetching")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Starts the time for the next request with its first byte, and reads on."""
        if self._refused:
            return
        if self._arriving is None:
            self._await_request()
        self._unset_keepalive_if_required()
        self._piece = len(data)
        self._parse(data)
        self._read += len(data)
        if self._begun and self._read > (_LONGEST_HEAD if self._in_head else self.longest):
            self._close_with(431 if self._in_head else 413, "the request is too long")

    def on_message_begin(self) -> None:
        """Starts the time for a request that came right behind another, and counts its bytes."""
        if self._arriving is None:
            self._await_request()
        self._read = -self._piece
        self._begun = self._in_head = True
        self._before = self.cycle
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Notes the end of the head."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Ends the time for a request that has arrived."""
        if self.parser.should_upgrade():
            length = next((value for name, value in self.headers if name == b"content-length"), b"0")
            self._unparsed = int(length) if length.isdigit() else 0
        else:
            self._complete()

    def pause_writing(self) -> None:
        """Starts the time for an answer to be fetched."""
        super().pause_writing()
        self._fetching = self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Ends the time for an answer that was fetched."""
        self._stop("_fetching")
        super().resume_writing()

    def _parse(self, data: bytes) -> None:
        try:
            if self._unparsed:
                self._take_body(data)
            else:
                self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._close_with(400, "expected a request of HTTP/1.1")
        except httptools.HttpParserUpgrade as upgrade:
            self._take_body(data[upgrade.args[0] :])

    def _take_body(self, data: bytes) -> None:
        """Takes the body of a request that offers another protocol, as clients of HTTP/2 do: the parser stops there."""
        body, rest = data[: self._unparsed], data[self._unparsed :]
        self._unparsed -= len(body)
        if body:
            self.on_body(body)
        if self._unparsed == 0:
            self._complete()
            self.parser = httptools.HttpRequestParser(self)
            if rest:
                self._parse(rest)

    def _complete(self) -> None:
        self._stop("_arriving")
        self._begun = False
        super().on_message_complete()

    def _await_request(self) -> None:
        self._arriving = self.loop.call_later(self.seconds, self._give_up)

    def _give_up(self) -> None:
        self._arriving = None
        answered = self.cycle is not self._before and self.cycle.response_started
        if self._begun and not answered:
            self._close_with(408, f"expected the whole request within {self.seconds:g} s")
        else:
            self.transport.abort()

    def _close_with(self, status: int, message: str) -> None:
        self._refused = True
        if self.transport.is_closing():
            return
        body = rest_answers.error(message)
        head = [
            f"HTTP/1.1 {status} {phrase(status)}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            *(["retry-after: 1"] if status == 429 else []),
            "connection: close",
        ]
        self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self.transport.close()

    def _stop(self, timer: str) -> None:
        handle = getattr(self, timer)
        if handle is not None:
            handle.cancel()
            setattr(self, timer, None)


class Joining:
    """A transport that sends what is written in a row, such as head and body, in one packet.

    Args:
        transport: what sends.
        loop: runs it.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Holds the first part back until the next, or until the loop comes round."""
        if self._held:
            self._transport.write(self._held + data)
            self._held = b""
        elif data:
            self._held = data
            self._loop.call_soon(self._send)

    def close(self) -> None:
        """Sends what is held back, and closes."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        if self._held:
            self._transport.write(self._held)
            self._held = b""


def limited(seconds: float, most: int, longest: int) -> type[Connection]:
    """Makes connections with limits."""
    return type("LimitedConnection", (Connection,), {"seconds": seconds, "most": most, "longest": longest})
