"""What Prometheus is told."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jobi_tf.serving.settings import ServedModel
from tests.serving.conftest import running


@pytest.fixture(scope="module")
def fresh(tiny):
    with running(ServedModel("tiny", tiny[1])) as server:
        yield server


def samples(server, path="/metrics"):
    """Value by name and labels."""
    status, text = server.ask(path)
    assert status == 200
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def key(name, **labels):
    return name, *sorted(labels.items())


def test_requests_are_counted(fresh):
    row = {"head": "entity 1", "relation": "relation 1", "tail": "entity 2"}
    for _ in range(3):
        assert fresh.predict({"instances": [row] * 7})[0] == 200
    assert fresh.predict({"signature_name": "embed", "inputs": [1]})[0] == 400
    assert fresh.predict({"signature_name": "made-up", "inputs": [1]})[0] == 400
    assert fresh.predict({"inputs": [1]}, "made-up")[0] == 404
    found = samples(fresh)
    scored = {"model": "tiny", "protocol": "rest", "signature": "serving_default"}
    assert found[key("jobi_tf_requests_total", **scored, code="OK")] == 3
    assert found[key("jobi_tf_request_seconds_count", **scored)] == 3
    assert 0 < found[key("jobi_tf_request_seconds_sum", **scored)] < 10
    rows = {"model": "tiny", "signature": "serving_default"}
    assert found[key("jobi_tf_batch_rows_sum", **rows)] == 21
    assert found[key("jobi_tf_batch_rows_bucket", **rows, le="8.0")] == 3
    embedded = scored | {"signature": "embed"}
    assert found[key("jobi_tf_requests_total", **embedded, code="INVALID_ARGUMENT")] == 1
    # Names that somebody makes up do not become series.
    assert found[key("jobi_tf_requests_total", **scored | {"signature": ""}, code="INVALID_ARGUMENT")] == 1
    assert found[key("jobi_tf_requests_total", **scored | {"model": "", "signature": ""}, code="NOT_FOUND")] == 1
    assert not any("made-up" in str(sample) for sample in found)


def test_versions_and_requests_in_work(fresh):
    found = samples(fresh, "/monitoring/prometheus/metrics")
    assert found[key("jobi_tf_model_version", model="tiny", version="2", state="AVAILABLE")] == 1
    assert found[key("jobi_tf_requests_in_flight")] == 0
    assert not any(dict(labels).get("version") == "1" for _, *labels in found)


def test_the_text_is_prometheus_own(fresh):
    assert "# TYPE jobi_tf_request_seconds histogram" in fresh.ask("/metrics")[1]
    assert fresh.ask("/metrics", b"", method="POST")[0] == 405
