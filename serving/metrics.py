"""What Prometheus is told of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from .errors import Code

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class Metrics:
    """Counters of one server, in a registry of their own.

    Args:
        versions: gives model, number and state of every version.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, versions: Callable[[], Iterable[tuple[str, int, str]]]) -> None:
        self._registry = CollectorRegistry()
        self._versions = versions
        asked = ["model", "protocol", "signature"]
        requests = Counter(
            "jobi_tf_requests", "Requests that were answered, by gRPC status code.", [*asked, "code"],
            registry=self._registry,
        )  # fmt: skip
        seconds = Histogram(
            "jobi_tf_request_seconds", "Time from a request's head to its answer.", asked, buckets=_SECONDS,
            registry=self._registry,
        )  # fmt: skip
        rows = Histogram(
            "jobi_tf_batch_rows", "Rows that were computed together.", ["model", "signature"], buckets=_ROWS,
            registry=self._registry,
        )  # fmt: skip
        self._in_flight = Gauge("jobi_tf_requests_in_flight", "Requests in work.", registry=self._registry)
        # The names are those of models and signatures that exist, so that there are few.
        self._requests = lru_cache(4096)(requests.labels)
        self._seconds = lru_cache(1024)(seconds.labels)
        self._rows = lru_cache(1024)(rows.labels)
        self._registry.register(self)

    def answered(self, model: str, protocol: str, signature: str, code: Code, seconds: float) -> None:
        """Counts an answer. Names that are not those of a model and its signature must come as an empty text."""
        self._requests(model, protocol, signature, code.name).inc()
        self._seconds(model, protocol, signature).observe(seconds)

    def computed(self, model: str, signature: str, rows: int) -> None:
        """Counts a batch."""
        self._rows(model, signature).observe(rows)

    def in_flight(self, count: int) -> None:
        """Notes how many requests are in work."""
        self._in_flight.set(count)

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Gives the states of the versions as they are now; the registry asks for them."""
        family = GaugeMetricFamily("jobi_tf_model_version", "1 for the state that a version is in.", labels=[
            "model", "version", "state",
        ])  # fmt: skip
        for model, number, state in self._versions():
            family.add_metric([model, str(number), state], 1)
        yield family

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Tells the registry not to ask for values yet."""
        return []
