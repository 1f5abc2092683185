"""What a server does not let pass."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .errors import Code, Refusal, invalid
from .settings import ServerSettings


class Limits:
    """Who may ask, how much, and how many at a time.

    Args:
        settings: the limits.
        changed: is told the number of requests in work whenever it changes.
    """

    def __init__(self, settings: ServerSettings, changed: Callable[[int], None] = lambda count: None) -> None:
        self._settings = settings
        self._token = None if settings.token is None else settings.token.encode()
        self._changed = changed
        self.in_work = 0

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Counts a request while it is in work.

        Raises:
            Refusal: there are too many.
        """
        if self.in_work >= self._settings.max_requests:
            raise Refusal(
                Code.RESOURCE_EXHAUSTED,
                f"expected at most {self._settings.max_requests} requests at a time: try again later",
            )
        self.in_work += 1
        self._changed(self.in_work)
        try:
            yield
        finally:
            self.in_work -= 1
            self._changed(self.in_work)

    def check_token(self, authorization: str | bytes | None) -> None:
        """Checks the value of an `Authorization` header, or of gRPC's metadata.

        Raises:
            Refusal: a token is asked for, and it is not this one.
        """
        if self._token is None:
            return
        value = authorization.encode() if isinstance(authorization, str) else authorization or b""
        scheme, _, token = value.partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
            got = "another" if value else "none"
            raise Refusal(Code.UNAUTHENTICATED, f"expected a bearer token, got {got}")

    def check_rows(self, rows: int) -> None:
        """Checks the number of rows of a request.

        Raises:
            Refusal: there are too many.
        """
        if rows > self._settings.max_rows:
            raise invalid(f"expected at most {self._settings.max_rows} rows in a request, got {rows}")

    def check_body(self, size: int) -> None:
        """Checks the bytes of a request's body, as far as they are known.

        Raises:
            Refusal: there are too many.
        """
        if size > self._settings.max_body:
            message = f"expected a body of at most {self._settings.max_body} bytes, got {size} or more"
            raise Refusal(Code.INVALID_ARGUMENT, message, http=413)

    def late(self) -> Refusal:
        """What is said when the time is over."""
        return Refusal(Code.DEADLINE_EXCEEDED, f"expected to answer within {self._settings.timeout:g} s, but did not")
