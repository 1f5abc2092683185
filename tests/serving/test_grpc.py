"""gRPC, asked by the stubs and messages of tensorflow-serving-api."""

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

TRIPLES = [("entity 3", "relation 1", "entity 4"), ("entity 29", "relation 0", "entity 0")]
NAMELESS = "ModelSpec has no name specified. Expected the name of a model that is served: tiny, odd"
COLUMNS = dict(zip(("head", "relation", "tail"), map(list, zip(*TRIPLES, strict=True)), strict=True))


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel


@pytest.fixture(scope="module")
def predict(channel):
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    return lambda request, **options: stub.Predict(request, timeout=20, **options)


def request(inputs=None, signature="", model="tiny", version=None, label=None, outputs=()):
    made = predict_pb2.PredictRequest(output_filter=outputs)
    made.model_spec.name = model
    made.model_spec.signature_name = signature
    if version is not None:
        made.model_spec.version.value = version
    if label is not None:
        made.model_spec.version_label = label
    for name, values in (COLUMNS if inputs is None else inputs).items():
        tensor = values if isinstance(values, TensorProto) else tf.make_tensor_proto(values)
        made.inputs[name].CopyFrom(tensor)
    return made


def refused(call, *arguments):
    """The status code and details of a call that fails."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments)
    return caught.value.code().name, caught.value.details()


def test_scores_of_the_run(predict, tiny):
    run, _ = tiny
    response = predict(request(version=1))
    outputs = {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}
    np.testing.assert_allclose(outputs["score"], run.score(TRIPLES), rtol=1e-5)
    assert outputs["known"].tolist() == [True, True]
    assert outputs["score"].dtype == np.float32
    assert len(response.outputs["score"].float_val) == 2  # as TensorFlow Serving sends them
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("tiny", 1, "serving_default")


def test_version_and_label(predict):
    assert predict(request()).model_spec.version.value == 2
    assert predict(request(version=1)).model_spec.version.value == 1
    assert predict(request(label="stable")).model_spec.version.value == 1


def test_best_tails_and_embeddings(predict, tiny):
    run, _ = tiny
    inputs = {"head": ["entity 3"], "relation": ["relation 1"]}
    outputs = predict(request(inputs, "predict_tails", version=1)).outputs
    best = run.tails("entity 3", "relation 1", 5)
    assert tf.make_ndarray(outputs["tail"]).tolist() == [[answer.entity.encode() for answer in best]]
    assert tf.make_ndarray(outputs["seen"]).tolist() == [[answer.known for answer in best]]
    outputs = predict(request({"entity": ["entity 2"]}, "embed", version=1)).outputs
    np.testing.assert_allclose(tf.make_ndarray(outputs["embedding"]), run.model.entity.numpy()[2:3])


def test_only_the_outputs_that_are_asked_for(predict):
    assert set(predict(request(outputs=["score"])).outputs) == {"score"}
    assert set(predict(request()).outputs) == {"score", "probability", "known"}
    assert refused(predict, request(outputs=["x"])) == (
        "INVALID_ARGUMENT",
        "output tensor alias not found in signature: x Outputs expected to be in the set {known,probability,score}.",
    )
    assert refused(predict, request(outputs=["score", "score"])) == (
        "INVALID_ARGUMENT",
        "duplicate output tensor alias: score",
    )


def test_tensors_of_every_make(predict):
    """In one piece, with their lengths, or with one value for all that follow."""
    echo = {
        "decimals": tf.make_tensor_proto(np.arange(6, dtype=np.float32).reshape(3, 2)),
        "integers": tf.make_tensor_proto(np.array([2**40, -1, 0])),
        "truths": TensorProto(dtype=tf.bool.as_datatype_enum),
        "texts": TensorProto(dtype=tf.string.as_datatype_enum, tensor_content=b"\x01\x02\x00abb"),
    }
    assert echo["decimals"].tensor_content
    assert echo["integers"].tensor_content
    echo["truths"].bool_val[:] = [False, True]
    for name in ("truths", "texts"):
        echo[name].tensor_shape.dim.add().size = 3
    outputs = {name: tf.make_ndarray(tensor) for name, tensor in predict(request(echo, model="odd")).outputs.items()}
    assert outputs["decimals"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert outputs["integers"].tolist() == [2**40, -1, 0]
    assert outputs["truths"].tolist() == [False, True, True]
    assert outputs["text_bytes"].tolist() == [b"a", b"bb", b""]


def tensor(*sizes, unknown=False, kind=tf.string, **fields):
    made = TensorProto(dtype=kind.as_datatype_enum, **fields)
    made.tensor_shape.unknown_rank = unknown
    for size in sizes:
        made.tensor_shape.dim.add().size = size
    return made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head": None}, "input size does not match signature: 2!=3 len({relation,tail}) != len({head,relation,tail}). "
         "Sent extra: {}. Missing but required: {head}."),
        ({"x": ["a", "b"]}, "input size does not match signature: 4!=3 len({head,relation,tail,x}) != "
         "len({head,relation,tail}). Sent extra: {x}. Missing but required: {}."),
        ({"head": None, "x": ["a", "b"]}, "input tensor alias not found in signature: x. Inputs expected to be in the "
         "set {head,relation,tail}."),
        ({"head": [1, 2]}, 'expected string [?] for input "head", got int32 [2]'),
        ({"head": [["a"], ["b"]]}, 'expected string [?] for input "head", got string [2,1]'),
        ({"head": ["a"]}, "Batching session Run() input tensors must have equal 0th-dimension size"),
        ({"head": tensor(2**40, string_val=[b"a"])}, f"expected at most 100 rows in a request, got {2**40}"),
        ({"head": tensor(-1)}, "tensor parsing error: head"),
        ({"head": tensor(unknown=True)}, "tensor parsing error: head"),
        ({"head": tensor(1, string_val=[b"a", b"b"])}, "tensor parsing error: head"),
        ({"head": tensor(2, tensor_content=b"\xff")}, "tensor parsing error: head"),
        ({"head": TensorProto(dtype=99)}, 'expected string [?] for input "head", got type 99 []'),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit(predict, change, message):
    inputs = {name: values for name, values in (COLUMNS | change).items() if values is not None}
    assert refused(predict, request(inputs)) == ("INVALID_ARGUMENT", message)


def test_content_that_does_not_fit(predict):
    inputs = {"head": tensor(1, kind=tf.int32, tensor_content=b"123"), "relation": [0], "tail": [0]}
    assert refused(predict, request(inputs, "score_ids")) == ("INVALID_ARGUMENT", "tensor parsing error: head")
    code, details = refused(predict, request({"head": [30], "relation": [0], "tail": [0]}, "score_ids"))
    assert code == "INVALID_ARGUMENT"
    assert "30" in details
    assert "\n" not in details


def test_unknown_names(predict):
    inputs = {"head": ["nobody"], "relation": ["relation 1"]}
    assert predict(request(inputs | {"tail": ["entity 1"]})).outputs["known"].bool_val == [False]
    code, details = refused(predict, request(inputs, "predict_tails"))
    assert code == "INVALID_ARGUMENT"
    assert "nobody" in details
    assert "[[" not in details


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("/m/0a/b.c", "/m/0a/b.c"),
        ("[x:y", "[x:y"),  # TensorFlow's session takes it for the name of a node
        ("{{node Assert/Assert}}", "{{node Assert/Assert}}"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("Traceback\n a", r"Traceback\n a"),
        ("語" * 5000, "語" * 300),
    ],
)
def test_unknown_names_that_look_odd(predict, name, quoted):
    code, details = refused(predict, request({"head": [name], "relation": ["relation 1"]}, "predict_tails"))
    assert code == "INVALID_ARGUMENT"
    assert details.startswith(f"assertion failed: [unknown entity:] [{quoted}")
    assert "[[{{" not in details
    assert len(details) < 1100


def test_long_names_are_cut(predict):
    assert len(refused(predict, request(signature="語" * 5000))[1]) < 1100
    assert len(refused(predict, request(COLUMNS | {"語" * 5000: ["a"]}))[1]) < 1100


@pytest.mark.parametrize(
    ("options", "code", "details"),
    [
        ({"model": "nobody"}, "NOT_FOUND", "Servable not found for request: Latest(nobody)"),
        ({"model": "nobody", "version": 3}, "NOT_FOUND", "Servable not found for request: Specific(nobody, 3)"),
        ({"model": ""}, "INVALID_ARGUMENT", NAMELESS),
        ({"version": 9}, "NOT_FOUND", "Servable not found for request: Specific(tiny, 9)"),
        ({"label": "x"}, "INVALID_ARGUMENT", "Unrecognized servable version label: x"),
        ({"signature": "x"}, "FAILED_PRECONDITION", 'Serving signature key "x" not found.'),
    ],
)
def test_what_is_not_there(predict, options, code, details):
    assert refused(predict, request(**options)) == (code, details)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("PredictionService/Predict", "PredictRequest"),
        ("PredictionService/GetModelMetadata", "GetModelMetadataRequest"),
        ("ModelService/GetModelStatus", "GetModelStatusRequest"),
    ],
)
def test_bytes_that_are_no_message(channel, method, kind):
    assert refused(channel.unary_unary(f"/tensorflow.serving.{method}"), b"\xff" * 7) == (
        "INVALID_ARGUMENT",
        f"expected a message tensorflow.serving.{kind}, got 7 bytes that are none",
    )


def test_too_large_a_message(predict):
    code, details = refused(predict, request({"entity": ["x" * 100_000]}, "embed"))
    assert code == "RESOURCE_EXHAUSTED"
    assert "larger than max" in details


def test_the_time_that_the_caller_gives(predict):
    body = request({"seconds": tf.make_tensor_proto([0.4], tf.float32)}, "wait", "odd")
    with pytest.raises(grpc.RpcError) as caught:
        predict.__closure__[0].cell_contents.Predict(body, timeout=0.1)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert predict(body).outputs["seconds"].float_val == pytest.approx([0.4])


def test_metadata(channel):
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    asked = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    asked.model_spec.name = "tiny"
    response = stub.GetModelMetadata(asked)
    assert response.model_spec.version.value == 2
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert signatures.signature_def["embed"].inputs["entity"].dtype == tf.string.as_datatype_enum
    asked.ClearField("model_spec")
    assert refused(stub.GetModelMetadata, asked) == ("INVALID_ARGUMENT", NAMELESS)
    none = get_model_metadata_pb2.GetModelMetadataRequest()
    none.model_spec.name = "tiny"
    assert refused(stub.GetModelMetadata, none) == (
        "INVALID_ARGUMENT",
        "GetModelMetadataRequest must specify at least one metadata_field",
    )
    none.metadata_field.append("x")
    assert refused(stub.GetModelMetadata, none) == ("INVALID_ARGUMENT", "Metadata field x is not supported")


def test_status(channel):
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    asked = get_model_status_pb2.GetModelStatusRequest()
    assert refused(stub.GetModelStatus, asked) == ("INVALID_ARGUMENT", NAMELESS)
    asked.model_spec.name = "tiny"
    available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
    found = [(one.version, one.state, one.status.error_code) for one in stub.GetModelStatus(asked).model_version_status]
    assert found == [(2, available, 0), (1, available, 0)]
    asked.model_spec.version.value = 9
    assert refused(stub.GetModelStatus, asked) == ("NOT_FOUND", "Could not find version 9 of model tiny")


def test_methods_for_other_models(channel):
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    classify = classification_pb2.ClassificationRequest()
    classify.model_spec.name = "tiny"
    assert refused(stub.Classify, classify) == (
        "INVALID_ARGUMENT",
        "Expected classification signature method_name to be tensorflow/serving/classify. "
        "Was: tensorflow/serving/predict",
    )
    regress = regression_pb2.RegressionRequest()
    regress.model_spec.name = "nobody"
    assert refused(stub.Regress, regress)[0] == "NOT_FOUND"
    assert refused(stub.MultiInference, inference_pb2.MultiInferenceRequest())[0] == "UNIMPLEMENTED"
    reload = model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest
    assert refused(reload, model_management_pb2.ReloadConfigRequest())[0] == "UNIMPLEMENTED"
