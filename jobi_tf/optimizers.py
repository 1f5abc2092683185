"""Adam and two forms of Adagrad whose step costs as much as the rows that it touches, not as much as the table."""

import math
from typing import Any

import keras
import tensorflow as tf

from jobi_tf.compiled import on_gpu

# Rows are updated in blocks whose copies stay in the processor's cache, and in memory that the allocator reuses.
ROWS_OF_A_BLOCK, LARGEST_NUMBER_OF_BLOCKS = 1024, 32


@keras.saving.register_keras_serializable("jobi_tf")
class LazyAdam(keras.optimizers.Adam):
    """Adam that updates only the rows for which a sparse gradient has entries.

    Where the gradient is a `tf.IndexedSlices`, repeated rows are added up before they are squared, and rows without an
    entry keep their values and their moments, bit for bit. Bias correction counts all steps, as in TensorFlow Addons'
    LazyAdam. When every row is touched, or the gradient is dense, it is Adam.

    Args: as `keras.optimizers.Adam`, but for `amsgrad`, `weight_decay`, `clipnorm`, `clipvalue`, `global_clipnorm`,
        `use_ema`, `loss_scale_factor` and `gradient_accumulation_steps`, which read or write whole tables, or act
        on rows before they are added up.

    Raises:
        ValueError: one of these was set.

    Example:
        >>> model.compile(optimizer=LazyAdam(learning_rate=0.001), loss=...)

    Reference: Kingma & Ba, Adam, ICLR 2015.
    """

    sparse = True  # handles gradients that are `tf.IndexedSlices`
    xla = False  # the training step is compiled by XLA as a whole; set by `JoBi.compile`
    concurrent = False  # several workers update the same rows at any time; set by `JoBi.compile`

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        name: str = "lazy_adam",
        **kwargs: Any,
    ):
        _refuse_dense(kwargs)
        super().__init__(learning_rate, beta_1, beta_2, epsilon, name=name, **kwargs)

    @property
    def slots(self) -> list[list[keras.Variable]]:
        """What is kept beside the variables: the moments, a list of each in the order of the variables."""
        return [self._momentums, self._velocities]

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Applies one gradient, dense or `tf.IndexedSlices`, to one variable."""
        dtype = variable.dtype
        step = tf.cast(self.iterations + 1, dtype)
        index = self._get_variable_index(variable)
        tables = _raw(variable, self._momentums[index], self._velocities[index])
        settings = {
            "beta1_power": tf.cast(self.beta_1, dtype) ** step,
            "beta2_power": tf.cast(self.beta_2, dtype) ** step,
            "lr": tf.cast(learning_rate, dtype),
            "beta1": tf.cast(self.beta_1, dtype),
            "beta2": tf.cast(self.beta_2, dtype),
            "epsilon": tf.cast(self.epsilon, dtype),
        }
        lock = {"use_locking": self.concurrent}
        if not isinstance(gradient, tf.IndexedSlices):
            var, first, second = (table.handle for table in tables)
            tf.raw_ops.ResourceApplyAdam(var=var, m=first, v=second, grad=gradient, **settings, **lock)
            return
        rows, gradients = sum_repeated(gradient, self.xla)
        if self.xla or self.concurrent or on_gpu():
            _update_rows(tables, rows, gradients, settings)
            return
        blocks = min(LARGEST_NUMBER_OF_BLOCKS, math.ceil(variable.shape[0] / ROWS_OF_A_BLOCK))
        size = -(-tf.size(rows) // blocks)
        for i in range(blocks):
            part = slice(i * size, (i + 1) * size)
            _update_block(tables, rows[part], gradients[part], settings)


@keras.saving.register_keras_serializable("jobi_tf")
class LazyAdagrad(keras.optimizers.Adagrad):
    """Adagrad that updates only the rows for which a sparse gradient has entries.

    Rows without an entry have a gradient of zero, for which Adagrad changes nothing: this is Adagrad, but for the time
    that it takes. Repeated rows are added up before they are squared.

    Args: as `keras.optimizers.Adagrad`, but for the options that `LazyAdam` refuses. Accumulators start from 0 and
        epsilon is small, since the gradients of a batch's mean are: with Keras' 0.1 steps would hardly adapt.

    Raises:
        ValueError: an option was set that acts on whole tables.

    Example:
        >>> model.compile(optimizer=LazyAdagrad(learning_rate=0.1), loss=...)

    Reference: Duchi et al., Adaptive Subgradient Methods for Online Learning and Stochastic Optimization, JMLR 2011.
    """

    sparse = True
    xla = False
    concurrent = False

    def __init__(
        self,
        learning_rate: Any = 0.1,
        initial_accumulator_value: float = 0.0,
        epsilon: float = 1e-10,
        name: str = "lazy_adagrad",
        **kwargs: Any,
    ):
        _refuse_dense(kwargs)
        super().__init__(learning_rate, initial_accumulator_value, epsilon, name=name, **kwargs)

    @property
    def slots(self) -> list[list[keras.Variable]]:
        """What is kept beside the variables: the accumulators, in the order of the variables."""
        return [self._accumulators]

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Applies one gradient, dense or `tf.IndexedSlices`, to one variable."""
        table, accumulator = _raw(variable, self._accumulators[self._get_variable_index(variable)])
        settings = {"lr": tf.cast(learning_rate, variable.dtype), "epsilon": tf.cast(self.epsilon, variable.dtype)}
        handles = {"var": table.handle, "accum": accumulator.handle, "use_locking": self.concurrent}
        if not isinstance(gradient, tf.IndexedSlices):
            tf.raw_ops.ResourceApplyAdagradV2(grad=gradient, **handles, **settings)
            return
        rows, gradients = sum_repeated(gradient, self.xla)
        if self.xla:
            sums = tf.gather(accumulator, rows) + gradients * gradients
            accumulator.scatter_add(tf.IndexedSlices(gradients * gradients, rows))
            steps = settings["lr"] * gradients / (tf.sqrt(sums) + settings["epsilon"])
            table.scatter_sub(tf.IndexedSlices(steps, rows))
        else:
            tf.raw_ops.ResourceSparseApplyAdagradV2(indices=rows, grad=gradients, **handles, **settings)


@keras.saving.register_keras_serializable("jobi_tf")
class RowAdagrad(LazyAdagrad):
    """Adagrad with one accumulator for each row, the sum of the row's mean squared gradients.

    It takes a third of the memory of Adam: beside each table of width d there is one number for each row, not d or 2d.
    All numbers of a row have one step size; rows without an entry in a sparse gradient keep their values. A row is an
    index of a variable's first axis: a number of a vector has an accumulator of its own, as in Adagrad.

    Args: as `LazyAdagrad`.

    Raises:
        ValueError: an option was set that acts on whole tables.

    Example:
        >>> model.compile(optimizer=RowAdagrad(learning_rate=0.1), loss=...)

    Reference: Lerer et al., PyTorch-BigGraph, MLSys 2019, section 4.1; also in DGL-KE.
    """

    def __init__(
        self,
        learning_rate: Any = 0.1,
        initial_accumulator_value: float = 0.0,
        epsilon: float = 1e-10,
        name: str = "row_adagrad",
        **kwargs: Any,
    ):
        super().__init__(learning_rate, initial_accumulator_value, epsilon, name=name, **kwargs)

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates the accumulators, float32 [rows] for each variable."""
        if self.built:
            return
        keras.optimizers.Optimizer.build(self, variables)
        initializer = keras.initializers.Constant(self.initial_accumulator_value)
        self._accumulators = []
        for x in variables:
            raw = x.value if isinstance(x, keras.Variable) else x
            with tf.distribute.get_strategy().extended.colocate_vars_with(raw):
                options = {"initializer": initializer, "dtype": x.dtype, "name": "accumulator"}
                self._accumulators.append(self.add_variable(shape=x.shape[:1], **options))

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Applies one gradient, dense or `tf.IndexedSlices`, to one variable."""
        table, accumulator = _raw(variable, self._accumulators[self._get_variable_index(variable)])
        rate, epsilon = tf.cast(learning_rate, variable.dtype), tf.cast(self.epsilon, variable.dtype)
        sparse = isinstance(gradient, tf.IndexedSlices)
        rows, gradients = sum_repeated(gradient, self.xla) if sparse else (None, gradient)
        axes = list(range(1, len(variable.shape)))
        squares = tf.reduce_mean(gradients**2, axes, keepdims=True)  # [U, 1, ...]
        added = tf.reshape(squares, tf.shape(squares)[:1]) if axes else squares
        sums = tf.gather(accumulator, rows) + added if sparse else accumulator.assign_add(added)
        steps = rate * gradients / (tf.sqrt(tf.reshape(sums, tf.shape(squares))) + epsilon)
        if sparse:
            accumulator.scatter_add(tf.IndexedSlices(added, rows))
            table.scatter_sub(tf.IndexedSlices(steps, rows))
        else:
            table.assign_sub(steps)


def _raw(variable: Any, *slots: keras.Variable) -> list[tf.Variable]:
    """Returns the TensorFlow variables of a variable and its slots; under a strategy, those of one device.

    Keras hands over the variable of a device, but slots of all devices. To gather rows of such a slot, TensorFlow 2.21
    would copy the whole table.
    """
    raw = variable.value if isinstance(variable, keras.Variable) else variable
    copies = tf.distribute.get_strategy().experimental_local_results
    return [raw, *(next(x for x in copies(slot.value) if x.device == raw.device) for slot in slots)]


def _refuse_dense(options: dict[str, Any]) -> None:
    refused = sorted(key for key, value in options.items() if value and key in _DENSE)
    if refused:
        raise ValueError(f"expected only options that act on touched rows, got {', '.join(refused)}")


def _update_rows(tables: list[tf.Variable], rows: tf.Tensor, gradients: tf.Tensor, settings: dict[str, Any]) -> None:
    """Applies Adam to some rows of [variable, moments].

    Rows are added to, not assigned: XLA leaves out additions to rows that do not exist, as `sum_repeated` has them.
    """
    changes, moments = [], []
    for table, beta, value in zip(
        tables[1:], (settings["beta1"], settings["beta2"]), (gradients, gradients**2), strict=True
    ):
        old = tf.gather(table, rows)
        changes.append((1 - beta) * (value - old))
        moments.append(old + changes[-1])
    rate = settings["lr"] * tf.sqrt(1 - settings["beta2_power"]) / (1 - settings["beta1_power"])
    changes = [-rate * moments[0] / (tf.sqrt(moments[1]) + settings["epsilon"]), *changes]
    for table, change in zip(tables, changes, strict=True):
        table.scatter_add(tf.IndexedSlices(change, rows))


def _update_block(tables: list[tf.Variable], rows: tf.Tensor, gradients: tf.Tensor, settings: dict[str, Any]) -> None:
    """Applies TensorFlow's own Adam, one pass over memory, to a copy of some rows of [variable, moments].

    The copies are anonymous variables that exist during this step only.
    """
    handles = []
    for table in tables:
        handle = tf.raw_ops.VarHandleOp(dtype=table.dtype, shape=[None, *table.shape[1:]], shared_name=_ANONYMOUS)
        tf.raw_ops.AssignVariableOp(resource=handle, value=tf.gather(table, rows))
        handles.append(handle)
    variable, first, second = handles
    tf.raw_ops.ResourceApplyAdam(var=variable, m=first, v=second, grad=gradients, **settings)
    for table, handle in zip(tables, handles, strict=True):
        values = tf.raw_ops.ReadVariableOp(resource=handle, dtype=table.dtype)
        table.scatter_update(tf.IndexedSlices(values, rows))
        tf.raw_ops.DestroyResourceOp(resource=handle)


_ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"  # what TensorFlow calls a variable without a name

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


def sum_repeated(gradient: tf.IndexedSlices, xla: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
    """Adds up the entries of each row: indices [N] with repeats → distinct rows [U] and their sums [U, ...].

    On several devices, the gradients of all of them are concatenated, so that rows are repeated; a model's own gradient
    has distinct rows, for which nothing is copied.

    XLA needs to know the number of rows: there U = N, and what is left over has a row beyond the table and a sum of 0.
    """
    if xla:
        order = tf.argsort(gradient.indices)
        indices, values = tf.gather(gradient.indices, order), tf.gather(gradient.values, order)
        differs = tf.concat([[False], indices[1:] != indices[:-1]], 0)
        place, count = tf.cumsum(tf.cast(differs, tf.int32)), tf.size(indices)
        rows = tf.math.unsorted_segment_min(indices, place, count)
        return rows, tf.math.unsorted_segment_sum(values, place, count)
    rows, place = tf.unique(gradient.indices)
    values, count = gradient.values, tf.size(rows)

    def add_up() -> tf.Tensor:
        return tf.math.unsorted_segment_sum(values, place, count)

    return rows, tf.cond(count == tf.size(place), lambda: values, add_up)
