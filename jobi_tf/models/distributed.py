"""What a Keras model needs to train on several devices and workers."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import tensorflow as tf

from jobi_tf.errors import DataError, UsageError, explain
from jobi_tf.workers import has_servers, has_workers, parts_of


def check_jit_compile(jit_compile: bool, devices: int) -> None:
    """Raises a `UsageError` if XLA has to compile the training step for several devices."""
    if jit_compile and devices > 1:
        raise UsageError(f"expected jit_compile=False with {devices} devices, whose step XLA cannot compile")


class DistributedModel(keras.Model):
    """A model that has all its weights from the start, and that several devices and workers may train."""

    heads: Sequence[keras.layers.Layer]

    def fit(self, x: Any = None, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Trains the model, as `keras.Model.fit` does.

        Raises:
            UsageError: the devices of the strategy cannot share the batches of the `tf.data.Dataset` evenly, it has
                labels for other heads than the model has, or for another loss than that of the triple head, or no end
                and no number of steps; or a head has no loss of its own.
            DataError: an id in a batch is out of range; XLA and GPUs do not notice it.
        """
        if isinstance(x, tf.data.Dataset | tf.distribute.DistributedDataset):
            kwargs.setdefault("shuffle", False)  # Keras 3.15 warns that its default has no effect
        devices = self.distribute_strategy.num_replicas_in_sync
        if isinstance(x, tf.data.Dataset):
            shape = next(iter(tf.nest.flatten(x.element_spec))).shape
            if shape.rank == 0:
                raise UsageError("expected batches, got single elements")
            rows = shape[0]
            if rows and rows % devices:
                raise UsageError(f"expected batches that {devices} devices can share evenly, got {rows} rows or chunks")
        for data, steps in ((x, "steps_per_epoch"), (kwargs.get("validation_data"), "validation_steps")):
            if isinstance(data, tf.data.Dataset):
                self._check_labels(data.element_spec)
            _check_end(data, kwargs, steps)
        try:
            return super().fit(x, *args, **kwargs)
        except tf.errors.InvalidArgumentError as error:
            if sentence := explain(error):
                raise DataError(sentence) from error
            raise

    def evaluate(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Returns losses and metrics, as `keras.Model.evaluate` does.

        Raises:
            UsageError: the `tf.data.Dataset` has no end, and there is no number of steps.
        """
        _check_end(x, kwargs, "steps")
        return super().evaluate(x, *args, **kwargs)

    def predict(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Returns the outputs for batches, as `keras.Model.predict` does.

        Raises:
            UsageError: the `tf.data.Dataset` has no end, and there is no number of steps.
        """
        _check_end(x, kwargs, "steps")
        return super().predict(x, *args, **kwargs)

    def _check_labels(self, spec: Any) -> None:
        """Checks that a data set of these elements has the labels that the heads and the loss of the model take."""
        inputs, labels = spec[:2] if isinstance(spec, tuple) and len(spec) > 1 else (None, None)
        if not isinstance(inputs, dict) or tf.is_tensor(labels) or isinstance(labels, tf.TypeSpec):
            return
        names = {head.name for head in self.heads}
        needed = f"{' and '.join(sorted(names))}, as the model has joint={len(names) > 1}"
        came = set(labels) if isinstance(labels, dict) else {type(labels).__name__}
        further = self._overrides("call", "train_step")  # outputs or labels of a subclass
        if not names <= came or (came != names and not further):
            raise UsageError(f"expected labels for {needed}, got {' and '.join(sorted(came))}")
        losses = self.loss
        if not isinstance(losses, dict):  # one for all heads
            losses = {"triple": losses} if names == {"triple"} else {}
        wrong = not names <= losses.keys() or (losses.keys() != names and not further)
        if self.compiled and wrong and not self._overrides("train_step", "compute_loss"):
            given = [*losses] if losses else type(self.loss).__name__
            raise UsageError(f"expected a dict with a loss for each of {needed}, got {given}")
        loss = losses.get("triple")
        queries = "answers" in inputs
        if getattr(loss, "of_queries", queries) != queries:
            sources = "query_batches", "training_batches"
            needed, given = sources[::-1] if queries else sources
            raise UsageError(f"expected batches of {needed} for {type(loss).__name__}, got batches of {given}")

    def _overrides(self, *methods: str) -> bool:
        """Returns whether a subclass outside of this library defines one of the methods."""
        return any(not getattr(type(self), x).__module__.startswith(("jobi_tf.", "keras.")) for x in methods)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Returns the loss of a batch, as `keras.Model.compute_loss` does.

        Raises:
            UsageError: labels or losses of several heads are not in a dict. Keras would assign them to the heads in
                alphabetical order.
        """
        if isinstance(y_pred, dict) and len(y_pred) > 1 and not self._overrides("call"):
            for what, given in (("labels", y), ("losses", self.loss)):
                if not isinstance(given, dict):
                    names = " and ".join(sorted(y_pred))
                    raise UsageError(f"expected {what} as a dict with {names}, got {type(given).__name__}")
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as it was saved."""
        self.compile(**keras.saving.deserialize_keras_object(config))

    def build_optimizer(self) -> None:
        """Creates what the optimizer keeps beside the weights, on each parameter server beside its parts of them."""
        variables = self.trainable_variables
        if has_servers(self.distribute_strategy):
            self.optimizer.concurrent, variables = True, [part for x in variables for part in parts_of(x)]
        self.optimizer.build(variables)

    def compute_metrics(self, *args: Any, **kwargs: Any) -> dict[str, tf.Tensor]:
        """Returns the metrics of a step: scalars, or with several workers float [1], which Keras 3.15 averages."""
        metrics = super().compute_metrics(*args, **kwargs)
        if has_workers(self.distribute_strategy):
            metrics = {name: tf.reshape(value, [1]) for name, value in metrics.items()}
        return metrics

    def in_float32(self) -> Self:
        """Returns a copy, not compiled, whose weights are float32."""
        copy = type(self).from_config(self.get_config() | {"table_dtype": "float32"})
        for variable, own in zip(self.weights, copy.weights, strict=True):
            own.assign(tf.cast(variable, own.dtype))
        return copy

    def _maybe_symbolic_build(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: all weights exist. Keras 3.15 would average a batch over workers, which fails."""


def _check_end(batches: Any, given: Mapping[str, Any], steps: str) -> None:
    endless = isinstance(batches, tf.data.Dataset) and batches.cardinality() == tf.data.INFINITE_CARDINALITY
    if endless and given.get(steps) is None:
        raise UsageError(f"expected {steps} for batches without end, got none: see jobi_tf.steps_per_epoch")
