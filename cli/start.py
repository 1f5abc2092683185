"""Start of TensorFlow, without its messages about drivers and compiler flags."""

import ctypes
import gc
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

# What TensorFlow 2.21 writes before it reads TF_CPP_MIN_LOG_LEVEL: notes and warnings (I, W), and errors about CUDA on
# machines that have none. Everything else passes.
_NOISE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog|[IW]\d{4} |E\d{4} .*(cuInit|Unable to register cu|cuda_)"
)


def start_tensorflow(keras: bool = True) -> None:
    """Imports TensorFlow, quietly unless the environment sets `TF_CPP_MIN_LOG_LEVEL`.

    Args:
        keras: let TensorFlow import Keras, which takes a second.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if not keras:
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # another Keras, which is imported only if it is used
    gc.disable()  # garbage collections take a fifth of the time of the imports
    with nullcontext() if "TF_CPP_MIN_LOG_LEVEL" in os.environ else _without_noise():
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow as tf

        tf.get_logger().setLevel("ERROR")  # warnings about retracing are of no use to who runs a command
        # Looking for GPUs is what complains about missing drivers; here it does so once.
        tf.config.list_physical_devices("GPU")
    gc.freeze()  # later collections leave out what was imported
    gc.enable()


@contextmanager
def _without_noise() -> Iterator[None]:
    try:
        terminal = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            output.seek(0)
            for line in output:
                if not _NOISE.match(line):
                    os.write(2, line)


# From malloc.h of the GNU C library.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGEST_MMAP_THRESHOLD = 32 * 2**20


def keep_memory() -> None:
    """Makes the allocator of this process keep freed memory for the next training step.

    Every step needs the same few hundred megabytes again; getting them from the system costs a page fault for every 4
    kB. Call it before TensorFlow starts its threads: each would otherwise make an arena of its own, whose freed blocks
    serve no other thread. It changes the whole process, and does nothing if the C library is not GNU's.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    mallopt(_TRIM_THRESHOLD, 2**31 - 1)
