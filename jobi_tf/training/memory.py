"""Memory that a training step can use again."""

import ctypes

# From malloc.h of the GNU C library.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGEST_MMAP_THRESHOLD = 32 * 2**20


def keep_memory() -> None:
    """Makes the allocator keep what is freed, for the next step, instead of giving it back to the system.

    Every step needs the same few hundred megabytes again; getting them anew costs a page fault for every 4 kB. Call it
    before TensorFlow's threads begin: each that finds no rule against it makes an arena of its own, and blocks freed in
    one arena serve no other. Changes the whole process, and does nothing where the C library is not GNU's.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    mallopt(_TRIM_THRESHOLD, 2**31 - 1)
