import collections
import sys

import numpy as np
import pytest
import tensorflow as tf

from jobi_tf.export import export_run


def test_every_signature_in_three_batches(run, exported):
    apis = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2", reason="needs tensorflow-serving-api")
    known = {tuple(t) for t in run.graph.train.tolist()}
    model = tf.saved_model.load(str(exported.path))
    batches = collections.defaultdict(list)
    for record in tf.data.TFRecordDataset(str(exported.path / "assets.extra" / "tf_serving_warmup_requests")):
        request = apis.PredictionLog.FromString(record.numpy()).predict_log.request
        name = request.model_spec.signature_name
        inputs = {key: tf.constant(tf.make_ndarray(value)) for key, value in request.inputs.items()}
        outputs = model.signatures[name](**inputs)
        batches[name].append({len(x) for x in (*inputs.values(), *outputs.values())})
        assert outputs["known"].numpy().all()
        if name == "score_ids":
            ids = np.stack([inputs[key].numpy() for key in ("head", "relation", "tail")], 1)
            assert {tuple(x) for x in ids.tolist()} <= known
    assert batches == {name: [{1}, {8}, {32}] for name in model.signatures}


@pytest.mark.parametrize("installed", [True, False])
def test_without(run, folder, monkeypatch, recwarn, installed):
    if not installed:
        for name in [name for name in sys.modules if name.split(".")[0] == "tensorflow_serving"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    path = export_run(run, folder, warmup=not installed).path
    assert not (path / "assets.extra").exists()
    assert (path / "saved_model.pb").is_file()
    assert any("jobi-tf[serving]" in str(warning.message) for warning in recwarn) == (not installed)
