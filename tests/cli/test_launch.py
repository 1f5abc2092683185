"""Training by several processes of this machine."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np
import psutil
import pytest

from jobi_tf.errors import JobiError
from jobi_tf.launch import _free_ports
from jobi_tf.launch import launch as run_launch
from tests.processes import epoch_rows

pytestmark = pytest.mark.processes
EPOCHS = 6
OPTIONS = ("--dim", 8, "--batch-size", 500, "--negatives", 10, "--epochs", EPOCHS, "--eval-every", 2, "--patience", 9)
MORE = ("--learning-rate", 0.01, "--n3", 0.01, "--tensorboard", "scalars,projector,histograms")


@pytest.fixture
def umls(shared, monkeypatch):
    monkeypatch.setenv("JOBI_TF_ARCHIVES", str(shared / "data"))


def start(*arguments: object, workers: int = 2, servers: int = 0, command: str = "train") -> subprocess.Popen:
    processes = ["--workers", str(workers), "--servers", str(servers)]
    line = [sys.executable, "-m", "jobi_tf", "launch", *processes, "--", command, *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    # In a session of its own: a signal goes to this process alone, whoever runs the tests.
    return subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)


def launch(*arguments: object, **options: Any) -> None:
    process = start(*arguments, **options)
    _, words = process.communicate(timeout=300)
    assert process.returncode == 0, words


def stop(
    folder: Path, epochs: int, number: int, target: int | None, *arguments: object, **processes: int
) -> tuple[int, str]:
    """Sends a signal to a process, or to `launch`, after some epochs; returns the exit status and the last words."""
    process = start(*arguments, **processes)
    workers = []
    try:
        while len(epoch_rows(folder)) < epochs:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        workers = sorted(psutil.Process(process.pid).children(), key=lambda child: child.create_time())
        (process if target is None else workers[target]).send_signal(number)
        _, words = process.communicate(timeout=300)
        psutil.wait_procs(workers, timeout=10)
        assert not any(worker.is_running() for worker in workers)
        return process.returncode, words
    finally:
        for left in (process, *workers):
            with suppress(psutil.NoSuchProcess):
                left.kill()


def assert_equal(folder: Path, other: Path) -> None:
    assert len(epoch_rows(folder)) == EPOCHS
    for a, b in zip(epoch_rows(folder), epoch_rows(other), strict=True):
        assert a == pytest.approx(b, rel=1e-5)
        assert {k: v for k, v in a.items() if k.startswith("val_")} == {k: b[k] for k in b if k.startswith("val_")}
    weights = [keras.saving.load_model(x / "model.keras").weights for x in (folder, other)]
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-5)


def files(folder: Path) -> set[str]:
    """The files of a run; names of event files begin with the time."""
    names = {x.relative_to(folder).as_posix() for x in folder.rglob("*") if x.is_file()}
    return {name for name in names if ".tfevents." not in name}


def test_two_workers_end_as_one_process_after_a_kill(umls, call, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    call("train", "-q", "--dataset", "umls", *OPTIONS, *MORE, "--run-dir", one)
    begin = ("-q", "--dataset", "umls", *OPTIONS, *MORE, "--run-dir", two)
    status, words = stop(two, 3, signal.SIGKILL, 1, *begin)
    assert status == 1
    assert "worker 1" in words.splitlines()[-1]
    assert len(words.splitlines()) <= 2  # the chief may have noticed it too
    assert len(epoch_rows(two)) < EPOCHS
    launch("-q", "--resume", two)
    assert_equal(one, two)
    assert files(one) == files(two)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "target"), [(signal.SIGINT, None), (signal.SIGTERM, 0)])
def test_interrupted_workers_resume_to_the_same_end(umls, call, tmp_path, number, target):
    one, two = tmp_path / "one", tmp_path / "two"
    call("train", "-q", "--dataset", "umls", *OPTIONS, "--run-dir", one)
    status, words = stop(two, 2, number, target, "--dataset", "umls", *OPTIONS, "--run-dir", two)
    assert status == 130
    assert words.endswith(f"\n  jobi-tf launch --workers 2 -- train --resume {two}\n")
    launch("-q", "--resume", two)
    assert_equal(one, two)


def test_processes_end_with_launch(tmp_path):
    status, _ = stop(tmp_path, 1, signal.SIGKILL, None, "--dataset", "world", "--epochs", 1000, "--run-dir", tmp_path)
    assert status == -signal.SIGKILL


def test_a_worker_that_is_always_killed_is_given_up(monkeypatch, tmp_path, capfd):
    """As by a machine without enough memory."""
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\ncase $TF_CONFIG in *\'"type": "worker"\'*) kill -9 $$;; esac\nexec sleep 60\n')
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    monkeypatch.setattr("jobi_tf.launch.MOST_RESTARTS", 3)
    with pytest.raises(JobiError, match="worker 0 was killed"):
        run_launch(1, [], servers=1)
    assert capfd.readouterr().err.count("started again") == 3


@pytest.mark.slow
def test_ten_kills(umls, call, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    options = [EPOCHS * 7 if x is EPOCHS else x for x in OPTIONS]
    call("train", "-q", "--dataset", "umls", *options, "--run-dir", one)
    for kill in range(10):
        begin = ("--resume", two) if kill else ("--dataset", "umls", *options, "--run-dir", two)
        epochs = len(epoch_rows(two)) + 1 + random.Random(kill).randrange(2)
        status, words = stop(two, epochs, signal.SIGKILL, kill % 2, "-q", *begin)
        assert (status, "Traceback" in words) == (1, False)
        assert len(words.splitlines()) <= 2
    launch("-q", "--resume", two)
    assert len(epoch_rows(two)) == EPOCHS * 7
    for a, b in zip(epoch_rows(one), epoch_rows(two), strict=True):
        assert a == pytest.approx(b, rel=1e-4)


# Wide enough that two servers share the entity table.
WIDE = ("-q", "--dataset", "umls", "--dim", 64, "--negatives-mode", "shared-by-side", "--n3", 0.01)


def test_servers_train_as_one_process_and_others_go_on(umls, call, tmp_path):
    one, several = tmp_path / "one", tmp_path / "several"
    call("train", *WIDE, "--epochs", 2, "--average-epochs", 1, "--eval-every", 1, "--run-dir", one)
    # The updates of a single worker have an order.
    launch(*WIDE, "--epochs", 2, "--eval-every", 1, "--run-dir", several, workers=1, servers=2)
    for a, b in zip(epoch_rows(one), epoch_rows(several), strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # where TensorFlow would have one thread
    try:
        launch("-q", "--resume", several, "--epochs", 3, workers=2, servers=1)
    finally:
        os.sched_setaffinity(0, cores)
    losses = [row["loss"] for row in epoch_rows(several)]
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)
    best = max(epoch_rows(several), key=lambda row: row["val_mrr"])
    call("evaluate", several, "--split", "valid")
    evaluation = several / "evaluations" / "valid.json"
    assert json.loads(evaluation.read_text())["mrr"] == pytest.approx(best["val_mrr"], rel=1e-4)
    evaluation.unlink()
    launch(several, "--split", "valid", workers=1, servers=3, command="evaluate")
    assert json.loads(evaluation.read_text())["mrr"] == pytest.approx(best["val_mrr"], rel=1e-4)
    assert "parameter servers" in call("train", "--resume", several, "--strategy", "one", status=2).stderr


@pytest.mark.slow
@pytest.mark.parametrize("kill", range(10))
def test_a_killed_worker_loses_nothing(umls, tmp_path, kill):
    begin = (*WIDE, "--epochs", 8, "--run-dir", tmp_path)
    status, words = stop(tmp_path, 1 + kill // 2, signal.SIGKILL, 1 + kill % 2, *begin, servers=2)
    assert status == 0
    assert [line.split(" was")[0] for line in words.splitlines()] == [f"worker {kill % 2}"]
    losses = [row["loss"] for row in epoch_rows(tmp_path)]
    assert len(losses) == 8
    assert losses == sorted(losses, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "row-adagrad"])
def test_killed_servers_are_recovered_from_the_checkpoint(umls, tmp_path, optimizer):
    begin = (*WIDE, "--optimizer", optimizer, "--epochs", 10, "--run-dir", tmp_path)
    for kill in range(4):
        arguments = ("-q", "--resume", tmp_path) if kill else begin
        status, words = stop(
            tmp_path, len(epoch_rows(tmp_path)) + 2, signal.SIGKILL, 3 + kill % 2, *arguments, servers=2
        )
        assert status == 1
        assert "--resume" in words.splitlines()[-1]
        assert len(words.splitlines()) <= 2  # the chief may have noticed it too
    launch("-q", "--resume", tmp_path, workers=1, servers=1)
    losses = [row["loss"] for row in epoch_rows(tmp_path)]
    assert len(losses) == 10
    assert max(np.diff(losses)) < 0.02  # as much as it rises by chance


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_workers_that_are_ended_while_they_start_leave_nothing_to_resume(tmp_path, number):
    process = start("--dataset", "world", "--run-dir", tmp_path / "run")
    while len(psutil.Process(process.pid).children()) < 2:
        time.sleep(0.02)
    time.sleep(0.2)  # until `launch` passes signals on
    process.send_signal(number)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 130
    assert words.strip() == "Interrupted."


def test_a_worker_that_waits_for_others_can_be_ended(tmp_path):
    ports = _free_ports(2)
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    environment = {**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})}
    command = [sys.executable, "-m", "jobi_tf", "train", "--dataset", "world", "--run-dir", tmp_path / "run"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, start_new_session=True)
    try:
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", ports[0])):
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == -signal.SIGINT
    finally:
        process.kill()
        process.communicate()
    assert not (tmp_path / "run").exists()


def test_a_worker_says_whom_it_waits_for():
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(2)]
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 0}}
    program = (
        "from jobi_tf.training import config, devices; devices.SECONDS_TO_BEGIN = 1; "
        "devices.training_strategy(config.TrainConfig(dataset='world', run_dir='run'))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stderr=subprocess.PIPE,
        env={**os.environ, "TF_CONFIG": json.dumps(config)},
        text=True,
    )
    try:
        line = next(line for line in process.stderr if "waiting" in line)
        assert [address in line for address in addresses] == [False, True]
    finally:
        process.kill()
        process.communicate()


def test_what_all_workers_reject_is_one_sentence(tmp_path):
    process = start("--dataset", tmp_path, "--run-dir", tmp_path / "run")
    _, words = process.communicate(timeout=120)
    assert process.returncode in (1, 2)
    assert len(words.splitlines()) == 1
    assert str(tmp_path) in words


def test_other_commands_have_no_workers(call):
    assert "predict" in call("launch", "--", "predict", "world", status=2).stderr
    assert "--servers" in call("launch", "--", "evaluate", "world", status=2).stderr
    assert "--workers" in call("launch", "--workers", 1, "--", "train", status=2).stderr


def task(kind: str, index: int, **jobs: int) -> dict:
    """The content of TF_CONFIG: a task of a cluster with so many processes of each job."""
    ports = iter(range(1, 9))
    cluster = {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items()}
    return {"cluster": cluster, "task": {"type": kind, "index": index}}


WORKER = task("worker", 0, worker=2)
CHIEF = task("chief", 0, chief=1, worker=1, ps=1)


@pytest.mark.parametrize(
    ("tf_config", "options", "words"),
    [
        ("{", (), "TF_CONFIG"),
        ({"cluster": WORKER["cluster"]}, (), "'task'"),
        (task("worker", 0, worker=2, evaluator=1), (), "'evaluator'"),
        (task("worker", 0, worker=2, ps=1), (), "cluster.chief"),
        (task("ps", 1, chief=1, worker=1, ps=1), (), "task.index"),
        ({**WORKER, "cluster": {"worker": ["127.0.0.1:1"] * 2}}, (), "twice"),
        ({**WORKER, "cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:99999999"]}}, (), "host and a port"),
        ({**WORKER, "cluster": {"worker": ["127.0.0.1:1", "127.0.0.1"]}}, (), "host and a port"),
        (task("ps", 0, chief=1, worker=1, ps=1), (), "run_dir"),
        (task("worker", 0, chief=1, worker=1, ps=1), ("--loss", "full-softmax"), "full-softmax"),
        (CHIEF, ("--devices", "0"), "devices"),
        (CHIEF, ("--warm-start", "world"), "warm_start"),
        (CHIEF, ("--tensorboard", "scalars"), "tensorboard"),
        (CHIEF, ("--profile", "1:2"), "profile"),
        (None, ("--profile", "2:1"), "profile"),
        (CHIEF, ("--strategy", "multi-worker"), "multi-worker"),
        (None, ("--strategy", "parameter-server"), "TF_CONFIG"),
        (None, ("--strategy", "parameter-server", "--recipe", "auto"), "auto"),
        (None, ("--strategy", "parameter-server", "--entity-vectors", "x.npz"), "entity_vectors"),
        (task("worker", 2, worker=2), (), "task.index"),
        (task("evaluator", 0, worker=2), (), "'evaluator'"),
        (WORKER, ("--logical-devices", 2), "logical_devices"),
        (WORKER, ("--devices", "0"), "devices"),
        (WORKER, ("--table-dtype", "bfloat16"), "table_dtype"),
        (WORKER, (), "run_dir"),
        (WORKER, ("--strategy", "one"), "TF_CONFIG"),
        (CHIEF, ("--strategy", "mirrored"), "TF_CONFIG"),
        (task("worker", 0, worker=1), ("--strategy", "multi-worker"), "TF_CONFIG"),
        (None, ("--strategy", "multi-worker"), "TF_CONFIG"),
        (None, ("--strategy", "one", "--logical-devices", 2), "logical_devices"),
        (None, ("--strategy", "one", "--devices", "0,1"), "devices"),
        (None, ("--strategy", "mirrored"), "mirrored"),
    ],
)
def test_a_strategy_that_contradicts_the_devices_or_tf_config_is_refused(
    tf_config, options, words, triples, call, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    if tf_config:
        monkeypatch.setenv("TF_CONFIG", tf_config if isinstance(tf_config, str) else json.dumps(tf_config))
    result = call("train", "--dataset", triples, *options, status=2)
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_run_without_servers_is_not_resumed_with_them(triples, call, tmp_path, monkeypatch):
    call("train", "-q", "--dataset", triples, "--dim", 4, "--epochs", 1, "--run-dir", tmp_path / "run")
    monkeypatch.setenv("TF_CONFIG", json.dumps(CHIEF))
    assert "nor one without them" in call("train", "--resume", tmp_path / "run", "--epochs", 2, status=2).stderr
