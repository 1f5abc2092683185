"""TensorFlow Serving's gRPC services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2,
    predict_pb2,
    prediction_service_pb2,
)

from .errors import Code, Refusal, invalid
from .grpc_tensors import arrays_of, fill
from .service import Asked, Service, Target
from .signature import Signature

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_FIELD = "signature_def"
Context = Any  # grpc.aio.ServicerContext
Method = Callable[[Any, Context, Asked], Awaitable[Message]]


def handlers(service: Service) -> list[grpc.GenericRpcHandler]:
    """Makes what gRPC calls for the methods of both services."""
    return [
        _handler(prediction_service_pb2.DESCRIPTOR.services_by_name["PredictionService"], PredictionService(service)),
        _handler(model_service_pb2.DESCRIPTOR.services_by_name["ModelService"], ModelService(service)),
    ]


def _handler(described: Any, methods: PredictionService | ModelService) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(
        described.full_name,
        {
            method.name: grpc.unary_unary_rpc_method_handler(
                _answering(methods.service, getattr(methods, method.name), GetMessageClass(method.input_type)),
                response_serializer=lambda response: response.SerializeToString(),
            )
            for method in described.methods
        },
    )


def _answering(service: Service, method: Method, kind: type[Message]) -> Callable[[bytes, Context], Awaitable[Message]]:
    """Lets a method answer only those who may ask, and turns refusals into gRPC's statuses.

    It reads the message itself, since gRPC answers what is none with UNKNOWN.
    """

    async def answer(content: bytes, context: Context) -> Message:
        try:
            with service.answering("grpc") as asked:
                metadata = dict(context.invocation_metadata() or ())
                service.limits.check_token(metadata.get("authorization"))
                with service.limits.admitted():
                    return await method(_read(content, kind), context, asked)
        except Refusal as refused:
            await context.abort(_CODES[refused.code], _details(refused.message))
            raise  # abort has raised already

    return answer


def _details(message: str) -> str:
    """Cuts a message to what fits: it travels in a header, of 8 KiB at most, where a byte may take three."""
    return message.encode(errors="replace")[:2000].decode(errors="ignore")


def _read(content: bytes, kind: type[Message]) -> Any:
    try:
        return kind.FromString(content)
    except DecodeError:
        name = kind.DESCRIPTOR.full_name
        raise invalid(f"expected a message {name}, got {len(content)} bytes that are none") from None


class PredictionService:
    """Predictions, and the signatures that can be asked.

    Args:
        service: does the work.
    """

    def __init__(self, service: Service) -> None:
        self.service = service

    async def Predict(self, request: Any, context: Context, asked: Asked) -> Any:  # noqa: N802 - gRPC's name
        """Computes the outputs of a signature."""
        target = _target(request)

        def read(signature: Signature) -> Mapping[str, np.ndarray]:
            signature.filtered(list(request.output_filter))
            return arrays_of(request.inputs, signature, self.service.limits.check_rows)

        version, signature, outputs = await self.service.predict(
            target, asked, read, _no_signature, context.time_remaining()
        )
        response = predict_pb2.PredictResponse()
        response.model_spec.name = target.model
        response.model_spec.version.value = version.number
        response.model_spec.signature_name = signature.name
        for name in signature.filtered(list(request.output_filter)):
            fill(response.outputs[name], outputs[name], signature.outputs[name])
        return response

    async def GetModelMetadata(self, request: Any, context: Context, asked: Asked) -> Any:  # noqa: N802
        """Gives the signatures of a version."""
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != _FIELD:
                raise invalid(f"Metadata field {field} is not supported")
        version = self.service.find(_target(request), asked)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, definition in version.servable.definitions.items():
            signatures.signature_def[name].CopyFrom(definition)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = version.number
        response.metadata[_FIELD].Pack(signatures)
        return response

    async def Classify(self, request: Any, context: Context, asked: Asked) -> Any:  # noqa: N802
        """Refuses: the signatures served here are for predictions."""
        raise self.service.refuse_method("classify", _target(request), asked, _no_signature)

    async def Regress(self, request: Any, context: Context, asked: Asked) -> Any:  # noqa: N802
        """Refuses likewise."""
        raise self.service.refuse_method("regress", _target(request), asked, _no_signature)

    async def MultiInference(self, request: Any, context: Context, asked: Asked) -> Any:  # noqa: N802
        """Refuses likewise."""
        raise Refusal(Code.UNIMPLEMENTED, "MultiInference is not supported: ask Predict")


class ModelService:
    """States of versions.

    Args:
        service: does the work.
    """

    def __init__(self, service: Service) -> None:
        self.service = service

    async def GetModelStatus(self, request: Any, context: Context, asked: Asked) -> Any:  # noqa: N802
        """Gives the states of a model's versions."""
        response = get_model_status_pb2.GetModelStatusResponse()
        for version in self.service.status(_target(request), asked):
            found = response.model_version_status.add()
            found.version = version.number
            found.state = int(version.state)
            found.status.error_code = int(version.code)
            found.status.error_message = version.error
        return response

    async def HandleReloadConfigRequest(self, request: Any, context: Context, asked: Asked) -> Any:  # noqa: N802
        """Refuses: what is served is set when the server starts."""
        raise Refusal(Code.UNIMPLEMENTED, "a new configuration is not supported: start the server again")


def _target(request: Any) -> Target:
    spec = request.model_spec
    choice = spec.WhichOneof("version_choice")
    return Target(
        spec.name,
        spec.version.value if choice == "version" else None,
        spec.version_label if choice == "version_label" else None,
        spec.signature_name,
    )


def _no_signature(name: str) -> Refusal:
    return Refusal(Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
