"""Refusals: what an answer says when it cannot be given, by gRPC and by REST alike."""

from __future__ import annotations

import logging
import re
from enum import IntEnum
from http import HTTPStatus

_log = logging.getLogger("jobi_tf.serving")
# Lines of TensorFlow's messages that say where in the library or the graph something happened, not what.
_WHERE = re.compile(
    r"Graph execution error:|Detected at node |<stack traces unavailable>|Traceback|\s+File |\s*\[\[|\d+ root error"
)
_TAIL = re.compile(r"\s*(\[\[\{\{node|\[Op:).*", re.DOTALL)
_PATH = re.compile(r"(?<![\w.])/(?:[\w.@+-]+/)+[\w.@+-]+")
_LONGEST = 1000


class Code(IntEnum):
    """The status codes of gRPC; `Code.NOT_FOUND.http` is the status that TensorFlow Serving's REST gives for one."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @property
    def http(self) -> int:
        """The HTTP status."""
        return _HTTP.get(self, 500)


_HTTP = {
    Code.OK: 200,
    Code.CANCELLED: 499,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.UNAUTHENTICATED: 401,
}


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """A request that is not answered.

    Args:
        code: why, in gRPC's terms.
        message: one sentence for the one who asked; cut if it is long.
        http: HTTP status, where it is not that of the code.
    """

    def __init__(self, code: Code, message: str, http: int | None = None) -> None:
        self.message = shortened(message)
        super().__init__(self.message)
        self.code = code
        self.http = http or code.http


def invalid(message: str) -> Refusal:
    """A request that does not fit what is served."""
    return Refusal(Code.INVALID_ARGUMENT, message)


def phrase(status: int) -> str:
    """The words that HTTP has for a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Client Closed Request" if status == 499 else "Unknown"


def refusal(error: BaseException) -> Refusal:
    """What is said of an error of TensorFlow: its own words, without places in the graph or the library."""
    if isinstance(error, Refusal):
        return error
    number = getattr(error, "error_code", None)
    if isinstance(number, int) and number in Code._value2member_map_:
        return Refusal(Code(number), clean(str(getattr(error, "message", error))))
    _log.error("a computation failed for a reason that is not the request's", exc_info=error)
    return Refusal(Code.INTERNAL, "the computation failed: the server's log says why")


def clean(message: str) -> str:
    """Cuts a message of TensorFlow to the part that says what is wrong."""
    lines = [line.strip() for line in _TAIL.sub("", message).split("\n") if line.strip() and not _WHERE.match(line)]
    return shortened(" ".join(lines[:3])) or "the computation failed"


def without_folders(message: str) -> str:
    """Leaves of paths only the names of files: the folders of the server are nobody's business."""
    return _PATH.sub(lambda path: path[0].rsplit("/", 1)[1], message)


def shortened(text: str, longest: int = _LONGEST) -> str:
    """Cuts a text that is too long for an answer."""
    return text if len(text) <= longest else text[:longest] + "…"
