"""gRPC, called by the stubs and messages of tensorflow-serving-api."""

import threading

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests.serving.conftest import running

TRIPLES = [("entity 3", "relation 1", "entity 4"), ("entity 29", "relation 0", "entity 0")]
COLUMNS = dict(zip(("head", "relation", "tail"), map(list, zip(*TRIPLES, strict=True)), strict=True))


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel


@pytest.fixture(scope="module")
def predict(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict


def request(inputs=None, signature="", model="tiny", version=None, label="", outputs=()):
    made = predict_pb2.PredictRequest(output_filter=outputs)
    made.model_spec.name = model
    made.model_spec.signature_name = signature
    if version is not None:
        made.model_spec.version.value = version
    if label:
        made.model_spec.version_label = label
    for name, values in (COLUMNS if inputs is None else inputs).items():
        made.inputs[name].CopyFrom(values if isinstance(values, TensorProto) else tf.make_tensor_proto(values))
    return made


def code(call, *arguments, **options):
    """The status code of a call that fails."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **options)
    assert len(caught.value.details()) < 1100
    return caught.value.code().name


def test_scores_of_the_run(predict, tiny):
    response = predict(request(version=1))
    outputs = {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}
    np.testing.assert_allclose(outputs["score"], tiny[0].score(TRIPLES), rtol=1e-5)
    assert outputs["known"].tolist() == [True, True]
    assert outputs["score"].dtype == np.float32
    assert len(response.outputs["score"].float_val) == 2  # as TensorFlow Serving sends them
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("tiny", 1, "serving_default")


def test_best_tails_and_embeddings(predict, tiny):
    run = tiny[0]
    inputs = {"head": ["entity 3", "nobody"], "relation": ["relation 1"] * 2, "k": [5, 5]}
    outputs = predict(request(inputs, "predict_tails")).outputs
    best = run.tails("entity 3", "relation 1", 5)
    assert tf.make_ndarray(outputs["tail"]).tolist() == [[answer.entity.encode() for answer in best], [b""] * 5]
    assert tf.make_ndarray(outputs["seen"])[0].tolist() == [answer.known for answer in best]
    assert list(outputs["known"].bool_val) == [True, False]
    outputs = predict(request({"entity": ["entity 2"]}, "embed")).outputs
    np.testing.assert_allclose(tf.make_ndarray(outputs["embedding"]), run.model.entities.table.numpy()[2:3])


def test_output_filter(predict):
    found = predict(request(outputs=["score", "score"])).outputs
    assert {key: tf.make_ndarray(x).shape for key, x in found.items()} == {"score": (2,)}
    assert set(predict(request()).outputs) == {"score", "probability", "known"}
    assert code(predict, request(outputs=["x"])) == "INVALID_ARGUMENT"


def test_tensors_of_every_form(odd_server):
    """Values as bytes, by value, or one value for all that follow it."""
    echo = {
        "decimals": tf.make_tensor_proto(np.arange(6, dtype=np.float32).reshape(3, 2)),
        "integers": tf.make_tensor_proto(np.array([2**40, -1, 0])),
        "truths": TensorProto(dtype=tf.bool.as_datatype_enum, bool_val=[False, True]),
        "texts": tf.make_tensor_proto(["a", "ü", ""]),
    }
    assert echo["decimals"].tensor_content
    echo["truths"].tensor_shape.dim.add().size = 3
    with grpc.insecure_channel(odd_server.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        found = stub.Predict(request(echo, model="odd")).outputs
    outputs = {name: tf.make_ndarray(tensor) for name, tensor in found.items()}
    assert outputs["decimals"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert outputs["integers"].tolist() == [2**40, -1, 0]
    assert outputs["truths"].tolist() == [False, True, True]
    assert outputs["text_bytes"].tolist() == [b"a", "ü".encode(), b""]


def tensor(*sizes, unknown=False, kind=tf.string, **fields):
    made = TensorProto(dtype=kind.as_datatype_enum, **fields)
    made.tensor_shape.unknown_rank = unknown
    for size in sizes:
        made.tensor_shape.dim.add().size = size
    return made


@pytest.mark.parametrize(
    "change",
    [
        {"head": None},
        {"x": ["a", "b"]},
        {"head": None, "語" * 5000: ["a", "b"]},
        {"head": [1, 2]},
        {"head": [["a"], ["b"]]},
        {"head": ["a"]},
        {"head": tensor(2**40, string_val=[b"a"])},
        {"head": tensor(-1)},
        {"head": tensor(unknown=True)},
        {"head": tensor(1, string_val=[b"a", b"b"])},
        {"head": tensor(2, tensor_content=b"\xff")},
        {"head": tensor(1, kind=tf.int32, tensor_content=b"123")},
        {"head": TensorProto(dtype=99)},
    ],
)
def test_rejected_inputs(predict, change):
    inputs = {name: values for name, values in (COLUMNS | change).items() if values is not None}
    assert code(predict, request(inputs)) == "INVALID_ARGUMENT"


def test_an_error_names_the_type(predict):
    with pytest.raises(grpc.RpcError, match="DT_INT32"):
        predict(request(COLUMNS | {"head": [1, 2]}))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"model": "nobody"}, "NOT_FOUND"),
        ({"model": ""}, "NOT_FOUND"),
        ({"version": 9}, "NOT_FOUND"),
        ({"label": "stable"}, "INVALID_ARGUMENT"),
        ({"signature": "x"}, "FAILED_PRECONDITION"),
        ({"signature": "語" * 5000}, "FAILED_PRECONDITION"),
    ],
)
def test_what_is_not_there(predict, options, expected):
    assert code(predict, request(**options)) == expected


@pytest.mark.parametrize("method", ["PredictionService/Predict", "ModelService/GetModelStatus"])
def test_bytes_that_are_no_message(channel, method):
    assert code(channel.unary_unary(f"/tensorflow.serving.{method}"), b"\xff" * 7) == "INVALID_ARGUMENT"


def test_a_message_that_is_too_large(predict):
    assert code(predict, request({"entity": ["x" * 100_000]}, "embed")) == "RESOURCE_EXHAUSTED"


def test_a_call_without_a_message(channel):
    call = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
    assert code(call, iter(())) == "INVALID_ARGUMENT"


def test_the_time_that_the_client_allows(odd, release):
    body = request({"x": tf.make_tensor_proto([0.4], tf.float32)}, "count", "odd")
    with running(odd) as server, grpc.insecure_channel(server.grpc) as channel:
        predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
        assert code(predict, body, timeout=0.1) == "DEADLINE_EXCEEDED"
        release.set()
        assert predict(body).outputs["x"].float_val == pytest.approx([0.4])


def test_metadata(channel):
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    described = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    described.model_spec.name = "tiny"
    response = stub.GetModelMetadata(described)
    assert response.model_spec.version.value == 1
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert signatures.signature_def["embed"].inputs["entity"].dtype == tf.string.as_datatype_enum
    described.metadata_field[:] = []
    assert code(stub.GetModelMetadata, described) == "INVALID_ARGUMENT"


def test_status(channel):
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    sent = get_model_status_pb2.GetModelStatusRequest()
    sent.model_spec.name = "tiny"
    available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
    found = [(x.version, x.state, x.status.error_code) for x in stub.GetModelStatus(sent).model_version_status]
    assert found == [(1, available, 0)]
    sent.model_spec.version.value = 9
    assert code(stub.GetModelStatus, sent) == "NOT_FOUND"


def test_methods_that_are_not_supported(channel):
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    assert code(stub.Classify, classification_pb2.ClassificationRequest()) == "UNIMPLEMENTED"
    reload = model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest
    assert code(reload, model_management_pb2.ReloadConfigRequest()) == "UNIMPLEMENTED"
    assert code(channel.unary_unary("/tensorflow.serving.PredictionService/None"), b"") == "UNIMPLEMENTED"


def test_health(channel):
    serving = health_pb2.HealthCheckResponse.SERVING
    assert health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest()).status == serving


def test_calls_whose_message_does_not_come(odd_server):
    """More of them than requests may be computed at a time; they end by a time-out."""
    ended = threading.Event()

    def silence():
        ended.wait(20)
        yield from ()

    with grpc.insecure_channel(odd_server.grpc) as channel:
        call = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
        slow = [call.future(silence()) for _ in range(12)]
        predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
        body = request({"x": tf.make_tensor_proto([0.0], tf.float32)}, "count", "odd")
        assert predict(body).outputs["rows"].int_val == [1]
        assert {one.exception().code().name for one in slow} == {"DEADLINE_EXCEEDED"}
        ended.set()
