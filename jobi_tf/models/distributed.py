"""What a Keras model needs to train on several workers."""

from typing import Any, Self

import keras
import tensorflow as tf

from jobi_tf.workers import has_workers, parts_of


class DistributedModel(keras.Model):
    """A model that has all its weights from the start, and that several workers may train."""

    def compute_metrics(self, *args: Any, **kwargs: Any) -> dict[str, tf.Tensor]:
        """Returns the metrics of a step: scalars, or with several workers float [1], which Keras 3.15 averages."""
        metrics = super().compute_metrics(*args, **kwargs)
        if has_workers(self.distribute_strategy):
            metrics = {name: tf.reshape(value, [1]) for name, value in metrics.items()}
        return metrics

    def gathered(self) -> Self:
        """Returns a copy in the memory of this process, not compiled, with the weights that parameter servers hold."""
        copy = type(self).from_config(self.get_config())
        for variable, own in zip(self.weights, copy.weights, strict=True):
            start = 0
            for part in parts_of(variable):
                if part.shape.rank:
                    own.value[start : start + part.shape[0]].assign(part)
                    start += part.shape[0]
                else:
                    own.assign(part)
        return copy

    def _maybe_symbolic_build(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: all weights exist. Keras 3.15 would average a batch over workers, which fails."""
