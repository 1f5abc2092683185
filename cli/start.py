"""Start of TensorFlow, without its messages about drivers and compiler flags."""

import gc
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

# What TensorFlow 2.21 writes before it reads TF_CPP_MIN_LOG_LEVEL: notes and warnings (I, W), and errors about CUDA on
# machines that have none. Everything else passes.
_NOISE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog|[IW]\d{4} |E\d{4} .*(cuInit|Unable to register cu|cuda_)"
)


def start_tensorflow(keras: bool = True) -> None:
    """Imports TensorFlow, quietly unless the environment sets `TF_CPP_MIN_LOG_LEVEL` to 0 or 1.

    Args:
        keras: let TensorFlow import Keras, which takes a second.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if not keras:
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # another Keras, which is imported only if it is used
    gc.disable()  # garbage collections take a fifth of the time of the imports
    with nullcontext() if os.environ.get("TF_CPP_MIN_LOG_LEVEL") in ("0", "1") else _without_noise():
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow as tf

        tf.get_logger().setLevel("ERROR")  # warnings about retracing are of no use to who runs a command
        # Looking for GPUs is what complains about missing drivers; here it does so once.
        tf.config.list_physical_devices("GPU")
    gc.freeze()  # later collections leave out what was imported
    gc.enable()


@contextmanager
def _without_noise() -> Iterator[None]:
    terminal = os.dup(2)
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


# Settings of the GNU C library's allocator, which reads them when a process starts.
_ALLOCATOR = {"arena_max": 1, "mmap_threshold": 32 * 2**20, "trim_threshold": 2**31 - 1, "hugetlb": 1}


def keep_memory() -> None:
    """Starts this process again with an allocator that keeps freed memory and takes it from the system in large pages.

    Every training step needs the same few hundred megabytes again, and getting them from the system costs a page fault
    for each 4 kB. One arena serves all threads, since what one of them frees in its own arena is of no use to others.
    Pages of 2 MB make the rows of large tables faster to reach. Nothing happens if the environment has `GLIBC_TUNABLES`
    already, or the C library is another one.
    """
    if "GLIBC_TUNABLES" in os.environ or "CS_GNU_LIBC_VERSION" not in getattr(os, "confstr_names", {}):
        return
    os.environ["GLIBC_TUNABLES"] = ":".join(f"glibc.malloc.{name}={value}" for name, value in _ALLOCATOR.items())
    with suppress(OSError):  # without it training is only slower
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
