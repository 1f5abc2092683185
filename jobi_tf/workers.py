"""Strategies of `tf.distribute`: the parts of a variable, and several processes that train one model."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    import keras

ROWS_OF_A_BLOCK = 2**16


def has_workers(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a strategy spreads work over several processes."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def has_servers(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether variables are on parameter servers, and this process is the chief that coordinates workers."""
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def number_of_servers(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of parameter servers of a strategy; 0 for strategies without them."""
    if not has_servers(strategy):
        return 0
    return tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec().num_tasks("ps")


def parts_of(variable: "keras.Variable") -> list[tf.Variable]:
    """Returns the TensorFlow variables that hold the rows of a variable, in order: one, unless servers share them."""
    return list(getattr(variable.value, "variables", [variable.value]))


def read_in_blocks(*parts: tf.Variable) -> np.ndarray:
    """Returns the rows of the parts of a variable as one array.

    They are read in blocks: TensorFlow 2.21 makes two more copies of a variable that is read as a whole.
    """
    count = sum(x.shape[0] for x in parts)
    array = np.empty((count, *parts[0].shape[1:]), parts[0].dtype.as_numpy_dtype)
    for first, rows in _blocks(parts):
        array[first : first + len(rows)] = rows
    return array


def _blocks(parts: Sequence[tf.Variable]) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the number of the first row of each block, and its rows."""
    done = 0
    for part in parts:
        copy = getattr(part, "values", [part])[0]  # a mirrored variable would be read as a whole for each block
        for first in range(0, part.shape[0], ROWS_OF_A_BLOCK):
            rows = tf.gather(copy, tf.range(first, min(first + ROWS_OF_A_BLOCK, part.shape[0]))).numpy()
            yield done, rows
            done += len(rows)


def save_table(store: Any, key: str, variable: "keras.Variable") -> None:
    """Writes a table into the store of `save_own_variables`, without a copy of the whole table.

    The key is that of the first block of rows; later blocks have the number of their first row after it.
    """
    for first, rows in _blocks(parts_of(variable)):
        store[f"{key}.{first}" if first else key] = rows


def load_table(store: Any, key: str, variable: "keras.Variable") -> None:
    """Reads a table that `save_table` or Keras wrote; raises a `ValueError` without one of this shape."""
    table, done, block = np.empty(variable.shape, tf.as_dtype(variable.dtype).as_numpy_dtype), 0, key
    while block in store:
        rows = store[block]
        if rows.shape[1:] != table.shape[1:] or done + len(rows) > len(table):
            break
        table[done : done + len(rows)] = rows
        done += len(rows)
        block = f"{key}.{done}"
    if done < len(table) or block in store:
        found = f"one of another: rows {done} on are {store[block].shape}" if block in store else f"{done} rows"
        raise ValueError(f"expected a table of the shape {table.shape} for {variable.path}, got {found}")
    variable.assign(table)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process is the one that writes files; without other workers it is."""
    if not has_workers(strategy):
        return True
    resolver = strategy.cluster_resolver
    first = "chief" if "chief" in resolver.cluster_spec().jobs else "worker"
    return resolver.task_type == first and resolver.task_id == 0


def copy_of_replica(variable: tf.Variable) -> tf.Variable:
    """Returns the copy of a variable that belongs to the device where this code runs, in a replica of a strategy.

    Gathering rows from the distributed variable itself would first read, and after an update copy, all of it
    (TensorFlow 2.21). Outside a replica it returns the variable.
    """
    context = tf.distribute.get_replica_context()
    if context is None:
        return variable
    copies = context.strategy.experimental_local_results(variable)
    return copies[int(tf.get_static_value(context.replica_id_in_sync_group)) % len(copies)]


def local_replicas(strategy: tf.distribute.Strategy) -> list[int]:
    """Returns the numbers of the replicas in this process, out of `strategy.num_replicas_in_sync`."""
    numbers: list[int] = []

    def note(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
        numbers.append(context.replica_id_in_sync_group)
        return tf.constant(0)

    strategy.experimental_distribute_values_from_function(note)
    return numbers


def sum_over_workers(strategy: tf.distribute.Strategy, values: np.ndarray) -> np.ndarray:
    """Returns the sum of every worker's array, all of the same shape; all workers have to call it."""
    if not has_workers(strategy):
        return values
    # The array counts once for the process, however many devices it has.
    parts = itertools.chain([tf.constant(values)], itertools.repeat(tf.zeros_like(values)))
    per_replica = strategy.experimental_distribute_values_from_function(lambda context: next(parts))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None).numpy()


def decided_by_chief(strategy: tf.distribute.Strategy, value: bool) -> bool:
    """Returns the chief's value in all workers; all workers have to call it."""
    return bool(sum_over_workers(strategy, np.array([value and is_chief(strategy)], np.int32))[0])


def by_chief_alone(strategy: tf.distribute.Strategy, function: Callable[[], None]) -> None:
    """Calls a function in the chief, where it may create variables that no other worker has.

    In the scope of the strategy, a new variable would wait for that of all other workers. Saving a Keras model creates
    some (Keras 3.15). A scope does not extend to other threads.
    """
    if not has_workers(strategy):
        function()
    elif is_chief(strategy):
        with ThreadPoolExecutor(1) as thread:
            thread.submit(function).result()
