import collections

import numpy as np
import pytest
import tensorflow as tf


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
