"""One loaded version of a model."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from jobi_tf.errors import DataError

from .errors import Refusal, clean, invalid, refusal
from .grpc_tensors import arrays_of
from .signature import Signature, signature_of

WARMUP = Path("assets.extra") / "tf_serving_warmup_requests"
_TAG = "serve"
_SERVED = "tensorflow/serving/"  # before the names of its methods


class Servable:
    """A SavedModel in memory.

    Args:
        folder: the version's folder.

    Attributes:
        signatures: what it can be asked, by name.
        definitions: the same as `SignatureDef` messages, with those that serve only loading.

    Raises:
        DataError: the folder holds no SavedModel that can be loaded and asked.
    """

    def __init__(self, folder: Path) -> None:
        self.definitions = _definitions(folder)
        self._folder = folder
        graph = tf.Graph()
        # A session, as in TensorFlow Serving: it answers in half the time that `tf.saved_model.load` takes.
        self._session = tf.compat.v1.Session(graph=graph, config=_config())
        try:
            with graph.as_default(), _quiet():
                tf.compat.v1.saved_model.load(self._session, [_TAG], str(folder))
            self.signatures: dict[str, Signature] = {
                name: signature_of(name, definition)
                for name, definition in self.definitions.items()
                if definition.method_name.startswith(_SERVED)
            }
            self._functions = {name: self._function(signature) for name, signature in self.signatures.items()}
        except Exception as error:  # whatever a damaged file makes TensorFlow say
            self._session.close()
            raise DataError(f"expected a SavedModel in {folder}, which cannot be loaded: {_first(error)}") from error

    def _function(self, signature: Signature) -> Callable[..., list[np.ndarray]]:
        """What computes a signature's outputs, in order, from its inputs, in order."""
        tensors = [[spec.tensor for spec in specs.values()] for specs in (signature.outputs, signature.inputs)]
        return self._session.make_callable(*tensors)

    def predict(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Computes all outputs of a signature.

        Args:
            signature: its name.
            inputs: arrays that `Signature.check` has let pass; strings as bytes in object arrays.

        Raises:
            Refusal: the model refuses them, say for an unknown name.
        """
        made = self.signatures[signature]
        try:
            outputs = self._functions[signature](*[inputs[name] for name in made.inputs])
            return dict(zip(made.outputs, outputs, strict=True))
        except UnicodeDecodeError as error:  # the message quotes a string of the request that is no text
            raise invalid(clean(error.object.decode(errors="replace"))) from error
        except (tf.errors.OpError, ValueError, TypeError) as error:
            # The session looks for names of nodes in the message, where it may find a string of the request instead.
            cause = error.__context__
            raise refusal(cause if isinstance(cause, tf.errors.OpError) else error) from error

    def warm_up(self) -> int:
        """Computes the warm-up requests of the export; returns how many there were.

        Raises:
            DataError: they cannot be read, or one fails.
        """
        from tensorflow_serving.apis import prediction_log_pb2

        path = self._folder / WARMUP
        if not path.is_file():
            return 0
        count = 0
        try:
            for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
                request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
                signature = self.signatures[request.model_spec.signature_name or "serving_default"]
                inputs = arrays_of(request.inputs, signature)
                signature.check(inputs)
                self.predict(signature.name, inputs)
                count += 1
        except (tf.errors.OpError, DecodeError, KeyError, Refusal) as error:
            raise DataError(f"expected warm-up requests in {path} that the model answers: {_first(error)}") from error
        return count

    def free(self) -> None:
        """Gives the memory back; the servable cannot be asked any more."""
        self._functions.clear()
        self._session.close()
        del self._session
        gc.collect()  # the parts of a graph hold each other


def _config() -> tf.compat.v1.ConfigProto:
    """One request is computed in one thread, but for large products: handing operations to others takes longer."""
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=-1)
    config.gpu_options.allow_growth = True
    return config


@contextmanager
def _quiet() -> Iterator[None]:
    """Spares the reader what TensorFlow says of its older names."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel("ERROR")
    try:
        yield
    finally:
        logger.setLevel(level)


def _definitions(folder: Path) -> dict[str, Any]:
    """Reads the `SignatureDef` messages of a SavedModel."""
    path = folder / "saved_model.pb"
    try:
        graphs = saved_model_pb2.SavedModel.FromString(path.read_bytes()).meta_graphs
    except FileNotFoundError:
        raise DataError(f"expected a SavedModel in {folder}, but it has no saved_model.pb") from None
    except (OSError, DecodeError) as error:
        raise DataError(f"expected a SavedModel in {folder}, whose saved_model.pb cannot be read: {error}") from None
    for graph in graphs:
        if _TAG in graph.meta_info_def.tags:
            return dict(graph.signature_def.items())
    raise DataError(f"expected a SavedModel that is meant to be served in {folder}, but its tags leave out 'serve'")


def _first(error: BaseException) -> str:
    return refusal(error).message if isinstance(error, tf.errors.OpError) else str(error).split("\n", 1)[0][:300]
