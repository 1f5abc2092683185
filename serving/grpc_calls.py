"""TensorFlow Serving's gRPC protocol, as a client speaks it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from jobi_tf.errors import DataError, JobiError, MissingExtraError

from . import wire_pb2 as wire
from . import wire_tensors
from .address import Address, Model, VersionStatus
from .refusals import late, plain, token_expected
from .retrying import PassingError


class GrpcCalls:
    """Requests over one gRPC channel."""

    def __init__(self, address: Address):
        try:
            import grpc
        except ImportError as error:
            raise MissingExtraError(f"{address.scheme}:// needs grpcio: pip install 'jobi-tf[client]'") from error
        self._grpc = grpc
        self._address = address
        self._metadata = [("authorization", f"Bearer {address.token}")] if address.token else []
        # A client that asks again must not meet a channel that still waits before it connects again.
        waits = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)]
        options = [("grpc.max_receive_message_length", -1), *waits]
        if address.scheme == "grpc":
            self._channel = grpc.insecure_channel(address.target, options)
        else:
            credentials = grpc.ssl_channel_credentials(address.certificates)
            self._channel = grpc.secure_channel(address.target, credentials, options)
        self._predict = self._method("PredictionService/Predict", wire.PredictResponse.FromString)
        self._describe = self._method("PredictionService/GetModelMetadata", wire.GetModelMetadataResponse.FromString)
        self._status = self._method("ModelService/GetModelStatus", wire.GetModelStatusResponse.FromString)

    def predict(
        self, model: Model, signature: str, inputs: Mapping[str, list[str]], seconds: float
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature, for inputs of strings [N]."""
        request = wire.PredictRequest(model_spec=_spec(model, signature))
        for name, strings in inputs.items():
            request.inputs[name].CopyFrom(wire_tensors.of_strings(strings))
        outputs = self._call(self._predict, request, seconds).outputs
        return {name: wire_tensors.to_array(tensor) for name, tensor in outputs.items()}

    def status(self, model: Model, seconds: float) -> list[VersionStatus]:
        """Returns the states of the model's versions."""
        reply = self._call(self._status, wire.GetModelStatusRequest(model_spec=_spec(model)), seconds)
        return [
            VersionStatus(one.version, wire.ModelVersionStatus.State.Name(one.state), one.status.error_message)
            for one in reply.model_version_status
        ]

    def shapes(self, model: Model, seconds: float) -> dict[str, dict[str, list[int]]]:
        """Returns for each signature the shape of each output, -1 being open."""
        request = wire.GetModelMetadataRequest(model_spec=_spec(model), metadata_field=["signature_def"])
        packed = self._call(self._describe, request, seconds).metadata["signature_def"]
        signatures = wire.SignatureDefMap.FromString(packed.value).signature_def
        return {
            name: {key: [dim.size for dim in info.tensor_shape.dim] for key, info in signature.outputs.items()}
            for name, signature in signatures.items()
        }

    def models(self, seconds: float) -> list[str]:
        """Returns no names: the protocol has no such question."""
        return []

    def close(self) -> None:
        """Closes the channel."""
        self._channel.close()

    def _method(self, name: str, read: Callable[[bytes], Any]) -> Callable[..., Any]:
        return self._channel.unary_unary(
            f"/tensorflow.serving.{name}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=read,
        )

    def _call(self, method: Callable[..., Any], request: Any, seconds: float) -> Any:
        try:
            return method(request, timeout=max(seconds, 0.001), metadata=self._metadata)
        except self._grpc.RpcError as error:
            raise self._explained(error.code(), plain(error.details() or "")) from None
        except DecodeError as error:
            raise JobiError(f"expected a TensorFlow Serving answer from {self._address.url}: {error}") from None

    def _explained(self, code: Any, details: str) -> JobiError:
        codes, url = self._grpc.StatusCode, self._address.url
        if code in (codes.UNAVAILABLE, codes.CANCELLED):  # nobody else cancels: the server is ending
            return PassingError(f"cannot reach {url}: {details}")
        if code == codes.RESOURCE_EXHAUSTED and "larger than max" not in details:
            return PassingError(f"{url} is too busy: {details}")
        if code == codes.DEADLINE_EXCEEDED:
            return late(self._address)
        if code == codes.UNAUTHENTICATED:
            return token_expected(self._address)
        if code == codes.INVALID_ARGUMENT:
            return DataError(details)
        return JobiError(f"{url} answered {code.name}: {details}")


def _spec(model: Model, signature: str = "") -> wire.ModelSpec:
    spec = wire.ModelSpec(name=model.name, signature_name=signature)
    if model.version is not None:
        spec.version.value = model.version
    if model.label is not None:
        spec.version_label = model.label
    return spec
