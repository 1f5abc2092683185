"""Tensor functions that XLA turns into one loop each, on processors."""

import functools
from collections.abc import Callable

import tensorflow as tf


def compiled(function: Callable) -> Callable:
    """Compiles a function of tensors by XLA at its first call, on a machine without GPU.

    On a processor, TensorFlow's own kernels write every intermediate tensor to memory, once for each operation, and
    multiply many small matrices one by one; XLA does neither. Where there are GPUs the function runs as it is: the
    gains were measured on processors, and XLA needs parts of CUDA that many machines lack. Arguments that are no
    tensors have to be hashable.
    """

    @functools.cache
    def prepared() -> Callable:
        if tf.config.list_physical_devices("GPU"):
            return function
        return tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def call(*arguments):  # type: ignore[no-untyped-def]
        return prepared()(*arguments)

    return call
