"""TensorFlow Serving's REST paths, and those of the page, the health check and the metrics."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from jobi_tf.errors import DataError

from . import rest_answers, rest_json
from .errors import Code, Refusal, invalid, shortened
from .names import KINDS
from .service import Asked, Service, Target

PAGE = Path(__file__).parent / "page"
# TensorFlow Serving's patterns, with `names` beside `metadata`.
_MODEL = r"/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?"
_ASK = re.compile(_MODEL + r":(classify|regress|predict)", re.IGNORECASE)
_LOOK = re.compile(_MODEL + r"(?:/(metadata|names))?", re.IGNORECASE)
_OPEN = re.compile("/|/static/.*|/healthz")  # asked without a token: the page has a field for it
_JSON = "application/json"
_METRICS = ("/metrics", "/monitoring/prometheus/metrics")


class RestApp:
    """Answers HTTP requests (an ASGI application).

    Args:
        service: does the work.
        page: folder of the page, whose `index.html` is at `/` and all of which is at `/static/`; none if it is absent.
    """

    def __init__(self, service: Service, page: Path = PAGE) -> None:
        self._service = service
        routes: list[BaseRoute] = [Route("/healthz", self._health)]
        routes += [Route(path, self._metrics) for path in _METRICS]
        if (page / "index.html").is_file():
            routes.append(Route("/", lambda request: FileResponse(page / "index.html")))
            routes.append(Mount("/static", StaticFiles(directory=page)))
        self._others = Starlette(routes=routes, exception_handlers={HTTPException: _not_found})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":  # there is nothing to open or close, and no other protocol
            return
        path = scope.get("raw_path", scope["path"].encode()).decode("latin-1").partition("?")[0]
        try:
            if not _OPEN.fullmatch(path):
                self._service.limits.check_token(_header(scope, b"authorization"))
            if path[:4].lower() == "/v1/":
                await _respond(send, 200, await self._answer(scope, receive, path))
            else:
                await self._others(scope, receive, send)
        except Refusal as refused:
            await _respond(send, refused.http, rest_answers.error(refused.message))

    async def _answer(self, scope: Scope, receive: Receive, path: str) -> bytes:
        with self._service.answering("rest") as asked, self._service.limits.admitted():
            method = scope["method"]
            ask = _ASK.fullmatch(path) if method == "POST" else None
            look = _LOOK.fullmatch(path) if method == "GET" else None
            if ask:
                body = await self._body(scope, receive)
                return await self._ask(_target(ask), ask[4].lower(), body, asked)
            if look:
                return await self._look(_target(look), (look[4] or "").lower(), scope["query_string"], asked)
            if method == "GET" and path.lower() == "/v1/models":
                return rest_answers.models([model.name for model in self._service.models])
            raise invalid(f"Malformed request: {method} {shortened(path)}")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Reads a request's body, as far as the limit goes."""
        encoding = _header(scope, b"content-encoding") or b"identity"
        if encoding.lower() != b"identity":
            message = f"expected a body without Content-Encoding, got {encoding.decode('latin-1')}"
            raise Refusal(Code.INVALID_ARGUMENT, message, http=415)
        length = _header(scope, b"content-length") or b""
        self._service.limits.check_body(int(length) if length.isdigit() else 0)
        parts: list[bytes] = []
        size = 0
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise Refusal(Code.CANCELLED, "the request was not sent to its end")
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            self._service.limits.check_body(size)
            if not event.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _ask(self, target: Target, method: str, body: bytes, asked: Asked) -> bytes:
        document = rest_json.parse(body)
        limits = self._service.limits
        target = Target(target.model, target.version, target.label, rest_json.signature_name(document))
        if method != "predict":
            raise self._service.refuse_method(method, target, asked, _no_signature)
        _, _, outputs = await self._service.predict(
            target,
            asked,
            lambda signature: rest_json.read_inputs(document, signature, limits.check_rows),
            _no_signature,
        )
        return rest_answers.predictions(outputs, "instances" in document)

    async def _look(self, target: Target, what: str, query: bytes, asked: Asked) -> bytes:
        if what == "metadata":
            return rest_answers.metadata(target.model, self._service.find(target, asked))
        if what == "names":
            return await self._names(target, query, asked)
        return rest_answers.status(self._service.status(target, asked))

    async def _names(self, target: Target, query: bytes, asked: Asked) -> bytes:
        options = {key: values[-1] for key, values in parse_qs(query.decode("latin-1"), keep_blank_values=True).items()}
        kind, limit = options.get("kind", ""), options.get("limit", "20")
        if kind not in KINDS:
            raise invalid(f"expected kind=entity or kind=relation, got {kind!r}")
        if not re.fullmatch("[1-9][0-9]{0,3}", limit) or int(limit) > 1000:
            raise invalid(f"expected a limit from 1 to 1000, got {limit!r}")
        try:
            names = await self._service.names(target, asked)
        except DataError:
            raise Refusal(Code.NOT_FOUND, f"the export of {target.model} lists no names") from None
        return rest_answers.names(names.lists[kind].complete(options.get("prefix", ""), int(limit)))

    async def _health(self, request: Request) -> Response:
        healthy = self._service.models.healthy
        waiting = [model.name for model in self._service.models if not model.available]
        text = "ok\n" if healthy else f"no version available: {', '.join(waiting)}\n"
        return Response(text, 200 if healthy else 503, media_type="text/plain")

    async def _metrics(self, request: Request) -> Response:
        metrics = self._service.metrics
        return Response(metrics.text(), media_type=metrics.content_type)


async def _not_found(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    body = rest_answers.error(f"Malformed request: {request.method} {request.url.path}")
    return Response(body, code, media_type=_JSON)


def _no_signature(name: str) -> Refusal:
    return invalid(f'Serving signature name: "{name}" not found in signature def')


def _target(match: re.Match[str]) -> Target:
    name, number, label = match[1], match[2], match[3]
    version = None
    if number is not None:
        digits = number.lstrip("0") or "0"
        if len(digits) > 19 or int(digits) >= 2**63:
            raise invalid(f"Failed to convert version: {shortened(number, 100)} to numeric.")
        version = int(digits)
    return Target(unquote(name), version, None if label is None else unquote(label))


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key == name), None)


async def _respond(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 429:
        headers.append((b"retry-after", b"1"))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
