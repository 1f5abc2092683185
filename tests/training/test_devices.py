import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A process can split the CPU only before TensorFlow starts, so this one is another."""
    root = Path(__file__).resolve().parents[2]
    script = [sys.executable, "-m", "tests.training.two_devices", str(tmp_path_factory.mktemp("runs"))]
    done = subprocess.run(script, cwd=root, env=os.environ.copy(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_twenty_steps_on_two_devices_give_the_weights_of_one(found):
    assert found["replicas"] == 2
    assert found["moved"] > 0.05
    assert found["weights"] < 1e-5
    assert found["gap_between_replicas"] == 0
    assert found["by_row"] < 1e-5
    assert found["conve"] < 1e-4


def test_and_its_metrics(found):
    one, both = found["rows"]
    assert len(one) == 2
    for a, b in zip(one, both, strict=True):
        assert a == pytest.approx(b, rel=1e-5)
        assert "val_hits@10" in a


def test_a_run_on_two_devices_resumes_to_the_same_end(found):
    assert found["resumed"] == 0


def test_ranks_on_two_devices_are_those_of_one(found):
    assert found["ranks"] == 101
    assert found["ranks_equal"]
    assert found["candidates_equal"]


def test_a_batch_that_two_devices_cannot_share_is_refused_and_leaves_nothing(found):
    assert "batch_size" in found["refused"]
    assert "batch_size" in found["refused_chunks"]
    assert not found["odd"]
