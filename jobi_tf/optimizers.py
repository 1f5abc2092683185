"""An Adam whose step costs as much as the rows that it touches, not as much as the table."""

from typing import Any

import keras
import tensorflow as tf

# Enough blocks that the temporaries of one stay in the allocator's reusable memory; see models.batch_scores.
BLOCKS = 4


@keras.saving.register_keras_serializable("jobi_tf")
class LazyAdam(keras.optimizers.Adam):
    """Adam that updates only the rows for which a sparse gradient has entries.

    Where the gradient is a `tf.IndexedSlices`, repeated rows are added up before they are squared, and rows without an
    entry keep their values and their moments, bit for bit. Bias correction counts all steps, as in TensorFlow Addons'
    LazyAdam. A dense gradient is handled as in Adam; when every row is touched, both agree.

    Args: as `keras.optimizers.Adam`, but for `amsgrad`, `weight_decay`, `clipnorm`, `clipvalue`, `global_clipnorm`,
        `use_ema`, `loss_scale_factor` and `gradient_accumulation_steps`, which read or write whole tables, or act
        on rows before they are added up.

    Raises:
        ValueError: one of these was set.

    Example:
        >>> model.compile(optimizer=LazyAdam(learning_rate=0.001), loss=...)

    Reference: Kingma & Ba, Adam, ICLR 2015.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        name: str = "lazy_adam",
        **kwargs: Any,
    ):
        refused = sorted(key for key, value in kwargs.items() if value and key in _DENSE)
        if refused:
            raise ValueError(f"expected only options that act on touched rows, got {', '.join(refused)}")
        super().__init__(learning_rate, beta_1, beta_2, epsilon, name=name, **kwargs)

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Applies one gradient, dense or `tf.IndexedSlices`, to one variable."""
        if not isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable, learning_rate)
            return
        step = tf.cast(self.iterations + 1, variable.dtype)
        rate = tf.cast(learning_rate, variable.dtype)
        rate *= tf.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        index = self._get_variable_index(variable)
        first, second = self._momentums[index].value, self._velocities[index].value
        rows, gradients = sum_repeated(gradient)
        size = -(-tf.size(rows) // BLOCKS)
        for i in range(BLOCKS):
            part = slice(i * size, (i + 1) * size)
            ids, values = rows[part], gradients[part]
            m, v = tf.gather(first, ids), tf.gather(second, ids)
            m, v = m + (1 - self.beta_1) * (values - m), v + (1 - self.beta_2) * (tf.square(values) - v)
            self.assign(first, tf.IndexedSlices(m, ids))
            self.assign(second, tf.IndexedSlices(v, ids))
            self.assign_sub(variable, tf.IndexedSlices(rate * m / (tf.sqrt(v) + self.epsilon), ids))


_DENSE = {
    "amsgrad",
    "weight_decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
    "loss_scale_factor",
    "gradient_accumulation_steps",
}


def sum_repeated(gradient: tf.IndexedSlices) -> tuple[tf.Tensor, tf.Tensor]:
    """Adds up the entries of each row: indices [N] with repeats → distinct rows [U] and their sums [U, ...]."""
    rows, place = tf.unique(gradient.indices)
    values = tf.cond(
        tf.size(rows) == tf.size(place),
        lambda: gradient.values,
        lambda: tf.math.unsorted_segment_sum(gradient.values, place, tf.size(rows)),
    )
    return rows, values
