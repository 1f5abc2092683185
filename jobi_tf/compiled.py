"""Tensor functions that XLA turns into one loop each, on CPUs."""

import functools
from collections.abc import Callable

import tensorflow as tf


def on_gpu() -> bool:
    """Returns whether there is a visible GPU, so that what was made for CPUs alone does not apply."""
    return bool(tf.config.get_visible_devices("GPU"))


def compiled(function: Callable) -> Callable:
    """Compiles a function of tensors by XLA at its first call, on a machine without a GPU.

    On a CPU, TensorFlow's own kernels write every intermediate tensor to memory, once for each operation, and multiply
    many small matrices one by one; XLA does neither. On machines with GPUs the function runs as it is: the gain was
    measured on CPUs, and XLA needs parts of CUDA that many machines lack. Arguments other than tensors have to be
    hashable.
    """

    by_xla = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def call(*arguments):  # type: ignore[no-untyped-def]
        return (function if on_gpu() else by_xla)(*arguments)

    return call


def unique(ids: tf.Tensor, xla: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the distinct ids and the place of each id among them, int32: [N] → [U], [N].

    In a caller that XLA compiles as a whole, which has to know U, repeated ids stay: U = N.
    """
    return (ids, tf.range(tf.size(ids))) if xla else tf.unique(ids)


def compiled_with_gradient(function: Callable) -> Callable:
    """Compiles a function and its gradient, but not on GPUs, as `compiled`. The gradient computes the function again.

    The function takes any other arguments first, and then tensors, and returns one tensor.
    """
    forward = compiled(function)

    @compiled
    def backward(upstream: tf.Tensor, fixed: int, *arguments):  # type: ignore[no-untyped-def]
        with tf.GradientTape() as tape:
            tape.watch(arguments[fixed:])
            result = function(*arguments)
        return tape.gradient(result, arguments[fixed:], upstream, tf.UnconnectedGradients.ZERO)

    @functools.wraps(function)
    def call(*arguments):  # type: ignore[no-untyped-def]
        if on_gpu():
            return function(*arguments)
        fixed = sum(not tf.is_tensor(x) for x in arguments)

        @tf.custom_gradient
        def run(*tensors: tf.Tensor):  # type: ignore[no-untyped-def]
            every = *arguments[:fixed], *tensors
            return forward(*every), lambda upstream: backward(upstream, fixed, *every)

        return run(*arguments[fixed:])

    return call
