"""The client's messages are those of TensorFlow Serving, byte for byte."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import descriptor_pb2

from jobi_tf.errors import JobiError
from jobi_tf.serving import wire_pb2 as wire
from jobi_tf.serving import wire_tensors

HOMES = {
    "tensorflow.core.framework.tensor_pb2": ("TensorProto",),
    "tensorflow.core.framework.tensor_shape_pb2": ("TensorShapeProto",),
    "tensorflow.core.framework.types_pb2": ("DataType",),
    "tensorflow.core.protobuf.error_codes_pb2": ("Code",),
    "tensorflow.core.protobuf.meta_graph_pb2": ("SignatureDef", "TensorInfo"),
    "tensorflow_serving.apis.get_model_metadata_pb2": (
        "GetModelMetadataRequest",
        "GetModelMetadataResponse",
        "SignatureDefMap",
    ),
    "tensorflow_serving.apis.get_model_status_pb2": (
        "GetModelStatusRequest",
        "GetModelStatusResponse",
        "ModelVersionStatus",
    ),
    "tensorflow_serving.apis.model_pb2": ("ModelSpec",),
    "tensorflow_serving.apis.predict_pb2": ("PredictRequest", "PredictResponse"),
    "tensorflow_serving.apis.status_pb2": ("StatusProto",),
}
FIELDS = {"float32": "float_val", "int32": "int_val", "int64": "int64_val", "bool": "bool_val"}
PLACES = [(name, home) for home, names in HOMES.items() for name in names]


def kind(name: str) -> str:
    """A type by its last name, as the packages differ; types of protobuf itself are the same."""
    return name if name.startswith("google.") else name.rsplit(".", 1)[-1]


def fields(message) -> dict[str, tuple]:
    return {
        field.name: (
            field.number,
            field.type,
            field.is_repeated,
            field.is_packed,
            field.message_type and kind(field.message_type.full_name),
            field.enum_type and kind(field.enum_type.full_name),
            field.containing_oneof and field.containing_oneof.name,
        )
        for field in message.fields
    }


def same(ours, theirs) -> int:
    """Compares all fields of ours with theirs, within nested messages as well; returns how many there are."""
    mine, original = fields(ours), fields(theirs)
    assert mine == {name: original.get(name) for name in mine}
    count = len(mine)
    for nested in ours.nested_types:
        count += same(nested, theirs.nested_types_by_name[nested.name])
    for enum in ours.enum_types:
        values = enum.values_by_name
        assert {name: value.number for name, value in values.items()} == {
            name: theirs.enum_types_by_name[enum.name].values_by_name[name].number for name in values
        }
    return count


@pytest.mark.parametrize(("name", "home"), PLACES)
def test_fields_are_the_originals(name, home):
    ours, theirs = wire.DESCRIPTOR, getattr(import_module(home), name).DESCRIPTOR
    if name in ours.enum_types_by_name:
        values = ours.enum_types_by_name[name].values_by_name
        assert len(values) > 0
        assert {x.name: x.number for x in values.values()} == {x: theirs.values_by_name[x].number for x in values}
    else:
        assert same(ours.message_types_by_name[name], theirs) > 0


def test_the_code_is_that_of_the_description(tmp_path):
    built = tmp_path / "wire"
    options = [f"-Ijobi_tf/serving={Path(wire.__file__).parent}", f"--descriptor_set_out={built}"]
    command = [sys.executable, "-m", "grpc_tools.protoc", *options, "jobi_tf/serving/wire.proto"]
    subprocess.run(command, check=True)
    compiled = descriptor_pb2.FileDescriptorSet.FromString(built.read_bytes()).file[0]
    for message in compiled.message_type:
        leave_out_json_names(message)  # which the compiler adds for others
    committed = descriptor_pb2.FileDescriptorProto()
    wire.DESCRIPTOR.CopyToProto(committed)
    assert compiled == committed


def leave_out_json_names(message) -> None:
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        leave_out_json_names(nested)


def test_every_message_is_compared():
    assert {*wire.DESCRIPTOR.message_types_by_name, *wire.DESCRIPTOR.enum_types_by_name} == {x for x, _ in PLACES}


@pytest.mark.parametrize(
    "values",
    [
        np.array([[1.5, -3.4028235e38], [0, 1e-30]], np.float32),
        np.array([1.5], np.float32),
        np.array([-(2**31), 7], np.int32),
        np.array([-(2**63), 7], np.int64),
        np.array([[True], [False]]),
        np.array([["Zürich", ""]], object),
        np.zeros((0, 3), np.float32),
        np.full((2, 3), 7, np.float32),
    ],
    ids=lambda values: f"{values.dtype} {values.shape}",
)
def test_tensors_of_tensorflow_are_read(values):
    import tensorflow as tf

    forms = [tf.make_tensor_proto(values)]
    if values.dtype != object:
        field = FIELDS[values.dtype.name]
        forms.append(tf.make_tensor_proto(values))
        forms[1].ClearField("tensor_content")
        forms[1].ClearField(field)
        getattr(forms[1], field).extend(values.ravel().tolist())
    for form in forms:
        got = wire_tensors.to_array(wire.TensorProto.FromString(form.SerializeToString()))
        assert got.dtype == values.dtype
        np.testing.assert_array_equal(got, values)


def test_one_value_stands_for_all():
    shape = wire.TensorShapeProto(dim=[wire.TensorShapeProto.Dim(size=2), wire.TensorShapeProto.Dim(size=2)])
    tensor = wire.TensorProto(dtype=wire.DT_FLOAT, tensor_shape=shape, float_val=[1, 2])
    assert wire_tensors.to_array(tensor).tolist() == [[1, 2], [2, 2]]


def test_strings_are_sent_as_tensorflow_reads_them():
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2

    tensor = tensor_pb2.TensorProto.FromString(wire_tensors.of_strings(["Zürich", ""]).SerializeToString())
    assert tf.make_ndarray(tensor).tolist() == ["Zürich".encode(), b""]


def test_broken_tensors():
    shape = wire.TensorShapeProto(dim=[wire.TensorShapeProto.Dim(size=2)])
    for tensor, words in (
        (wire.TensorProto(dtype=wire.DT_FLOAT, tensor_shape=shape, float_val=[1, 2, 3]), "whole tensor of shape"),
        (wire.TensorProto(dtype=wire.DT_FLOAT, tensor_shape=shape, tensor_content=b"123"), "whole tensor of shape"),
        (wire.TensorProto(dtype=wire.DT_FLOAT, tensor_shape=shape), "whole tensor of shape"),
        (wire.TensorProto(dtype=wire.DT_STRING, tensor_shape=shape, string_val=[b"\xff"] * 2), "whole tensor of shape"),
        (wire.TensorProto(dtype=99, tensor_shape=shape), "expected a tensor of floats, integers"),
    ):
        with pytest.raises(JobiError, match=words):
            wire_tensors.to_array(tensor)


def test_the_slow_protobuf_reads_it_too():
    code = (
        "from jobi_tf.serving import wire_pb2, wire_tensors; import google.protobuf.internal.api_implementation as a; "
        "tensor = wire_pb2.TensorProto.FromString(wire_tensors.of_strings(['a', 'b']).SerializeToString()); "
        "print(a.Type(), wire_tensors.to_array(tensor).tolist())"
    )
    environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "python ['a', 'b']\n"
