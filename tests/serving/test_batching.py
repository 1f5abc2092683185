"""Requests that are computed together."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from jobi_tf.serving.metrics import Metrics
from jobi_tf.serving.saved_model import BATCH_ROWS, Signature
from tests.serving.conftest import eventually, running


class Session:
    """Doubles numbers, fails for negative ones, and holds each batch until `go` is set."""

    def __init__(self):
        self.sizes = []
        self.go = threading.Event()

    def make_callable(self, fetches, feeds):
        def call(x):
            self.sizes.append(len(x))
            assert self.go.wait(10)
            if (x < 0).any():
                raise ValueError
            return [2 * x]

        return call


def definition():
    shape = tf.TensorShape([None]).as_proto()
    info = meta_graph_pb2.TensorInfo(name="x", dtype=tf.int64.as_datatype_enum, tensor_shape=shape)
    return meta_graph_pb2.SignatureDef(inputs={"x": info}, outputs={"y": info})


def outcomes(requests, cancelled=()):
    """Submits requests while the first is computed; returns what comes of each, and the sizes of the batches."""
    session = Session()

    async def submit():
        with ThreadPoolExecutor(2) as threads:
            signature = Signature("doubling", definition(), session, threads, Metrics())
            tasks = []
            for x in requests:
                tasks.append(asyncio.create_task(signature.predict({"x": np.array(x, np.int64)}, len(x))))
                while not session.sizes:
                    await asyncio.sleep(0.001)
            for i in cancelled:
                tasks[i].cancel()
            await asyncio.sleep(0.02)
            session.go.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(submit())
    return [x["y"].tolist() if isinstance(x, dict) else type(x) for x in found], session.sizes


def test_requests_that_come_meanwhile_are_computed_together():
    assert outcomes([[1], [2, 3], [], [4]]) == ([[2], [4, 6], [], [8]], [1, 3])


def test_a_batch_has_a_limit():
    found, sizes = outcomes([[0], [1] * (BATCH_ROWS - 1), [2], [3] * BATCH_ROWS, [4]])
    assert found == [[0], [2] * (BATCH_ROWS - 1), [4], [6] * BATCH_ROWS, [8]]
    assert sizes == [1, BATCH_ROWS, BATCH_ROWS, 1]


def test_requests_that_were_given_up_are_not_computed():
    found, sizes = outcomes([[1], [2] * BATCH_ROWS, [3] * BATCH_ROWS, [4]], cancelled=[2])
    assert [found[i] for i in (0, 1, 3)] == [[2], [4] * BATCH_ROWS, [8]]
    assert found[2] is asyncio.CancelledError
    assert sizes == [1, BATCH_ROWS, 1]


def test_a_batch_that_fails():
    found, sizes = outcomes([[1] * BATCH_ROWS, [-1], [5] * BATCH_ROWS])
    assert found == [[2] * BATCH_ROWS, ValueError, [10] * BATCH_ROWS]
    assert sizes == [BATCH_ROWS, 1, BATCH_ROWS]


def test_the_server_computes_requests_together(odd, release):
    body = {"signature_name": "count", "inputs": {"x": [1]}}
    with running(odd) as server, ThreadPoolExecutor(3) as threads:
        first = threads.submit(server.predict, body)
        eventually(lambda: 'jobi_tf_batch_rows_count{signature="count"} 1.0' in server.metrics())
        others = [threads.submit(server.predict, body) for _ in range(2)]
        eventually(lambda: "jobi_tf_requests_in_flight 3.0" in server.metrics())
        release.set()
        assert first.result()[1]["outputs"]["rows"] == [1]
        assert [other.result()[1]["outputs"]["rows"] for other in others] == [[2], [2]]


@pytest.mark.parametrize("count", [1, 2500])
def test_answers_do_not_depend_on_the_batch(server, tiny, count):
    """Requests with other numbers of rows and of answers, at the same time; large ones are computed in parts."""
    queries = [(f"entity {i % 30}", f"relation {i % 4}") for i in range(max(count, 12))]
    best = {query: [x.entity for x in tiny[0].tails(*query, 30)] for query in set(queries)}

    def send(i):
        part, k = ([queries[i]], 1 + i) if count == 1 else (queries, 2 + i)
        heads, relations = zip(*part, strict=True)
        inputs = {"head": heads, "relation": relations, "k": [k] * len(part)}
        status, answer = server.predict({"signature_name": "predict_tails", "inputs": inputs})
        assert status == 200, answer
        assert answer["outputs"]["tail"] == [best[query][:k] for query in part]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(send, range(12 if count == 1 else 3)))


def test_too_many_answers_for_a_request(server):
    inputs = {"head": ["entity 1"] * 2, "relation": ["relation 1"] * 2, "k": [1, 2**20]}
    status, answer = server.predict({"signature_name": "predict_tails", "inputs": inputs})
    assert (status, "1,048,576" in answer["error"]) == (400, True)


def test_one_request_with_many_numbers_of_answers(server, tiny):
    ks = [i % 5 for i in range(600)]
    inputs = {"head": ["entity 1"] * 600, "relation": ["relation 1"] * 600, "k": ks}
    status, answer = server.predict({"signature_name": "predict_tails", "inputs": inputs})
    assert status == 200
    best = [x.entity for x in tiny[0].tails("entity 1", "relation 1", 4)]
    assert answer["outputs"]["tail"] == [best[:k] + [""] * (4 - k) for k in ks]
