import collections
import sys

import numpy as np
import pytest
import tensorflow as tf

from jobi_tf.errors import MissingExtraError
from jobi_tf.export import export, export_run

apis = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2", reason="needs tensorflow-serving-api")


def test_every_signature_in_three_batches(run, exported):
    known = {tuple(t) for t in run.graph.train.tolist()}
    model = tf.saved_model.load(str(exported.path))
    batches = collections.defaultdict(list)
    for record in tf.data.TFRecordDataset(str(exported.path / "assets.extra" / "tf_serving_warmup_requests")):
        request = apis.PredictionLog.FromString(record.numpy()).predict_log.request
        name = request.model_spec.signature_name
        inputs = {key: tf.constant(tf.make_ndarray(value)) for key, value in request.inputs.items()}
        outputs = model.signatures[name](**inputs)
        batches[name].append({len(x) for x in (*inputs.values(), *outputs.values())})
        if name == "score_ids":
            ids = np.stack([inputs[key].numpy() for key in ("head", "relation", "tail")], 1)
            assert {tuple(x) for x in ids.tolist()} <= known
        elif "known" in outputs:
            assert outputs["known"].numpy().all()
    assert batches == {name: [{1}, {8}, {32}] for name in model.signatures}


def test_without(run, folder):
    assert not (export_run(run, folder, warmup=False).path / "assets.extra").exists()


def test_without_the_extra_nothing_is_begun(run, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    for name in [name for name in sys.modules if name.startswith("tensorflow_serving.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(export, "known_keys", None)
    with pytest.raises(
        MissingExtraError, match=r"pip install 'jobi-tf\[serving\]', or export without them by --no-warmup"
    ):
        export_run(run, folder)
    assert not folder.parent.exists()
