"""What Prometheus reads."""

from prometheus_client.parser import text_string_to_metric_families

from tests.serving.conftest import running


def samples(server):
    """Value by name and labels."""
    status, text = server.send("/monitoring/prometheus/metrics")
    assert status == 200
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def key(name, **labels):
    return name, *sorted(labels.items())


def test_requests_without_the_token_are_counted(first):
    with running(first, token="secret") as server:
        assert server.predict({"instances": []})[0] == 401
        status, text = server.send("/metrics", headers={"authorization": "Bearer secret"})
    assert status == 200
    assert 'jobi_tf_requests_total{code="UNAUTHENTICATED",protocol="rest",signature=""} 1.0' in text


def test_requests_are_counted(first):
    row = {"head": "entity 1", "relation": "relation 1", "tail": "entity 2"}
    with running(first) as server:
        for _ in range(3):
            assert server.predict({"instances": [row] * 7})[0] == 200
        assert server.predict({"signature_name": "embed", "inputs": [1]})[0] == 400
        assert server.predict({"signature_name": "made-up", "inputs": [1]})[0] == 400
        found = samples(server)
    scored = {"protocol": "rest", "signature": "serving_default"}
    assert found[key("jobi_tf_requests_total", **scored, code="OK")] == 3
    assert found[key("jobi_tf_request_seconds_count", **scored)] == 3
    assert found[key("jobi_tf_batch_rows_sum", signature="serving_default")] == 21
    assert found[key("jobi_tf_batch_rows_bucket", signature="serving_default", le="8.0")] == 3
    assert found[key("jobi_tf_requests_total", protocol="rest", signature="embed", code="INVALID_ARGUMENT")] == 1
    # Names that a client makes up do not become series.
    assert found[key("jobi_tf_requests_total", protocol="rest", signature="", code="FAILED_PRECONDITION")] == 1
    assert not any("made-up" in str(sample) for sample in found)
    assert found[key("jobi_tf_model_version", version="1", state="AVAILABLE")] == 1
    assert found[key("jobi_tf_requests_in_flight")] == 0
