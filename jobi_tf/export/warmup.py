"""Requests that a server computes before it accepts others, so that the first one is not slow."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

BATCHES = (1, 8, 32)

Examples = Mapping[str, Mapping[str, Sequence[Any]]]


def write_warmup(folder: Path, examples: Examples, inputs: Mapping[str, Mapping[str, tf.TensorSpec]]) -> None:
    """Writes `assets.extra/tf_serving_warmup_requests`: each signature in batches of 1, 8 and 32.

    Args:
        folder: the version's folder.
        examples: for each signature values of its inputs, as many for each; repeated to fill a batch.
        inputs: for each signature its inputs by name.

    Raises:
        ImportError: `tensorflow-serving-api` is not installed; nothing is written.
    """
    from tensorflow_serving.apis.predict_pb2 import PredictRequest
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog, PredictLog

    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, example in examples.items():
            for batch in BATCHES:
                request = PredictRequest()
                request.model_spec.signature_name = signature
                for name, values in example.items():
                    rows = [values[i % len(values)] for i in range(batch)]
                    request.inputs[name].CopyFrom(tf.make_tensor_proto(rows, inputs[signature][name].dtype))
                log = PredictionLog(predict_log=PredictLog(request=request))
                writer.write(log.SerializeToString())
