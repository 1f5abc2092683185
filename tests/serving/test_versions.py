"""Versions that are added, removed, and broken."""

import asyncio
import os
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
from jobi_tf.serving import Client, model, saved_model
from jobi_tf.serving.metrics import Metrics
from jobi_tf.serving.settings import ServerSettings
from tests.serving.conftest import eventually, running
from tests.serving.exports import add_version

ROW = {"head": "entity 1", "relation": "relation 1", "tail": "entity 2"}


def states(server):
    """State by version."""
    return {int(x["version"]): x["state"] for x in server.send("/v1/models/m")[1]["model_version_status"]}


def score(server, path=""):
    status, answer = server.send(f"/v1/models/m{path}:predict", {"instances": [ROW]})
    assert status == 200, answer
    return answer["predictions"][0]["score"]


def settled(server, expected):
    eventually(lambda: states(server) == expected)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "m"


def test_all_parts_of_a_long_list_are_answered_by_one_version(tiny, folder):
    _, exports = tiny
    add_version(exports, 1, folder)
    with running(folder) as server, Client(server.url) as client:
        asked = []

        def replace(response):
            asked.append(response.url.path.removeprefix("/v1/models/m"))
            if asked[-1] == "/versions/1:predict" and asked.count(asked[-1]) == 1:
                add_version(exports, 2, folder)
                settled(server, {1: "END", 2: "AVAILABLE"})

        client._http.event_hooks["response"] = [replace]
        assert client.score([tuple(ROW.values())] * 1025).known.sum() == 1025
    first, second = (f"/versions/{i}:predict" for i in (1, 2))
    assert asked == ["", first, first, "", second, second]


def test_a_new_version_is_served_without_a_lost_request(tiny, folder):
    run, exports = tiny
    add_version(exports, 1, folder)
    [expected] = run.score([tuple(ROW.values())])
    with running(folder) as server, grpc.insecure_channel(server.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "m"
        for name, value in ROW.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto([value]))

        def by_grpc():
            return stub.Predict(request, timeout=20).outputs["score"].float_val[0]

        stop = threading.Event()

        def load(call):
            found = []
            while not stop.is_set():
                found.append(call())
            return found

        with ThreadPoolExecutor(8) as threads:
            clients = [threads.submit(load, call) for call in (lambda: score(server), by_grpc) * 4]
            for number in (2, 3, 4):
                add_version(exports, 2 - number % 2, folder, number)
                settled(server, {i: "AVAILABLE" if i == number else "END" for i in range(1, number + 1)})
            stop.set()
            scores = [x for client in clients for x in client.result()]
    assert len(scores) > 100
    assert set(np.round(np.array(scores) / expected, 4)) == {1.0, 2.0}
    served = [f"serving m version {number}" for number in (1, 2, 3, 4)]
    assert [line.split(" at ")[0] for line in server.log if line.startswith("serving")] == served
    assert "no longer serving m version 1" in server.log


def test_a_version_in_use_is_kept(odd, folder, release):
    add_version(odd, 1, folder)
    body = {"signature_name": "count", "inputs": {"x": [1]}}
    with running(folder) as server, ThreadPoolExecutor(1) as threads:
        slow = threads.submit(server.send, "/v1/models/m/versions/1:predict", body)
        eventually(lambda: "in_flight 1.0" in server.metrics())
        add_version(odd, 1, folder, 2)
        settled(server, {2: "AVAILABLE", 1: "UNLOADING"})
        assert server.send("/v1/models/m/versions/1:predict", body)[0] == 404
        release.set()
        assert slow.result()[0] == 200
        settled(server, {2: "AVAILABLE", 1: "END"})


def test_a_broken_version_does_not_disturb_the_one_that_is_served(tiny, folder):
    _, exports = tiny
    add_version(exports, 1, folder)
    with running(folder) as server:
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
        found = {x["version"]: x["status"] for x in server.send("/v1/models/m")[1]["model_version_status"]}
        assert found["4"]["error_code"] == "UNKNOWN"
        assert found["4"]["error_message"]
        assert found["3"] == {"error_code": "OK", "error_message": ""}
        assert any(line.startswith("cannot serve m version 4: ") for line in server.log)
        # It is tried again when its files change.
        shutil.copy(exports / "1" / "saved_model.pb", folder / "4" / "saved_model.pb")
        settled(server, {4: "AVAILABLE", 3: "END", 1: "END", 2: "END"})
        assert score(server) == pytest.approx(before)
        metrics = server.send("/metrics")[1]
        assert 'jobi_tf_model_version{state="AVAILABLE",version="4"} 1.0' in metrics
        assert 'jobi_tf_model_version{state="END",version="4"} 0.0' in metrics


def test_a_version_whose_files_change_is_loaded_again(tiny, folder):
    _, exports = tiny
    add_version(exports, 1, folder)
    with running(folder) as server:
        before = score(server)
        shutil.rmtree(folder / "1")
        add_version(exports, 2, folder, 1)
        eventually(lambda: score(server) == pytest.approx(2 * before))
        (folder / "1" / "saved_model.pb").write_bytes(b"junk")
        eventually(lambda: any(line.startswith("cannot serve m version 1: ") for line in server.log))
        assert states(server) == {1: "AVAILABLE"}
        assert score(server) == pytest.approx(2 * before)
        metrics = server.send("/metrics")[1]
        assert 'jobi_tf_model_version{state="AVAILABLE",version="1"} 1.0' in metrics


def test_a_version_that_is_copied_slowly(tiny, folder):
    """It is not loaded before its files are the same at two looks."""
    _, exports = tiny
    add_version(exports, 1, folder)
    parts = sorted((exports / "2").rglob("*"), key=lambda path: path.name == "entities.tsv")  # the last is optional
    log: list[str] = []

    async def copy():
        served = model.Model(ServerSettings(folder), Metrics(), log.append)
        await served.load()
        for part in parts:
            target = folder / "2" / part.relative_to(exports / "2")
            target.parent.mkdir(parents=True, exist_ok=True)
            if part.is_file():
                shutil.copy(part, target)
                await served.refresh()
                assert [version.number for version in served.available] == [1]
        await served.refresh()
        assert [version.number for version in served.available] == [2]
        served.close()

    asyncio.run(copy())
    assert log == ["no longer serving m version 1"]


def test_a_version_that_changes_while_it_is_loaded(tiny, folder, monkeypatch):
    add_version(tiny[1], 1, folder)
    loaded = model.SavedModel

    def load(path: Path, *options):
        (path / "entities.tsv").touch()
        return loaded(path, *options)

    monkeypatch.setattr(model, "SavedModel", load)
    with pytest.raises(JobiError), running(folder):
        pass


def test_a_version_that_is_removed_while_its_files_are_listed(folder, monkeypatch):
    (folder / "assets").mkdir(parents=True)
    (folder / "saved_model.pb").touch()
    listed = os.scandir

    def scandir(path):
        if Path(path).name == "assets":
            raise FileNotFoundError(path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert [Path(path).name for path, *_ in model._files(folder)] == ["saved_model.pb"]


def test_damaged_weights_and_warm_up(tiny, folder):
    _, exports = tiny
    for number in (1, 2, 3, 4):
        add_version(exports, 1, folder, number)
    names = folder / "4" / "assets" / "entities.txt"
    names.write_bytes(names.read_bytes().partition(b"\n")[2])
    for path in (folder / "2" / "variables").glob("variables.data*"):
        path.write_bytes(b"")
    (folder / "3" / saved_model.WARMUP).write_bytes(b"junk" * 10)
    with running(folder) as server:
        assert states(server) == {4: "END", 3: "END", 2: "END", 1: "AVAILABLE"}
        lines = [line for line in server.log if line.startswith("cannot serve")]
        assert len(lines) == 3
        assert not any("\n" in line for line in lines)


def test_versions_that_are_removed(tiny, folder):
    _, exports = tiny
    for number in (1, 2):
        add_version(exports, number, folder)
    (folder / "notes").mkdir()
    (folder / "9").write_text("")
    (folder / str(2**63)).symlink_to(exports / "2")  # a number that no message can hold
    with running(folder) as server:
        before = score(server)
        assert states(server) == {2: "AVAILABLE"}
        shutil.rmtree(folder / "2")
        settled(server, {1: "AVAILABLE", 2: "END"})
        assert any(line.startswith("serving m version 1 at") for line in server.log)
        assert score(server) == pytest.approx(before / 2)
        folder.rename(folder.with_name("away"))  # the last version stays in memory
        threading.Event().wait(0.3)
        assert score(server) == pytest.approx(before / 2)


@pytest.mark.parametrize(
    "make", [lambda folder: None, lambda folder: folder.mkdir(), lambda folder: (folder / "1").mkdir(parents=True)]
)
def test_nothing_to_serve(folder, make):
    make(folder)
    with pytest.raises(JobiError, match=str(folder)), running(folder):
        pass
