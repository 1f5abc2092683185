"""Requests that a server computes before it accepts others, so that the first one is not slow."""

from pathlib import Path

import tensorflow as tf

from jobi_tf.export.contract import Requests
from jobi_tf.export.servable import INPUTS

BATCHES = (1, 8, 32)


def write_warmup(folder: Path, requests: Requests) -> None:
    """Writes `assets.extra/tf_serving_warmup_requests`: each signature in batches of 1, 8 and 32.

    Args:
        folder: the version's folder.
        requests: for each signature values of its inputs, as many for each; repeated to fill a batch.

    Raises:
        ImportError: `tensorflow-serving-api` is not installed; nothing is written.
    """
    from tensorflow_serving.apis.predict_pb2 import PredictRequest
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog, PredictLog

    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in requests.items():
            for batch in BATCHES:
                request = PredictRequest()
                request.model_spec.signature_name = signature
                for name, values in inputs.items():
                    rows = [values[i % len(values)] for i in range(batch)]
                    request.inputs[name].CopyFrom(tf.make_tensor_proto(rows, INPUTS[signature][name]))
                log = PredictionLog(predict_log=PredictLog(request=request))
                writer.write(log.SerializeToString())
