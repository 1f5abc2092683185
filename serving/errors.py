"""Errors of requests, with the status codes of gRPC and of TensorFlow Serving's REST."""

from grpc import StatusCode

_HTTP = {
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.NOT_FOUND: 404,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.DEADLINE_EXCEEDED: 504,
}


class ServingError(Exception):
    """A request that gets an error instead of an answer: a status code, and one sentence for the client.

    The HTTP status is that of the code, if no other is given.
    """

    def __init__(self, code: StatusCode, message: str, http: int | None = None) -> None:
        super().__init__(message if len(message) <= 1000 else message[:1000] + "…")
        self.code = code
        self.http = http or _HTTP.get(code, 500)


def invalid(message: str, http: int | None = None) -> ServingError:
    """Returns the error for a request that does not fit the model or the limits."""
    return ServingError(StatusCode.INVALID_ARGUMENT, message, http)


def busy(message: str) -> ServingError:
    """Returns the error for a request that may succeed later."""
    return ServingError(StatusCode.RESOURCE_EXHAUSTED, f"{message}: try again later")
