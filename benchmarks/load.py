"""Clients that ask a server the same request again and again, and what they waited for."""

import base64
import http.client
import math
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

_PATIENCE = 60  # seconds


def ask(url: str, method: str, body: str, clients: int, seconds: float) -> dict[str, Any]:
    """Asks from several threads, each with a connection of its own, every request after the answer to the last one.

    Args:
        url: `http://host:port` or `grpc://host:port`.
        method: path of the request, or name of the gRPC method.
        body: the request as base64; nothing is made or parsed while the clock runs.
        clients: threads.
        seconds: how long they ask.

    Returns:
        Requests answered, those that failed, the seconds that all took; in ms, the wait for the very first answer,
        connecting included, and the median and the 99th percentile of the others.
    """
    content = base64.b64decode(body)
    opened = [_opened(url, method, content) for _ in range(clients)]
    begun = time.perf_counter()
    failed = [not opened[0](), *[0] * (clients - 1)]
    first = time.perf_counter() - begun
    for request in opened[1:]:
        request()  # connects
    waits: list[list[float]] = [[] for _ in opened]
    end = time.perf_counter() + seconds

    def client(number: int) -> None:
        while not waits[number] or time.perf_counter() < end:
            start = time.perf_counter()
            failed[number] += not opened[number]()
            waits[number].append(time.perf_counter() - start)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    every = sorted(wait for one in waits for wait in one)
    return {
        "answered": len(every) - sum(failed),
        "failed": sum(failed),
        "first": 1e3 * first,
        "seconds": took,
        "p50": 1e3 * percentile(every, 0.5),
        "p99": 1e3 * percentile(every, 0.99),
    }


def percentile(ascending: list[float], share: float) -> float:
    """Returns the least value that `share` of the values do not exceed."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


def _opened(url: str, method: str, content: bytes) -> Callable[[], bool]:
    """Returns a function that sends the request, waits for the answer and tells whether it is a good one."""
    address = urlsplit(url)
    if address.scheme == "grpc":
        import grpc

        # Channels to one address would share a connection otherwise.
        channel = grpc.insecure_channel(address.netloc, [("grpc.use_local_subchannel_pool", 1)])
        call = channel.unary_unary(method)

        def by_grpc() -> bool:
            try:
                call(content, timeout=_PATIENCE)
            except grpc.RpcError:
                return False
            return True

        return by_grpc
    connection = http.client.HTTPConnection(address.netloc, timeout=_PATIENCE)

    def by_http() -> bool:
        try:
            connection.request("POST", method, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return False
        return answer.status == 200

    return by_http
