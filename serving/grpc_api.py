"""TensorFlow Serving's gRPC services, on the servicers of tensorflow-serving-api."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from grpc import StatusCode
from tensorflow.core.framework.types_pb2 import DataType
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataResponse, SignatureDefMap
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusResponse, ModelVersionStatus
from tensorflow_serving.apis.model_service_pb2_grpc import ModelServiceServicer
from tensorflow_serving.apis.predict_pb2 import PredictResponse
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceServicer

from .errors import ServingError, invalid
from .limits import ARRIVING, Limits
from .metrics import Metrics
from .model import Model
from .saved_model import Signature, fits

# The fields of a TensorProto in which TensorFlow Serving writes values, and clients expect them.
_FIELDS = {
    tf.float32: "float_val",
    tf.float64: "double_val",
    tf.int32: "int_val",
    tf.int64: "int64_val",
    tf.bool: "bool_val",
    tf.string: "string_val",
}
_log = logging.getLogger("jobi_tf.serving")


class Interceptor(grpc.aio.ServerInterceptor):
    """Counts calls, checks them, and turns a `ServingError` into a status; calls for health are left alone.

    A call is handled like a stream of messages, as gRPC itself would read the only message of a unary call before the
    token is checked, wait for it without a time-out, and answer bytes that are no message with UNKNOWN.
    """

    def __init__(self, limits: Limits, metrics: Metrics, timeout: float) -> None:
        self._limits = limits
        self._metrics = metrics
        self._timeout = timeout
        self._reading = asyncio.Semaphore(ARRIVING)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Returns the handler of a method, with the checks around it."""
        handler = await continuation(details)
        if handler is None or details.method.startswith("/grpc.health.v1."):
            return handler

        async def answer(_: Any, context: Any) -> Any:
            try:
                with self._metrics.request("grpc"), self._limits.receiving() as add:
                    self._limits.check_token(dict(details.invocation_metadata).get("authorization"))
                    content = await self._message(context)
                    add(len(content))
                    with self._limits.admitted():
                        request = _parsed(handler.request_deserializer, content)
                        if not asyncio.iscoroutinefunction(handler.unary_unary):
                            raise ServingError(StatusCode.UNIMPLEMENTED, f"{details.method} is not supported")
                        return await handler.unary_unary(request, context)
            except ServingError as error:
                # The message is sent in a header, which has a limit, and in which a byte may take three.
                await context.abort(error.code, str(error).encode()[:2000].decode(errors="ignore"))
            except Exception:
                _log.exception("a request failed")
                await context.abort(StatusCode.INTERNAL, "the server failed; its log has the reason")

        return grpc.stream_unary_rpc_method_handler(answer, None, handler.response_serializer)

    async def _message(self, context: Any) -> bytes:
        try:
            async with asyncio.timeout(self._timeout), self._reading:
                content = await context.read()
        except TimeoutError:
            message = f"expected a message within {self._timeout:g} s"
            raise ServingError(StatusCode.DEADLINE_EXCEEDED, message) from None
        if content is grpc.aio.EOF:
            raise invalid("expected a message, got none")
        return content


class Services(PredictionServiceServicer, ModelServiceServicer):
    """Predictions, the signatures of the model, and the states of its versions."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Computes the outputs of a signature."""

        async def read(signature: Signature) -> dict[str, np.ndarray]:
            return {key: self._array(key, tensor, signature) for key, tensor in request.inputs.items()}

        spec = request.model_spec
        arguments = *_target(spec), spec.signature_name, read, context.time_remaining()
        version, signature, outputs = await self._model.predict(*arguments)
        response = PredictResponse()
        response.model_spec.name = self._model.name
        response.model_spec.version.value = version.number
        response.model_spec.signature_name = signature.name
        for key in dict.fromkeys(request.output_filter or outputs):
            if key not in outputs:
                raise invalid(f"expected names of outputs ({', '.join(outputs)}) in output_filter, got {key!r}")
            _fill(response.outputs[key], outputs[key])
        return response

    async def GetModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Returns the signatures of a version."""
        if list(request.metadata_field) != ["signature_def"]:
            raise invalid(f"expected the metadata_field signature_def, got {list(request.metadata_field)}")
        version = self._model.find(*_target(request.model_spec))
        assert version.model is not None
        signatures = SignatureDefMap(signature_def=version.model.definitions)
        response = GetModelMetadataResponse()
        response.model_spec.name = self._model.name
        response.model_spec.version.value = version.number
        response.metadata["signature_def"].Pack(signatures)
        return response

    async def GetModelStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Returns the states of all versions, or of one."""
        return status_response(self._model, *_target(request.model_spec))

    def _array(self, key: str, tensor: Any, signature: Signature) -> np.ndarray:
        spec = signature.inputs.get(key)
        if spec is None or tensor.dtype != spec.dtype.as_datatype_enum:
            wanted = ", ".join(f"{name} of {x.dtype.name}" for name, x in signature.inputs.items())
            got = DataType.Name(tensor.dtype) if tensor.dtype in DataType.values() else tensor.dtype
            raise invalid(f"expected the inputs {wanted}, got {key!r} of type {got}")
        sizes = [dim.size for dim in tensor.tensor_shape.dim]
        if min(sizes, default=-1) < 0 or not fits(sizes, spec):
            raise invalid(f"expected shape {spec.shape} for the input {key!r}, got {sizes}")
        self._model.check_rows(sizes[0])  # before the array is made, as few bytes may stand for many values
        try:
            return tf.make_ndarray(tensor)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise invalid(f"expected a tensor for the input {key!r}: {error}") from None


def status_response(model: Model, name: str, number: int | None) -> GetModelStatusResponse:
    """Returns the states of all versions of a model, or of the one with a number."""
    response = GetModelStatusResponse()
    for version in model.status(name, number):
        found = response.model_version_status.add(version=version.number)
        found.state = ModelVersionStatus.State.Value(version.state)
        found.status.error_code = (StatusCode.UNKNOWN if version.error else StatusCode.OK).value[0]
        found.status.error_message = version.error
    return response


def _target(spec: Any) -> tuple[str, int | None]:
    if spec.version_label:
        raise invalid(f"expected no version label, as versions have none, got {spec.version_label!r}")
    return spec.name, spec.version.value if spec.HasField("version") else None


def _parsed(read: Callable[[bytes], Any], content: bytes) -> Any:
    try:
        return read(content)
    except DecodeError as error:
        raise invalid(f"expected a message of TensorFlow Serving: {error}") from None


def _fill(tensor: Any, array: np.ndarray) -> None:
    """Writes an array into an empty TensorProto, by value; `tf.make_tensor_proto` writes bytes."""
    dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
    tensor.dtype = dtype.as_datatype_enum
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    getattr(tensor, _FIELDS[dtype]).extend(array.ravel().tolist())
