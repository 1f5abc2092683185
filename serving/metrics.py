"""Metrics for Prometheus."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from .errors import ServingError

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_signature: ContextVar[str] = ContextVar("signature")  # of the current request


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        labels = ["protocol", "signature"]
        self._requests = Counter("jobi_tf_requests", "Requests by code of gRPC.", [*labels, "code"], registry=registry)
        self._seconds = Histogram(
            "jobi_tf_request_seconds", "Time from head to answer.", labels, buckets=_SECONDS, registry=registry
        )
        self.in_flight = Gauge("jobi_tf_requests_in_flight", "Requests being computed.", registry=registry)
        self.rows = Histogram(
            "jobi_tf_batch_rows", "Rows computed together.", ["signature"], buckets=_ROWS, registry=registry
        )
        self.version = Gauge(
            "jobi_tf_model_version", "1 for the state of a version.", ["version", "state"], registry=registry
        )

    @contextmanager
    def request(self, protocol: str) -> Iterator[None]:
        """Counts and times a request."""
        _signature.set("")
        start = time.perf_counter()
        code = "OK"
        try:
            yield
        except ServingError as error:
            code = error.code.name
            raise
        except BaseException as error:
            code = "INTERNAL" if isinstance(error, Exception) else "CANCELLED"
            raise
        finally:
            self._requests.labels(protocol, _signature.get(), code).inc()
            self._seconds.labels(protocol, _signature.get()).observe(time.perf_counter() - start)

    def signature(self, name: str) -> None:
        """Notes the signature of the current request, which must exist, so that there are few."""
        _signature.set(name)
