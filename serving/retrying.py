"""Asking again where a failure may pass."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from jobi_tf.errors import JobiError

Answer = TypeVar("Answer")
FIRST_WAIT = 0.2  # seconds, doubled with every attempt


class PassingError(JobiError):
    """The server cannot be reached or is too busy: it has not begun with the request, or not finished it."""


@dataclass(frozen=True)
class Patience:
    """How long and how often a request is sent.

    Args:
        timeout: seconds for all attempts together.
        retries: attempts after the first.
    """

    timeout: float
    retries: int

    def call(self, attempt: Callable[[float], Answer]) -> Answer:
        """Returns what `attempt`, called with the seconds that are left, returns; calls again after a `PassingError`.

        Requests only read, so that one that was answered in vain does no harm.
        """
        end = time.monotonic() + self.timeout
        tried = 0
        while True:
            try:
                return attempt(end - time.monotonic())
            except PassingError as error:
                # The jitter keeps clients that failed together from coming back together.
                wait = FIRST_WAIT * 2**tried * random.uniform(0.5, 1)
                tried += 1
                if tried > self.retries or time.monotonic() + wait >= end:
                    raise JobiError(f"{error} ({tried} attempt{'s' if tried > 1 else ''})") from None
                time.sleep(wait)
