"""Adam and two forms of Adagrad whose step costs as much as the rows that it touches, not as much as the table."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from jobi_tf.compiled import compiled, on_gpu
from jobi_tf.workers import load_table, save_table

# Rows are updated in blocks of up to twice these bytes, whose copies stay in the processor's cache, and in memory that
# the allocator reuses.
BLOCK_BYTES = 2**20
# From this share of touched rows on, one pass over the whole table is faster than gathering and scattering rows.
LARGE_SHARE = 0.15
MULTIPLE = 32  # The number of rows in a block is a multiple of this.

# Options that act on whole tables, or on rows before they are added up.
_DENSE = {
    *("amsgrad", "weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "use_ema", "loss_scale_factor"),
    "gradient_accumulation_steps",
}

Settings = dict[str, tf.Tensor]


class _Sparse:
    """What optimizers for sparse gradients share. Slots are their state for a variable, such as the moments of Adam.

    A subclass has the formula: `slot_changes` takes the gradients, the settings and the old slots, and returns what is
    added to these; `step` takes the new slots instead, and returns what is added to the variable; `_settings` returns
    the settings, which are the numbers of the formula for the current step.
    """

    sparse = True  # handles gradients that are `tf.IndexedSlices`
    xla = False  # the training step is compiled by XLA as a whole; set by `JoBi.compile`
    concurrent = False  # several workers update the same rows at any time; set by `JoBi.compile`
    slots: list[list[keras.Variable]]
    slot_changes: Callable[..., tuple[tf.Tensor, ...]]
    step: Callable[..., tf.Tensor]
    _settings: Callable[..., Settings]

    def __init__(self, *args: Any, **kwargs: Any):
        if refused := sorted(key for key, value in kwargs.items() if value and key in _DENSE):
            raise ValueError(f"expected only options that act on touched rows, got {', '.join(refused)}")
        super().__init__(*args, **kwargs)

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Applies one gradient, dense or `tf.IndexedSlices`, to one variable."""
        index = self._get_variable_index(variable)  # type: ignore[attr-defined]
        tables = _raw(variable, *(slot[index] for slot in self.slots))
        settings = self._settings(learning_rate, _dtype(variable))
        if not isinstance(gradient, tf.IndexedSlices):
            self._update_all(tables, gradient, settings)
            return
        rows, gradients = sum_repeated(gradient, self.xla)
        if tables[0].dtype == tf.bfloat16:
            update = _update_rows if self.xla else _update_blocks
            update(type(self), tables, rows, gradients, settings)
        elif self.xla or self.concurrent or on_gpu():
            # XLA ignores additions to rows beyond the table, and no addition of another worker is lost.
            added = _changes(type(self), gradients, settings, [tf.gather(table, rows) for table in tables[1:]])
            for table, change in zip(tables, added, strict=True):
                table.scatter_add(tf.IndexedSlices(change, rows))
        else:
            tf.cond(
                tf.size(rows) >= math.ceil(LARGE_SHARE * tables[0].shape[0]),
                lambda: _update_most(type(self), tables, rows, gradients, settings),
                lambda: _update_blocks(type(self), tables, rows, gradients, settings),
            )

    def _update_all(self, tables: list[tf.Variable], gradient: tf.Tensor, settings: Settings) -> None:
        for table, change in zip(tables, _changes(type(self), gradient, settings, tables[1:]), strict=True):
            table.assign_add(change)

    def save_own_variables(self, store: Any) -> None:
        for i, variable in enumerate(self.variables):  # type: ignore[attr-defined]
            if len(variable.shape) == 2:
                save_table(store, str(i), variable)
            else:
                store[str(i)] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Reads the state where Keras saved it, unless other variables were trainable then; Keras warns of it."""
        keys = store.keys()
        if len({key.partition(".")[0] for key in keys}) != len(self.variables):  # type: ignore[attr-defined]
            super().load_own_variables(store)  # type: ignore[misc]
            return
        for i, variable in enumerate(self.variables):  # type: ignore[attr-defined]
            if len(variable.shape) == 2:
                load_table(store, str(i), variable)
            else:
                variable.assign(store[str(i)])


@keras.saving.register_keras_serializable("jobi_tf")
class LazyAdam(_Sparse, keras.optimizers.Adam):
    """Adam that updates only the rows for which a sparse gradient has entries.

    If the gradient is a `tf.IndexedSlices`, repeated rows are added up before they are squared, and rows without an
    entry keep their values and moments exactly. Bias correction counts all steps, as in LazyAdam of TensorFlow Addons.
    If the gradient is dense or has entries for all rows, the update is that of Adam.

    A bfloat16 variable has bfloat16 moments. Updates of its rows are computed in float32 and rounded stochastically.

    Args: those of `keras.optimizers.Adam`, except `amsgrad`, `weight_decay`, `clipnorm`, `clipvalue`,
        `global_clipnorm`, `use_ema`, `loss_scale_factor` and `gradient_accumulation_steps`, which read or write whole
        tables, or act on rows before they are added up.

    Raises:
        ValueError: one of the excluded arguments was set.

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
        super().__init__(learning_rate, beta_1, beta_2, epsilon, name=name, **kwargs)

    @property
    def slots(self) -> list[list[keras.Variable]]:  # type: ignore[override]
        """What is kept beside the variables: the moments, a list of each in the order of the variables."""
        return [self._momentums, self._velocities]

    def _settings(self, learning_rate: Any, dtype: str) -> Settings:
        numbers = {"lr": learning_rate, "beta1": self.beta_1, "beta2": self.beta_2, "epsilon": self.epsilon}
        settings = {name: tf.cast(number, dtype) for name, number in numbers.items()}
        step = tf.cast(self.iterations + 1, dtype)
        return settings | {"beta1_power": settings["beta1"] ** step, "beta2_power": settings["beta2"] ** step}

    @staticmethod
    def slot_changes(
        gradients: tf.Tensor, settings: Settings, first: tf.Tensor, second: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns what is added to both moments."""
        return (1 - settings["beta1"]) * (gradients - first), (1 - settings["beta2"]) * (gradients**2 - second)

    @staticmethod
    def step(gradients: tf.Tensor, settings: Settings, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """Returns what is added to the variable."""
        rate = settings["lr"] * tf.sqrt(1 - settings["beta2_power"]) / (1 - settings["beta1_power"])
        return -rate * first / (tf.sqrt(second) + settings["epsilon"])

    def _update_all(self, tables: list[tf.Variable], gradient: tf.Tensor, settings: Settings) -> None:
        var, first, second = (table.handle for table in tables)
        options = {"grad": gradient, "use_locking": self.concurrent, **settings}
        tf.raw_ops.ResourceApplyAdam(var=var, m=first, v=second, **options)


class _Adagrad(_Sparse, keras.optimizers.Adagrad):
    """What both forms of Adagrad have in common."""

    def __init__(
        self, learning_rate: Any = 0.1, initial_accumulator_value: float = 0.0, epsilon: float = 1e-10, **kwargs: Any
    ):
        super().__init__(learning_rate, initial_accumulator_value, epsilon, **kwargs)

    @property
    def slots(self) -> list[list[keras.Variable]]:  # type: ignore[override]
        """What is kept beside the variables: the accumulators, in the order of the variables."""
        return [self._accumulators]

    def _settings(self, learning_rate: Any, dtype: str) -> Settings:
        return {"lr": tf.cast(learning_rate, dtype), "epsilon": tf.cast(self.epsilon, dtype)}

    @staticmethod
    def step(gradients: tf.Tensor, settings: Settings, sums: tf.Tensor) -> tf.Tensor:
        return -settings["lr"] * gradients / (_aligned(tf.sqrt(sums), gradients) + settings["epsilon"])


@keras.saving.register_keras_serializable("jobi_tf")
class LazyAdagrad(_Adagrad):
    """Adagrad that updates only the rows for which a sparse gradient has entries.

    The updates are those of Adagrad, which does not change rows with a gradient of zero, but take less time. Repeated
    rows are added up before they are squared.

    Arguments are those of `keras.optimizers.Adagrad`, except the ones that `LazyAdam` excludes. The default learning
    rate is 0.1 instead of Keras' 0.001. Accumulators start from 0 instead of 0.1, and epsilon is small, because the
    gradients of a mean over a batch are small.

    Raises:
        ValueError: one of the excluded arguments was set.

    Example:
        >>> model.compile(optimizer=LazyAdagrad(learning_rate=0.1), loss=...)

    Reference: Duchi et al., Adaptive Subgradient Methods for Online Learning and Stochastic Optimization, JMLR 2011.
    """

    @staticmethod
    def slot_changes(gradients: tf.Tensor, settings: Settings, sums: tf.Tensor) -> tuple[tf.Tensor]:
        """Returns what is added to the sums of squares."""
        return (gradients**2,)

    def _update_all(self, tables: list[tf.Variable], gradient: tf.Tensor, settings: Settings) -> None:
        var, accum = (table.handle for table in tables)
        options = {"grad": gradient, "use_locking": self.concurrent, **settings}
        tf.raw_ops.ResourceApplyAdagradV2(var=var, accum=accum, **options)


@keras.saving.register_keras_serializable("jobi_tf")
class RowAdagrad(_Adagrad):
    """Adagrad with one accumulator for each row, the sum of the row's mean squared gradients.

    Table and optimizer state take a third of the memory that they take with Adam, because a row has one accumulator
    instead of two moments for each number. All numbers of a row have the same step size. Rows without an entry in a
    sparse gradient keep their values. Rows are indices of the first axis, so each number of a vector has its own
    accumulator, as in Adagrad.

    Args: those of `LazyAdagrad`.

    Raises:
        ValueError: one of the excluded arguments was set.

    Example:
        >>> model.compile(optimizer=RowAdagrad(learning_rate=0.1), loss=...)

    Reference: Lerer et al., PyTorch-BigGraph, MLSys 2019, section 4.1; also in DGL-KE.
    """

    @staticmethod
    def slot_changes(gradients: tf.Tensor, settings: Settings, sums: tf.Tensor) -> tuple[tf.Tensor]:
        """Returns what is added to the sums of mean squares."""
        return (tf.reshape(tf.reduce_mean(gradients**2, list(range(1, len(gradients.shape)))), tf.shape(sums)),)

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
                options = {"initializer": initializer, "dtype": _dtype(x), "name": "accumulator"}
                self._accumulators.append(self.add_variable(shape=x.shape[:1], **options))


def _raw(variable: Any, *slots: keras.Variable) -> list[tf.Variable]:
    """Returns the TensorFlow variables of a variable and its slots; under a strategy, those of one device.

    Keras hands over the variable of a device, but slots of all devices. To gather rows of such a slot, TensorFlow 2.21
    would copy the whole table.
    """
    raw = variable.value if isinstance(variable, keras.Variable) else variable
    copies = tf.distribute.get_strategy().experimental_local_results
    return [raw, *(next(x for x in copies(slot.value) if x.device == raw.device) for slot in slots)]


def _dtype(variable: keras.Variable) -> str:
    """Returns the dtype in which updates of a variable are computed."""
    return "float32" if variable.dtype == "bfloat16" else variable.dtype


def _aligned(rows: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Appends axes of size 1 to `rows`, [U, ...], so that it broadcasts over `others`, which has more axes."""
    return tf.reshape(rows, tf.concat([tf.shape(rows), tf.ones([len(others.shape) - len(rows.shape)], tf.int32)], 0))


def _update_blocks(
    rule: type[_Sparse], tables: list[tf.Variable], rows: tf.Tensor, gradients: tf.Tensor, settings: Settings
) -> None:
    """Updates some rows of [variable, slots...] block by block."""
    count, numbers_of_a_row = tf.size(rows), math.prod(tables[0].shape[1:])
    blocks = tf.maximum(1, count // max(MULTIPLE, BLOCK_BYTES // (4 * numbers_of_a_row)))
    size = -(-count // (blocks * MULTIPLE)) * MULTIPLE

    def update(start: tf.Tensor) -> list[tf.Tensor]:
        # The last row is repeated, so that few sizes occur: XLA compiles a function again for each of them.
        part = tf.minimum(tf.range(start, start + size), count - 1)
        _update_rows(rule, tables, tf.gather(rows, part), tf.gather(gradients, part), settings)
        return [start + size]

    # One block after the other: if gradients of others were copied before, they would not stay in the cache.
    tf.while_loop(lambda start: start < count, update, [0], parallel_iterations=1)


def _update_rows(
    rule: type[_Sparse], tables: list[tf.Variable], rows: tf.Tensor, gradients: tf.Tensor, settings: Settings
) -> None:
    """Updates some rows of [variable, slots...] at once; bfloat16 rows are rounded at random."""
    old = [tf.gather(table, rows) for table in tables]
    for table, values in zip(tables, _new_rows(rule, gradients, settings, *old), strict=True):
        table.scatter_update(tf.IndexedSlices(values, rows))


def _changes(
    rule: type[_Sparse], gradients: tf.Tensor, settings: Settings, slots: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    added = rule.slot_changes(gradients, settings, *slots)
    return [rule.step(gradients, settings, *(x + change for x, change in zip(slots, added, strict=True))), *added]


@compiled
def _new_rows(rule: type[_Sparse], gradients: tf.Tensor, settings: Settings, *old: tf.Tensor) -> list[tf.Tensor]:
    """Returns the new values of rows, each in the dtype of the old ones."""
    gradients, *values = (tf.cast(x, settings["lr"].dtype) for x in (gradients, *old))
    new = [x + change for x, change in zip(values, _changes(rule, gradients, settings, values[1:]), strict=True)]
    return [rounded(x, gradients) if y.dtype == tf.bfloat16 else x for x, y in zip(new, old, strict=True)]


def rounded(values: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """Rounds finite float32 to bfloat16 stochastically: up or down, so that the expected value is the given one.

    If it rounded to the nearest number, small steps of an optimizer would be lost. The random bits are a hash of the
    values and the noise, float32 of the same shape, so that all devices round alike.
    """
    bits, noise = (tf.bitcast(x, tf.uint32) for x in (values, noise))
    first, second, fifteen, sixteen = (tf.constant(x, tf.uint32) for x in (0x9E3779B9, 0x85EBCA77, 15, 16))
    mixed = tf.bitwise.bitwise_xor(bits, noise) * first
    mixed = tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, fifteen)) * second
    bits += tf.bitwise.right_shift(mixed, sixteen)
    return tf.bitcast(tf.cast(tf.bitwise.right_shift(bits, sixteen), tf.uint16), tf.bfloat16)


def _update_most(
    rule: type[_Sparse], tables: list[tf.Variable], rows: tf.Tensor, gradients: tf.Tensor, settings: Settings
) -> None:
    """Updates some rows of [variable, slots...] in one pass over all rows."""
    places = tf.fill(tables[0].shape[:1], -1)
    places = tf.tensor_scatter_nd_update(places, rows[:, None], tf.range(tf.size(rows)))
    _update_where(rule, tuple(tables), tf.gather(gradients, tf.maximum(places, 0)), places >= 0, settings)


@compiled
def _update_where(
    rule: type[_Sparse], tables: tuple[tf.Variable, ...], gradients: tf.Tensor, touched: tf.Tensor, settings: Settings
) -> None:
    """Updates the touched rows of [variable, slots...].

    The step is computed from the new slots, so that XLA updates all tables in place. From the old slots it would have
    to copy them first.
    """
    variable, *slots = (tf.convert_to_tensor(table) for table in tables)
    added = rule.slot_changes(gradients, settings, *slots)
    new = [tf.where(_aligned(touched, x), x + y, x) for x, y in zip(slots, added, strict=True)]
    moved = variable + rule.step(gradients, settings, *new)
    for table, values in zip(tables, [tf.where(_aligned(touched, variable), moved, variable), *new], strict=True):
        table.assign(values)


def _come_from_unique(ids: tf.Tensor) -> bool:
    """Returns whether the ids are in a graph, and are there the distinct ones that `tf.unique` returns."""
    while tf.is_symbolic_tensor(ids) and ids.op.type in ("Reshape", "Identity"):
        ids = ids.op.inputs[0]
    return tf.is_symbolic_tensor(ids) and ids.op.type == "Unique" and ids.value_index == 0


def sum_repeated(gradient: tf.IndexedSlices, xla: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
    """Adds up the entries of each row: indices [N] with repeats → distinct rows [U] and their sums [U, ...].

    On several devices, the gradients of all of them are concatenated, so that rows are repeated; the rows of a model's
    own gradient come from `tf.unique`, and are taken as they are.

    XLA needs to know the number of rows: there U = N, and the entries after the distinct rows name a row beyond the
    table, with a sum of 0.
    """
    if xla:
        order = tf.argsort(gradient.indices)
        indices, values = tf.gather(gradient.indices, order), tf.gather(gradient.values, order)
        differs = tf.concat([[False], indices[1:] != indices[:-1]], 0)
        place, count = tf.cumsum(tf.cast(differs, tf.int32)), tf.size(indices)
        rows = tf.math.unsorted_segment_min(indices, place, count)
        return rows, tf.math.unsorted_segment_sum(values, place, count)
    if _come_from_unique(gradient.indices):
        return gradient.indices, gradient.values
    rows, place = tf.unique(gradient.indices)
    values, count = gradient.values, tf.size(rows)

    def add_up() -> tf.Tensor:
        return tf.math.unsorted_segment_sum(values, place, count)

    return rows, tf.cond(count == tf.size(place), lambda: values, add_up)
