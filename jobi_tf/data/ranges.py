"""Many ranges of whole numbers at once."""

import numpy as np


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns start, start + 1, … of each range, one range behind the other: int64 [N] both → [sum of lengths]."""
    return np.arange(lengths.sum()) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
