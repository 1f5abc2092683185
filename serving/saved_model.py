"""A SavedModel in memory: loading, warm-up, and requests that are computed together."""

import asyncio
import gc
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from jobi_tf.errors import DataError, first_line

from .errors import invalid
from .metrics import Metrics

Arrays = Mapping[str, np.ndarray]
Outputs = dict[str, np.ndarray]
Request = tuple[Arrays, int, asyncio.Future[Outputs]]  # inputs, rows, and where the outputs go
WARMUP = Path("assets.extra") / "tf_serving_warmup_requests"
BATCH_ROWS = 256
_METHOD = "tensorflow/serving/predict"


class Signature:
    """A function of a SavedModel, whose inputs and outputs have one row for each row of a request.

    It computes one batch at a time, in a thread; the requests that arrive meanwhile are the next batch.
    """

    def __init__(self, name: str, definition: Any, session: Any, threads: Executor, metrics: Metrics) -> None:
        self.name = name
        self.inputs = {key: _spec(definition.inputs[key]) for key in sorted(definition.inputs)}
        self.outputs = {key: _spec(definition.outputs[key]) for key in sorted(definition.outputs)}
        for key, spec in {**self.inputs, **self.outputs}.items():
            if not spec.shape.rank or spec.shape[0] is not None:
                raise DataError(f"expected {key!r} of signature {name!r} to have rows, got shape {spec.shape}")
        # This takes half the time of calling a function that `tf.saved_model.load` returns.
        fetches, feeds = ([spec.name for spec in specs.values()] for specs in (self.outputs, self.inputs))
        self._call: Callable[..., list[np.ndarray]] = session.make_callable(fetches, feeds)
        self._threads = threads
        self._batch_rows = metrics.rows.labels(name)
        self._waiting: list[Request] = []
        self._computing: asyncio.Task[None] | None = None

    def check(self, inputs: Arrays) -> int:
        """Returns the number of rows of inputs; raises a `ServingError` if names or shapes are wrong."""
        if inputs.keys() != self.inputs.keys():
            raise invalid(f"expected the inputs {', '.join(self.inputs)}, got {', '.join(sorted(inputs)) or 'none'}")
        for key, spec in self.inputs.items():
            if not fits(inputs[key].shape, spec):
                raise invalid(f"expected shape {spec.shape} for the input {key!r}, got {inputs[key].shape}")
        rows = {key: len(array) for key, array in inputs.items()}
        if len({*rows.values()}) > 1:
            raise invalid(f"expected inputs with the same number of rows, got {rows}")
        return next(iter(rows.values()))

    async def predict(self, inputs: Arrays, rows: int) -> Outputs:
        """Computes the outputs for inputs that were checked; those of a large request in several batches."""
        if rows <= BATCH_ROWS:
            return await self._computed(inputs, rows)
        # All parts have as many columns as the row with the greatest k, which is added to each.
        widest = [int(np.argmax(inputs["k"]))] if "k" in inputs else []
        parts, step = [], BATCH_ROWS - len(widest)
        for start in range(0, rows, step):  # one after the other, so that small requests get in between
            chosen = [*range(start, min(start + step, rows)), *widest]
            outputs = await self._computed({key: array[chosen] for key, array in inputs.items()}, len(chosen))
            parts.append({key: array[: len(chosen) - len(widest)] for key, array in outputs.items()})
        return _joined(parts)

    def _computed(self, inputs: Arrays, rows: int) -> asyncio.Future[Outputs]:
        """Returns the outputs of rows that fit into a batch, when they are computed."""
        future: asyncio.Future[Outputs] = asyncio.get_running_loop().create_future()
        self._waiting.append((inputs, rows, future))
        if self._computing is None or self._computing.done():
            self._computing = asyncio.create_task(self._compute_waiting())
        return future

    async def _compute_waiting(self) -> None:
        """Computes one batch after the other until no request waits."""
        while batch := self._next_batch():
            self._batch_rows.observe(sum(rows for _, rows, _ in batch))
            parts = [inputs for inputs, _, _ in batch]
            try:
                outputs = await asyncio.get_running_loop().run_in_executor(self._threads, self.compute, *parts)
            except Exception as error:
                for _, _, future in batch:
                    if not future.done():  # otherwise the request was given up
                        future.set_exception(error)
                continue
            end = 0
            for inputs, rows, future in batch:
                start, end = end, end + rows
                if not future.done():
                    future.set_result(self._part(outputs, slice(start, end), inputs))

    def _next_batch(self) -> list[Request]:
        """Takes the oldest requests out of the queue, without those that were given up."""
        self._waiting = [request for request in self._waiting if not request[2].done()]
        totals = itertools.accumulate(rows for _, rows, _ in self._waiting)
        count = max(1, sum(total <= BATCH_ROWS for total in totals))
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    def _part(self, outputs: Arrays, rows: slice, inputs: Arrays) -> Outputs:
        """Returns a request's rows of the outputs of a batch, with as many columns as it would have on its own."""
        columns = slice(max(0, int(inputs["k"].max(initial=0))) if "k" in inputs else None)
        return {
            key: outputs[key][rows, columns] if spec.shape.rank > 1 and spec.shape[1] is None else outputs[key][rows]
            for key, spec in self.outputs.items()
        }

    def compute(self, *parts: Arrays) -> Outputs:
        """Computes the outputs of the inputs of a batch; strings are `str` or `bytes` in object arrays."""
        inputs = _joined(parts)
        try:
            return dict(zip(self.outputs, self._call(*[inputs[key] for key in self.inputs]), strict=True))
        except tf.errors.InvalidArgumentError as error:
            raise invalid(error.message.split("\n", 1)[0]) from error


class SavedModel:
    """A SavedModel in memory, warmed up: the `SignatureDef` of each signature, and the signatures for prediction.

    Raises:
        DataError: the folder holds no SavedModel that can be loaded.
    """

    def __init__(self, folder: Path, threads: Executor, metrics: Metrics) -> None:
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=-1)  # a batch is computed in one thread
        config.gpu_options.allow_growth = True
        # A second pass over the graphs takes as long as the first and makes nothing faster.
        config.graph_options.rewrite_options.meta_optimizer_iterations = RewriterConfig.ONE
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            with self._session.graph.as_default():
                graph = tf.compat.v1.saved_model.load(self._session, ["serve"], str(folder))
            self.definitions: dict[str, Any] = dict(graph.signature_def)
            self.signatures = {
                name: Signature(name, definition, self._session, threads, metrics)
                for name, definition in self.definitions.items()
                if definition.method_name == _METHOD
            }
            _check_assets(folder)
            if (folder / WARMUP).is_file():
                self._warm_up(folder / WARMUP)
        except Exception as error:  # TensorFlow raises many types for damaged files
            self.close()
            raise DataError(f"expected a complete SavedModel in {folder}: {first_line(error)}") from error

    def _warm_up(self, path: Path) -> None:
        for record in tf.compat.v1.io.tf_record_iterator(str(path)):
            request = PredictionLog.FromString(record).predict_log.request
            signature = self.signatures[request.model_spec.signature_name or "serving_default"]
            inputs = {key: tf.make_ndarray(tensor) for key, tensor in request.inputs.items()}
            signature.check(inputs)
            signature.compute(inputs)

    def close(self) -> None:
        """Frees the memory."""
        self.signatures = {}
        self._session.close()
        del self._session
        gc.collect()  # session and graph refer to each other


def _check_assets(folder: Path) -> None:
    """Raises a `DataError` if a file of names is not the one that `jobi-tf export` wrote."""
    path = folder / "signature.json"
    expected = json.loads(path.read_bytes()).get("assets", {}) if path.is_file() else {}
    for name, digest in expected.items():
        if hashlib.sha256((folder / "assets" / name).read_bytes()).hexdigest() != digest:
            raise DataError(f"expected the names that were exported in assets/{name}, got others")


def fits(shape: Sequence[int], spec: tf.TensorSpec) -> bool:
    """Returns whether an array of this shape can be fed; faster than `tf.TensorShape.is_compatible_with`."""
    return len(shape) == len(spec.shape) and all(b in (None, a) for a, b in zip(shape, spec.shape, strict=True))


def _spec(info: Any) -> tf.TensorSpec:
    return tf.TensorSpec(tf.TensorShape(info.tensor_shape), info.dtype, info.name)


def _joined(parts: Sequence[Arrays]) -> Outputs:
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]} if parts[1:] else dict(parts[0])
