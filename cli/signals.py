"""Signals that end a command."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_as_interrupted() -> Iterator[None]:
    """Lets a job that is told to end (by a scheduler, say) stop as one that a person interrupts: KeyboardInterrupt."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
