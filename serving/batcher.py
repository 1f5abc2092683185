"""Rows of several requests, computed together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from .errors import Code, Refusal, invalid, refusal

Arrays = Mapping[str, np.ndarray]
Compute = Callable[[Arrays], dict[str, np.ndarray]]
Results = list[dict[str, np.ndarray] | Exception]


@dataclass(eq=False)
class _Part:
    """Rows of one request that wait to be computed, and where their outputs go."""

    inputs: Arrays
    rows: int
    done: asyncio.Future[dict[str, np.ndarray]] = field(repr=False)

    @property
    def form(self) -> list[tuple[int, ...]]:
        """What must be equal for parts to be joined: the shape of a row of each input."""
        return [array.shape[1:] for array in self.inputs.values()]


class Batcher:
    """Computes requests to one signature, one batch at a time; those that come meanwhile make up the next batch.

    A request that finds nothing in computation goes at once. A request with more rows than a batch is computed in
    parts. When a batch fails, its requests are computed one by one, so that only those that are at fault fail.

    Args:
        compute: maps arrays [B, ...] by name to outputs [B, ...] by name; runs in a thread.
        threads: where it runs.
        batch_rows: rows that are computed together at most; None never joins or splits, for inputs without rows.
        wait: seconds that a request waits at most for others.
        computed: is told the number of rows of each batch.
    """

    def __init__(
        self,
        compute: Compute,
        threads: Executor,
        batch_rows: int | None,
        wait: float = 0.0,
        computed: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._compute = compute
        self._threads = threads
        self._batch_rows = batch_rows
        self._wait = wait
        self._computed = computed
        self._parts: deque[_Part] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None

    async def submit(self, inputs: Arrays, rows: int) -> dict[str, np.ndarray]:
        """Computes the outputs of a request.

        Raises:
            Refusal: the model refuses it.
        """
        size = rows if self._batch_rows is None else self._batch_rows
        if rows <= size:
            return await self._submit(inputs, rows)
        # One after the other, so that smaller requests get in between, and the rest is left when one fails.
        parts = [
            await self._submit(_rows(inputs, start, start + size), min(size, rows - start))
            for start in range(0, rows, size)
        ]
        return _joined(parts)

    async def _submit(self, inputs: Arrays, rows: int) -> dict[str, np.ndarray]:
        loop = asyncio.get_running_loop()
        part = _Part(inputs, rows, loop.create_future())
        self._parts.append(part)
        self._wake(loop)
        return await part.done

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._busy:
            return
        full = self._batch_rows is not None and sum(part.rows for part in self._parts) >= self._batch_rows
        if self._wait > 0 and not full:
            if self._timer is None:
                self._timer = loop.call_later(self._wait, self._start, loop)
            return
        self._start(loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch = self._next()
        if batch:
            self._busy = True
            computing = loop.run_in_executor(self._threads, self._results, [part.inputs for part in batch])
            computing.add_done_callback(lambda results: self._finish(loop, batch, results))

    def _next(self) -> list[_Part]:
        """Takes the parts of the next batch off the queue, oldest first."""
        batch: list[_Part] = []
        rows = 0
        while self._parts:
            part = self._parts[0]
            if part.done.done():  # its request was given up
                self._parts.popleft()
                continue
            if batch and (
                self._batch_rows is None or rows + part.rows > self._batch_rows or part.form != batch[0].form
            ):
                break
            batch.append(self._parts.popleft())
            rows += part.rows
        if batch:
            self._computed(rows)
        return batch

    def _results(self, batch: list[Arrays]) -> Results:
        """Computes a batch, in a thread."""
        try:
            if len(batch) == 1:
                return [self._compute(batch[0])]
            return _split(self._compute(_joined(batch)), [len(next(iter(inputs.values()))) for inputs in batch])
        except Exception as error:
            if len(batch) == 1:
                return [error]
            return [result for inputs in batch for result in self._results([inputs])]

    def _finish(self, loop: asyncio.AbstractEventLoop, batch: list[_Part], results: asyncio.Future[Results]) -> None:
        self._busy = False
        try:
            outcomes: Results = results.result()
        except (Exception, asyncio.CancelledError) as error:  # the pool is closed
            outcomes = [Refusal(Code.UNAVAILABLE, f"the server is stopping ({type(error).__name__})")] * len(batch)
        for part, outcome in zip(batch, outcomes, strict=True):
            if part.done.done():
                continue
            if isinstance(outcome, Exception):
                part.done.set_exception(refusal(outcome))
            else:
                part.done.set_result(outcome)
        if self._parts:
            self._start(loop)


def _rows(inputs: Arrays, start: int, end: int) -> Arrays:
    return {name: array[start:end] for name, array in inputs.items()}


def _joined(batch: list[dict[str, np.ndarray]] | list[Arrays]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([arrays[name] for arrays in batch]) for name in batch[0]}


def _split(outputs: dict[str, np.ndarray], rows: list[int]) -> Results:
    """Gives each request its rows of the outputs of a batch."""
    total = sum(rows)
    for name, array in outputs.items():
        if array.shape[:1] != (total,):
            raise invalid(f"Tensor name: {name} has inconsistent batch size: {array.shape[:1]} expecting: {total}")
    ends = np.cumsum(rows).tolist()
    return [dict(_rows(outputs, end - count, end)) for end, count in zip(ends, rows, strict=True)]
