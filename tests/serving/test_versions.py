"""Versions that come, go, and turn out broken."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from jobi_tf.errors import JobiError
from jobi_tf.serving import embedded
from jobi_tf.serving.settings import ServedModel
from tests.serving.conftest import eventually, running
from tests.serving.exports import add_version

ROW = {"head": "entity 1", "relation": "relation 1", "tail": "entity 2"}


def states(server, model="m"):
    """State by version."""
    status, answer = server.ask(f"/v1/models/{model}")
    return {int(one["version"]): one["state"] for one in answer["model_version_status"]} if status == 200 else {}


def score(server, path=""):
    status, answer = server.ask(f"/v1/models/m{path}:predict", {"instances": [ROW]})
    return answer["predictions"][0]["score"] if status == 200 else status


def settled(server, expected):
    eventually(lambda: states(server) == expected)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "m"


def test_a_new_version_is_taken_into_service_without_a_failed_request(tiny, folder):
    run, exports = tiny
    add_version(exports, 1, folder)
    [expected] = run.score([tuple(ROW.values())])
    with running(ServedModel("m", folder)) as server, grpc.insecure_channel(server.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "m"
        for name, value in ROW.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto([value]))

        def by_rest():
            return score(server)

        def by_grpc():
            return stub.Predict(request, timeout=20).outputs["score"].float_val[0]

        stop = threading.Event()

        def ask(call):
            found = []
            while not stop.is_set():
                found.append(call())
            return found

        with ThreadPoolExecutor(8) as threads:
            asking = [threads.submit(ask, call) for call in (by_rest, by_grpc) * 4]
            for number in (2, 3, 4):
                add_version(exports, 2 - number % 2, folder, number)
                settled(server, {i: "AVAILABLE" if i == number else "END" for i in range(1, number + 1)})
            stop.set()
            scores = [x for each in asking for x in each.result()]
    assert len(scores) > 100
    ratios = np.array(scores) / expected
    assert set(np.round(ratios, 4)) == {1.0, 2.0}
    assert [line.split(" at ")[0] for line in server.said if line.startswith("serving")] == [
        f"serving m version {number}" for number in (1, 2, 3, 4)
    ]
    assert "no longer serving m version 1" in server.said


def test_a_version_that_is_in_work_is_kept_until_it_is_done(odd, folder):
    add_version(odd, 1, folder)
    body = {"signature_name": "wait", "inputs": {"seconds": [1.0]}}
    with running(ServedModel("m", folder)) as server, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(server.ask, "/v1/models/m/versions/1:predict", body)
        eventually(lambda: "in_flight 1.0" in server.ask("/metrics")[1])
        add_version(odd, 1, folder, 2)
        settled(server, {2: "AVAILABLE", 1: "UNLOADING"})
        assert server.ask("/v1/models/m/versions/1:predict", body)[0] == 404
        assert asked.result()[0] == 200
        settled(server, {2: "AVAILABLE", 1: "END"})


def test_a_broken_version_does_not_disturb_the_one_that_serves(tiny, folder):
    _, exports = tiny
    add_version(exports, 1, folder)
    with running(ServedModel("m", folder)) as server:
        before = score(server)
        (folder / "2").mkdir()
        settled(server, {2: "END", 1: "AVAILABLE"})
        add_version(exports, 2, folder, 3)
        settled(server, {3: "AVAILABLE", 2: "END", 1: "END"})
        assert score(server) == pytest.approx(2 * before)
        beside = folder / "beside"
        shutil.copytree(exports / "1", beside)
        (beside / "saved_model.pb").write_bytes(b"junk")
        beside.rename(folder / "4")
        settled(server, {4: "END", 3: "AVAILABLE", 2: "END", 1: "END"})
        assert score(server) == pytest.approx(2 * before)
        found = {one["version"]: one["status"] for one in server.ask("/v1/models/m")[1]["model_version_status"]}
        assert found["4"]["error_code"] == "FAILED_PRECONDITION"
        assert "saved_model.pb cannot be read" in found["4"]["error_message"]
        assert str(folder) not in found["4"]["error_message"]
        assert found["3"] == {"error_code": "OK", "error_message": ""}
        assert server.ask("/healthz")[0] == 200
        assert [line for line in server.said if line.startswith("cannot serve m version")] != []
        # A version that is mended is tried again.
        shutil.copy(exports / "1" / "saved_model.pb", folder / "4" / "saved_model.pb")
        settled(server, {4: "AVAILABLE", 3: "END", 1: "END", 2: "END"})
        assert score(server) == pytest.approx(before)


def test_a_version_that_is_copied_slowly(tiny, folder):
    """What has come of it would load, but says nothing of what is known."""
    _, exports = tiny
    add_version(exports, 1, folder)
    part = Path("assets") / "known.bin"
    content = (exports / "2" / part).read_bytes()
    with running(ServedModel("m", folder), poll=0.2) as server:
        shutil.copytree(exports / "2", folder / "2", ignore=shutil.ignore_patterns("known.bin"))
        with (folder / "2" / part).open("wb") as slow:
            for place in range(0, len(content), len(content) // 16):
                slow.write(content[place : place + len(content) // 16])
                slow.flush()
                threading.Event().wait(0.1)
                assert states(server) == {1: "AVAILABLE"}
        settled(server, {2: "AVAILABLE", 1: "END"})
        assert not [line for line in server.said if line.startswith("cannot serve")]


def test_a_version_that_changes_while_it_is_loaded(tiny, folder, monkeypatch):
    _, exports = tiny
    add_version(exports, 1, folder)
    load, loads = embedded._load, []

    def slowly(path):
        loads.append(path)
        if len(loads) == 1:
            (path / "entities.tsv").touch()
        return load(path)

    monkeypatch.setattr(embedded, "_load", slowly)
    with pytest.raises(JobiError, match=r"its files were still changing$"), running(ServedModel("m", folder)):
        pass


def test_weights_or_warm_up_that_are_damaged(tiny, folder):
    _, exports = tiny
    for number in (1, 2, 3):
        add_version(exports, 1, folder, number)
    for path in (folder / "2" / "variables").glob("variables.data*"):
        path.write_bytes(b"")
    (folder / "3" / "assets.extra" / "tf_serving_warmup_requests").write_bytes(b"junk" * 10)
    with running(ServedModel("m", folder)) as server:
        assert states(server) == {3: "END", 2: "END", 1: "AVAILABLE"}
        said = [line for line in server.said if line.startswith("cannot serve")]
        assert len(said) == 2
        assert "warm-up" in said[0]
        assert not any("\n" in line for line in said)


def test_versions_that_are_removed(tiny, folder):
    _, exports = tiny
    for number in (1, 2):
        add_version(exports, number, folder)
    with running(ServedModel("m", folder)) as server:
        assert states(server) == {2: "AVAILABLE"}
        shutil.rmtree(folder / "2")
        settled(server, {1: "AVAILABLE", 2: "END"})
        assert isinstance(score(server), float)
        shutil.rmtree(folder / "1")
        settled(server, {1: "END", 2: "END"})
        assert score(server) == 404
        assert server.ask("/healthz") == (503, "no version available: m\n")
        add_version(exports, 1, folder)
        settled(server, {1: "AVAILABLE", 2: "END"})
        assert server.ask("/healthz")[0] == 200
        folder.rename(folder.with_name("away"))  # what cannot be seen may come back
        threading.Event().wait(0.3)
        assert states(server) == {1: "AVAILABLE", 2: "END"}


def test_which_versions_are_served(tiny, folder):
    _, exports = tiny
    for number in (1, 2, 3):
        add_version(exports, 2 - number % 2, folder, number)
    (folder / "notes").mkdir()
    (folder / "9.txt").write_text("")
    served = [
        ServedModel("m", folder),
        ServedModel("two", folder, latest=2),
        ServedModel("chosen", folder, latest=None, versions=(1, 2, 8)),
        ServedModel("labelled", folder, labels={"stable": 1, "canary": 3}),
    ]
    with running(*served, grpc_port=None) as server:
        found = {model.name: sorted(states(server, model.name)) for model in served}
        assert found == {"m": [3], "two": [2, 3], "chosen": [1, 2], "labelled": [1, 3]}
        assert server.ask("/v1/models/labelled/labels/canary:predict", {"instances": [ROW]})[0] == 200
        assert server.ready == f"serving m version 3 at {server.rest}"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "expected a folder of exported versions for the model m, but there is no .*/m$"),
        (lambda folder: folder.mkdir(), "expected exported versions, in folders named by their numbers, in .*/m"),
        (lambda folder: (folder / "1").mkdir(parents=True), "expected a version of m that can be served .*version 1:"),
    ],
)
def test_nothing_to_serve(folder, make, message):
    make(folder)
    with pytest.raises(JobiError, match=message), running(ServedModel("m", folder)):
        pass
