"""Requests that are computed together."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jobi_tf.serving.batcher import Batcher
from jobi_tf.serving.errors import Refusal, invalid
from tests.serving.conftest import eventually


class Doubling:
    """Doubles numbers, refuses negative ones, and holds each batch until it is let go."""

    def __init__(self):
        self.sizes = []
        self.go = threading.Event()

    def __call__(self, inputs):
        self.sizes.append(len(inputs["x"]))
        assert self.go.wait(10)
        if (inputs["x"] < 0).any():
            raise invalid(f"negative: {inputs['x'].min()}")
        return {"y": 2 * inputs["x"]}


def outcomes(requests, batch_rows=8, wait=0.0, at_once=False):
    """Submits requests while the first is computed; returns what comes of each and the sizes of the batches."""
    doubling = Doubling()
    computed = []

    async def ask():
        with ThreadPoolExecutor(2) as threads:
            batcher = Batcher(doubling, threads, batch_rows, wait, computed.append)
            tasks = [asyncio.ensure_future(batcher.submit({"x": np.array(x)}, len(x))) for x in requests]
            while not doubling.sizes:
                await asyncio.sleep(0.001)
            if not at_once:
                await asyncio.sleep(0.02)
            doubling.go.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(ask())
    return [x["y"].tolist() if isinstance(x, dict) else x for x in found], doubling.sizes, computed


def test_what_comes_meanwhile_is_computed_together():
    found, sizes, computed = outcomes([[1], [2, 3], [4], [5]])
    assert found == [[2], [4, 6], [8], [10]]
    assert sizes == computed == [1, 4]


def test_a_batch_has_a_most():
    found, sizes, _ = outcomes([[0], [1] * 5, [2] * 3, [3], [4] * 8, [5]])
    assert found == [[0], [2] * 5, [4] * 3, [6], [8] * 8, [10]]
    assert sizes == [1, 8, 1, 8, 1]


def test_a_large_request_is_computed_in_parts_and_others_get_in_between():
    found, sizes, _ = outcomes([list(range(20)), [7]])
    assert found == [list(range(0, 40, 2)), [14]]
    assert sizes[0] == 8
    assert sum(sizes) == 21
    assert sizes.index(1) < len(sizes) - 1 or max(sizes) > 4


def test_only_those_at_fault_fail():
    found, sizes, _ = outcomes([[0], [1, 2], [-3], [4], [5, -6]])
    assert [found[i] for i in (0, 1, 3)] == [[0], [2, 4], [8]]
    assert [str(found[i]) for i in (2, 4)] == ["negative: -3", "negative: -6"]
    assert all(isinstance(found[i], Refusal) for i in (2, 4))
    assert sizes == [1, 6, 2, 1, 1, 2]


def test_rows_of_other_shapes_are_not_joined():
    found, sizes, _ = outcomes([[[0]], [[1]], [[2, 3]], [[4, 5]], [[6]]])
    assert found == [[[0]], [[2]], [[4, 6]], [[8, 10]], [[12]]]
    assert sizes == [1, 1, 2, 1]


def test_requests_without_rows_are_computed_alone():
    found, sizes, _ = outcomes([[1, 2], [3], [4]], batch_rows=None)
    assert found == [[2, 4], [6], [8]]
    assert sizes == [2, 1, 1]


def test_requests_may_wait_for_others():
    found, sizes, _ = outcomes([[1], [2], [3]], wait=0.05)
    assert found == [[2], [4], [6]]
    assert sizes == [3]
    assert outcomes([[1] * 4, [2] * 4, [3]], wait=60, at_once=True)[1][0] == 8  # a full batch does not wait


def test_no_rows():
    assert outcomes([[]])[0] == [[]]


def test_a_request_that_was_given_up_is_not_computed():
    doubling = Doubling()

    async def ask():
        with ThreadPoolExecutor(1) as threads:
            batcher = Batcher(doubling, threads, 8)
            tasks = [asyncio.ensure_future(batcher.submit({"x": np.array([i])}, 1)) for i in range(3)]
            await asyncio.sleep(0.02)
            tasks[1].cancel()
            await asyncio.sleep(0)
            doubling.go.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(ask())
    assert [found[0]["y"].tolist(), found[2]["y"].tolist()] == [[0], [4]]
    assert isinstance(found[1], asyncio.CancelledError)
    assert doubling.sizes == [1, 1]


def test_an_error_that_is_no_refusal_tells_nothing_but_to_the_log(caplog):
    async def ask():
        with ThreadPoolExecutor(1) as threads:
            return await Batcher(lambda inputs: 1 / 0, threads, 8).submit({"x": np.zeros(1)}, 1)

    with pytest.raises(Refusal, match=r"^the computation failed: the server's log says why$") as caught:
        asyncio.run(ask())
    assert caught.value.http == 500
    assert "ZeroDivisionError" in caplog.text


def test_the_server_joins_requests(server):
    """While one request is computed, eight others come."""
    batches = 'jobi_tf_batch_rows_count{model="odd",signature="wait"} '
    with ThreadPoolExecutor(9) as threads:

        def ask(seconds):
            body = {"signature_name": "wait", "inputs": {"seconds": [seconds]}}
            return server.predict(body, "odd")

        assert ask(0)[0] == 200
        count = server.ask("/metrics")[1].split(batches)[1].split()[0]
        first = threads.submit(ask, 0.5)
        eventually(lambda: f"{batches}{float(count) + 1}" in server.ask("/metrics")[1])
        others = [threads.submit(ask, 0.001) for _ in range(8)]
        assert first.result()[1]["outputs"]["rows"] == [1]
        rows = [other.result()[1]["outputs"]["rows"][0] for other in others]
    assert max(rows) > 1


def test_the_server_spares_those_that_are_not_at_fault(server):
    def ask(head):
        inputs = {"head": [head], "relation": ["relation 0"]}
        return server.predict({"signature_name": "predict_tails", "inputs": inputs})

    with ThreadPoolExecutor(8) as threads:
        heads = ["entity 1", "nobody", "entity 2", "entity 3"] * 25
        for head, (status, answer) in zip(heads, threads.map(ask, heads), strict=True):
            assert status == (400 if head == "nobody" else 200), answer
