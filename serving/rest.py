"""TensorFlow Serving's REST, the page, the health check and the metrics."""

import asyncio
import base64
import re
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf
from google.protobuf.json_format import MessageToDict
from grpc import StatusCode
from prometheus_client import make_asgi_app
from pydantic_core import SchemaValidator, ValidationError, from_json, to_json
from pydantic_core import core_schema as schema
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from jobi_tf.errors import DataError, validation_message

from .errors import ServingError, invalid
from .grpc_api import status_response
from .limits import Limits
from .metrics import Metrics
from .model import Model
from .names import FILES, NameList
from .saved_model import Signature

PAGE = Path(__file__).parent / "page"
_JSON = "application/json"
_METRICS = ("/metrics", "/monitoring/prometheus/metrics")
_OPEN = re.compile("/|/static/.*|/healthz")  # paths that need no token: the page has a field for it
_SMALL = 2**16  # bytes or values that are parsed or written in a few milliseconds
_VALUES = 2**14  # values written at a time
T = TypeVar("T")


class RestApp:
    """Answers HTTP requests (an ASGI application)."""

    def __init__(self, model: Model, limits: Limits, metrics: Metrics) -> None:
        self._model = model
        self._limits = limits
        self._metrics = metrics
        self._bodies: WeakKeyDictionary[Signature, Body] = WeakKeyDictionary()
        self._metrics_app = make_asgi_app(metrics.registry)
        versions = ("/v1/models/{name}", "/v1/models/{name}/versions/{version}")
        routes = [Route(f"{path}:predict", self._predict, methods=["POST"]) for path in versions]
        routes += [Route(f"{path}/metadata", self._metadata) for path in versions]
        routes += [Route(f"{path}/names", self._names) for path in versions]
        routes += [Route(path, self._status) for path in versions]
        routes += [Route("/v1/models", lambda request: JSONResponse({"models": [model.name]}))]
        for route in routes:  # as in TensorFlow Serving
            route.path_regex = re.compile(route.path_regex.pattern.replace("[^/]+", "[^/:]+"), re.IGNORECASE)
        routes += [Route("/healthz", lambda request: PlainTextResponse("ok\n"))]
        routes += [Route("/", lambda request: FileResponse(PAGE / "index.html"))]
        self._app = Starlette(
            routes=[*routes, Mount("/static", StaticFiles(directory=PAGE))],
            exception_handlers={
                ServingError: _error,
                HTTPException: _http_error,
                Exception: lambda *_: JSONResponse({"error": "the server failed; its log has the reason"}, 500),
            },
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        headers = dict(scope["headers"])
        try:
            self._limits.check_host(headers.get(b"host", b"").decode("latin-1"))
            if not _OPEN.fullmatch(scope["path"]):
                self._limits.check_token(headers.get(b"authorization"))
        except ServingError as error:
            if scope["path"].endswith(":predict"):
                with suppress(ServingError), self._metrics.request("rest"):  # which counts it
                    raise
            await _error(None, error)(scope, receive, send)
            return
        await (self._metrics_app if scope["path"] in _METRICS else self._app)(scope, receive, send)

    async def _predict(self, request: Request) -> Response:
        with self._metrics.request("rest"), self._limits.receiving() as add:
            body = await _read(request, add)
            with self._limits.admitted():
                document = await _aside(len(body), _parse, body)

                async def read(signature: Signature) -> Mapping[str, np.ndarray]:
                    if signature not in self._bodies:
                        self._bodies[signature] = Body(signature)
                    return await _aside(len(body), self._bodies[signature].read, document)

                signature_name = document.get("signature_name", "")
                predicting = self._model.predict(*_target(request), signature_name, read)
                _, _, outputs = await _while_connected(request, predicting)
                size = sum(array.size for array in outputs.values())
                return Response(await _aside(size, _encode, outputs, "instances" in document), media_type=_JSON)

    async def _status(self, request: Request) -> Response:
        return JSONResponse(_json(status_response(self._model, *_target(request))))

    async def _metadata(self, request: Request) -> Response:
        version = self._model.find(*_target(request))
        with version.in_use() as model:
            signatures = {name: _json(definition) for name, definition in model.definitions.items()}
        spec = {"name": self._model.name, "signature_name": "", "version": str(version.number)}
        return JSONResponse({"model_spec": spec, "metadata": {"signature_def": {"signature_def": signatures}}})

    async def _names(self, request: Request) -> Response:
        """Names that contain `prefix`, for the page; TensorFlow Serving has no such path."""
        version = self._model.find(*_target(request))
        query = request.query_params
        kind, limit = query.get("kind"), query.get("limit", "20")
        if kind not in FILES or not (limit.isdecimal() and len(limit) < 5 and 1 <= int(limit) <= 1000):
            raise invalid(f"expected kind=entity or kind=relation, and a limit from 1 to 1000, got {query}")
        if kind not in version.names:
            reading = asyncio.to_thread(NameList, version.folder / FILES[kind])
            version.names[kind] = asyncio.create_task(reading)  # requests that come meanwhile wait for it
        try:
            names = await asyncio.shield(version.names[kind])
        except DataError as error:
            version.names.pop(kind, None)  # the file may come back
            raise ServingError(StatusCode.NOT_FOUND, f"the export has no list of names ({FILES[kind]})") from error
        return JSONResponse({"names": names.search(query.get("prefix", ""), int(limit))})


class Body:
    """The JSON body of requests to a signature."""

    def __init__(self, signature: Signature) -> None:
        self._inputs = signature.inputs
        values = {key: _value_schema(spec) for key, spec in signature.inputs.items()}
        rows = schema.list_schema(_object(values), min_length=1, fail_fast=True)
        columns = {key: schema.list_schema(value, fail_fast=True) for key, value in values.items()}
        self._rows = SchemaValidator(_object({"instances": rows}))
        self._columns = SchemaValidator(_object({"inputs": _object(columns)}))

    def read(self, document: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Returns the inputs of a request in rows (`instances`) or in columns (`inputs`)."""
        instances, inputs = document.get("instances"), document.get("inputs")
        if len(self._inputs) == 1:  # its name may be left out
            (key,) = self._inputs
            if isinstance(instances, list) and instances and not _is_object(instances[0]):
                instances = [{key: value} for value in instances]
            if not _is_object(inputs):
                inputs = {key: inputs}
        try:
            if "instances" in document:
                rows = self._rows.validate_python({"instances": instances}, strict=True)["instances"]
                columns = {key: [row[key] for row in rows] for key in self._inputs}
            else:
                columns = self._columns.validate_python({"inputs": inputs}, strict=True)["inputs"]
            return {key: np.array(columns[key], spec.dtype.as_numpy_dtype) for key, spec in self._inputs.items()}
        except ValidationError as error:
            raise invalid(validation_message(error)) from None
        except ValueError as error:  # lists of different lengths
            raise invalid(f"expected lists of the same length: {error}") from None


def _object(fields: Mapping[str, schema.CoreSchema]) -> schema.CoreSchema:
    required = {key: schema.typed_dict_field(value) for key, value in fields.items()}
    return schema.typed_dict_schema(required, extra_behavior="forbid")


def _value_schema(spec: tf.TensorSpec) -> schema.CoreSchema:
    """Returns the schema of one row of an input."""
    made: schema.CoreSchema
    if spec.dtype == tf.string:
        base64_object = schema.no_info_after_validator_function(_decode, _object({"b64": schema.str_schema()}))
        message = 'Input should be a string, or an object {"b64": …} with valid base64'
        made = schema.union_schema(
            [schema.str_schema(), base64_object], custom_error_type="text", custom_error_message=message
        )
    elif spec.dtype == tf.bool:
        made = schema.bool_schema()
    elif spec.dtype.is_integer:
        made = schema.int_schema(ge=int(spec.dtype.min), le=int(spec.dtype.max))
    else:
        made = schema.float_schema()
    for size in reversed(spec.shape[1:]):
        made = schema.list_schema(made, min_length=size, max_length=size)
    return made


def _decode(value: dict[str, str]) -> bytes:
    return base64.b64decode(value["b64"], validate=True)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() != {"b64"}


def _json(message: Any) -> dict[str, Any]:
    """Returns a message of gRPC as TensorFlow Serving writes it in REST."""
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


async def _read(request: Request, add: Callable[[int], None]) -> bytes:
    if request.headers.get("content-encoding", "identity") != "identity":
        raise invalid("expected a body without Content-Encoding", 415)
    parts = []
    try:
        async for part in request.stream():
            add(len(part))
            parts.append(part)
    except ClientDisconnect:
        raise ServingError(StatusCode.CANCELLED, "the client has gone", 499) from None
    return b"".join(parts)


async def _while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of some work, which ends when the client has gone."""
    current = asyncio.current_task()
    assert current is not None

    async def watch() -> None:
        await request.receive()  # the body is read, so this is the end
        current.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if not watching.done():
            raise
        current.uncancel()
        raise ServingError(StatusCode.CANCELLED, "the client has gone", 499) from None
    finally:
        watching.cancel()


def _parse(body: bytes) -> dict[str, Any]:
    try:
        document = from_json(body)
    except ValueError as error:
        raise invalid(f"JSON Parse error: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("signature_name", ""), str):
        raise invalid("expected a JSON object, in which signature_name is a string")
    if ("instances" in document) == ("inputs" in document):
        got = "both" if "inputs" in document else "neither"
        raise invalid(f"expected one of the keys instances and inputs, got {got}")
    return document


def _encode(outputs: Mapping[str, np.ndarray], by_rows: bool) -> bytes:
    """Writes an answer in rows or in columns."""
    arrays = {name: _encodable(name, outputs[name]) for name in sorted(outputs)}
    if by_rows or len(arrays) == 1:
        return b'{"%s": %s}' % (b"predictions" if by_rows else b"outputs", _list(arrays))
    columns = (to_json(name) + b": " + _list({name: array}) for name, array in arrays.items())
    return b'{"outputs": {' + b", ".join(columns) + b"}}"


def _list(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Writes a list with a value for each row, or an object if there are several arrays.

    It is written in parts, as the interpreter cannot turn to another thread within one.
    """
    rows = len(next(iter(arrays.values())))
    step = max(1, _VALUES * rows // (1 + sum(array.size for array in arrays.values())))
    parts = []
    for start in range(0, rows, step):
        columns = [array[start : start + step].tolist() for array in arrays.values()]
        objects = [dict(zip(arrays, row, strict=True)) for row in zip(*columns, strict=True)] if columns[1:] else None
        parts.append(to_json(objects or columns[0], inf_nan_mode="constants")[1:-1])
    return b"[" + b",\n".join(parts) + b"]"


def _encodable(name: str, array: np.ndarray) -> np.ndarray:
    """Returns the array of an output, whose strings are text unless its name says otherwise."""
    if not name.endswith("_bytes"):
        return array
    return np.vectorize(lambda value: {"b64": base64.b64encode(value).decode()}, otypes=[object])(array)


async def _aside(size: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function, in a thread if there is much to do, so that other requests are answered meanwhile."""
    return function(*arguments) if size < _SMALL else await asyncio.to_thread(function, *arguments)


def _target(request: Request) -> tuple[str, int | None]:
    version = request.path_params.get("version")
    if version is None:
        return request.path_params["name"], None
    if not (version.isdecimal() and len(version) < 20):
        raise invalid(f"expected the number of a version, got {version!r}")
    return request.path_params["name"], int(version)


def _error(request: Request | None, error: Exception) -> Response:
    assert isinstance(error, ServingError)
    headers = {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}}.get(error.http)
    return JSONResponse({"error": str(error)}, error.http, headers)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = f"Malformed request: {request.method} {request.url.path}"
    return JSONResponse({"error": sentence}, error.status_code, error.headers)
