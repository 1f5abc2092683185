"""Devices and workers, and the strategy that trains on them."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import tensorflow as tf
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from jobi_tf.errors import JobiError, UsageError, first_line, validation_message
from jobi_tf.launch import cores, signals_handled
from jobi_tf.models.distributed import check_jit_compile
from jobi_tf.training.config import TrainConfig
from jobi_tf.workers import has_servers, has_workers

SMALLEST_PART = 2**14  # bytes of a table that a server has
SECONDS_WITHOUT_CHIEF = 10  # after which it is taken to have ended
SECONDS_TO_BEGIN = 30  # after which processes that are waited for are reported

_REPORT_MISSING = """
import json, os, socket, sys, time

seconds, parent, others = sys.argv[1:]
for _ in range(int(seconds)):
    time.sleep(1)
    if os.getppid() != int(parent):
        sys.exit()
missing = []
for name, host, port in json.loads(others):
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError:
        missing.append(f"{name} ({host}:{port})")
if missing:
    print("waiting for", ", ".join(missing), "of TF_CONFIG", file=sys.stderr)
"""


def _host_and_port(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port


def _checked(address: str) -> str:
    host, port = _host_and_port(address)
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(f"expected a host and a port, such as 10.0.0.1:2222, got {address!r}")
    return address


_Address = Annotated[str, AfterValidator(_checked)]


class _Addresses(BaseModel):
    model_config = ConfigDict(extra="forbid")

    chief: list[_Address] = Field([], max_length=1)
    worker: list[_Address] = []
    ps: list[_Address] = []


class _Task(BaseModel):
    type: Literal["chief", "worker", "ps"]
    index: int = Field(ge=0)


class Cluster(BaseModel):
    """The processes that train together, and which of them this one is: what `TF_CONFIG` holds, as JSON.

    With parameter servers, `ps`, there is a chief that coordinates and writes files, and workers compute the steps.
    Without, the chief is a worker too.
    """

    cluster: _Addresses
    task: _Task

    @classmethod
    def of_environment(cls) -> "Cluster | None":
        """Returns what the environment variable `TF_CONFIG` describes, None without it, or raises a `UsageError`."""
        text = os.environ.get("TF_CONFIG")
        if not text:
            return None
        try:
            cluster = cls.model_validate_json(text)
        except ValidationError as error:
            raise UsageError(f"TF_CONFIG: {validation_message(error)}") from None
        addresses, task = getattr(cluster.cluster, cluster.task.type), cluster.task
        if task.index >= len(addresses):
            expected = f"below the {len(addresses)} addresses of cluster.{task.type}"
            raise UsageError(f"TF_CONFIG: expected task.index {expected}, got {task.index}")
        every = [x for _, addresses in cluster.cluster for x in addresses]
        if twice := [x for x in every if every.count(x) > 1]:
            raise UsageError(f"TF_CONFIG: expected a different address for each process, got {twice[0]} twice")
        if cluster.cluster.ps and not (cluster.cluster.chief and cluster.cluster.worker):
            raise UsageError("TF_CONFIG: expected cluster.chief and cluster.worker beside the servers of cluster.ps")
        return cluster

    @property
    def address(self) -> str:
        """Host and port of this process."""
        return getattr(self.cluster, self.task.type)[self.task.index]

    @property
    def size(self) -> int:
        """The number of workers, the chief included."""
        return len(self.cluster.chief) + len(self.cluster.worker)

    @property
    def has_chief_here(self) -> bool:
        """Whether this process is the one that writes files."""
        return self.task.index == 0 and self.task.type == ("chief" if self.cluster.chief else "worker")

    def report_missing(self, *jobs: str) -> subprocess.Popen:
        """Starts a process that prints which others, of some jobs, have not begun in `SECONDS_TO_BEGIN`.

        It is a process, because Python's threads do not run while TensorFlow waits for the other processes.
        """
        others = [
            (f"{job} {i}", *_host_and_port(address))
            for job, addresses in self.cluster
            if job in jobs
            for i, address in enumerate(addresses)
            if address != self.address
        ]
        command = [sys.executable, "-c", _REPORT_MISSING, str(SECONDS_TO_BEGIN), str(os.getpid()), json.dumps(others)]
        return subprocess.Popen(command, process_group=0)  # which Ctrl-C does not reach

    def serve(self) -> NoReturn:
        """Runs as a worker or a parameter server until the chief has ended; a `JobiError` if it cannot listen."""
        addresses = {name: x for name, x in self.cluster.model_dump().items() if x}
        # With one thread, it would wait for itself, forever.
        os.environ.setdefault("TF_NUM_INTEROP_THREADS", str(max(cores(), self.size)))
        try:
            tf.distribute.Server(tf.train.ClusterSpec(addresses), self.task.type, self.task.index)
        except tf.errors.OpError as error:
            raise JobiError(f"cannot serve at {self.address} of TF_CONFIG: {first_line(error)}") from None
        self.report_missing("chief")
        host, port = _host_and_port(self.cluster.chief[0])
        seen, connected = 0.0, False
        while not connected or time.monotonic() - seen < SECONDS_WITHOUT_CHIEF:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                seen, connected = time.monotonic(), True
            except OSError:
                pass  # not yet, or no longer
            time.sleep(1)
        # A server of TensorFlow 2.21 cannot be stopped.
        os._exit(0)


def with_servers(config: TrainConfig) -> TrainConfig:
    """Returns the settings, with the strategy `parameter-server` if it is `auto` and `TF_CONFIG` names servers.

    In the process of a worker or a server it does not return, but serves the chief and ends after it.

    Raises:
        UsageError: `TF_CONFIG` cannot be used, or contradicts the strategy.
    """
    cluster = Cluster.of_environment()
    if cluster and cluster.size > 1 and config.strategy in ("one", "mirrored"):
        # Each process would train by itself, all into the same folder.
        expected = f"auto, multi-worker or parameter-server with the {cluster.size} workers of TF_CONFIG"
        raise UsageError(f"expected the strategy {expected}, got {config.strategy}")
    if not (cluster and cluster.cluster.ps):
        if config.strategy == "parameter-server":
            reason = "`jobi-tf launch --servers 2` sets the environment variable TF_CONFIG"
            raise UsageError(f"expected servers (ps) in TF_CONFIG with the strategy parameter-server: {reason}")
        return config
    if config.strategy == "multi-worker":
        raise UsageError("expected no servers (ps) in TF_CONFIG with the strategy multi-worker")
    config = config.replace(strategy="parameter-server")
    config.check()
    config = config.replace(tensorboard="none")
    _check_cluster(config)
    if cluster.task.type != "chief":
        cluster.serve()
    return config


def training_strategy(config: TrainConfig) -> tf.distribute.Strategy:
    """Returns the strategy that the settings, those `with_servers`, name; `auto` takes workers if there are several,
    else all devices.

    It waits for the other workers. Several workers have to call it before TensorFlow is used in their processes.

    Raises:
        UsageError: the strategy contradicts the devices or `TF_CONFIG`.
        JobiError: there is no connection to the other workers.
    """
    if config.strategy == "parameter-server":
        return _parameter_server()
    cluster = Cluster.of_environment()
    size = cluster.size if cluster else 0
    if size > 1:
        _check_cluster(config)
        try:
            with _connecting():
                return tf.distribute.MultiWorkerMirroredStrategy()
        except RuntimeError as error:
            reason = f"expected several workers to begin before TensorFlow is used: {first_line(error)}"
            raise UsageError(reason) from None
    if config.strategy == "multi-worker":
        reason = f"got {size}: `jobi-tf launch` sets this environment variable"
        raise UsageError(f"expected TF_CONFIG to name at least 2 workers with the strategy multi-worker, {reason}")
    if config.strategy == "one" and config.logical_devices > 1:
        raise UsageError(f"expected logical_devices to be 1 with the strategy one, got {config.logical_devices}")
    devices = "0" if (config.strategy, config.devices) == ("one", "all") else config.devices
    strategy = strategy_for(devices, config.logical_devices)
    count = strategy.num_replicas_in_sync
    if (config.strategy == "one" and count > 1) or (config.strategy == "mirrored" and count == 1):
        expected = "one device" if config.strategy == "one" else "at least 2 devices"
        raise UsageError(f"expected {expected} with the strategy {config.strategy}, got {count} (devices {devices})")
    return strategy


def evaluation_strategy(devices: str, logical_devices: int) -> tf.distribute.Strategy:
    """Returns the strategy for a ranking: with parameter servers if `TF_CONFIG` names some, else `strategy_for`.

    In the process of a worker or a server it does not return, but serves the chief and ends after it.

    Raises:
        UsageError: a device does not exist, or `TF_CONFIG` cannot be used.
        JobiError: there is no connection to the servers.
    """
    cluster = Cluster.of_environment()
    if not (cluster and cluster.cluster.ps):
        return strategy_for(devices, logical_devices)
    if cluster.task.type != "chief":
        cluster.serve()
    return _parameter_server()


def _check_cluster(config: TrainConfig) -> None:
    for name in ("devices", "logical_devices"):
        if (value := getattr(config, name)) != TrainConfig.model_fields[name].default:
            raise UsageError(f"expected no {name} with several workers, which use all of their GPUs, got {value}")
    check_jit_compile(config.jit_compile, 2)  # or more
    if config.table_dtype != "float32":
        reason = "TensorFlow cannot send bfloat16 variables"
        raise UsageError(f"expected table_dtype float32 with several workers, got {config.table_dtype}: {reason}")
    if config.run_dir is None:
        raise UsageError("expected run_dir with several workers: the folder, the same for all, that the chief writes")


def _parameter_server() -> tf.distribute.Strategy:
    """Returns the strategy by which all servers share the rows of each table, unless it is small."""
    # Hides long messages about workers that have ended, whose steps other workers compute.
    tf.get_logger().setLevel("CRITICAL")
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    servers = resolver.cluster_spec().num_tasks("ps")
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(SMALLEST_PART, servers)
    with _connecting():
        return tf.distribute.ParameterServerStrategy(resolver, partitioner)


@contextmanager
def _connecting() -> Iterator[None]:
    """Lets Ctrl-C end this process while TensorFlow waits for others, and restores the handlers of signals after that.

    Python would handle Ctrl-C only when all processes are connected, and TensorFlow 2.21 replaces the handler of
    SIGTERM.

    Raises:
        JobiError: there is no connection.
    """
    cluster = Cluster.of_environment()
    assert cluster is not None
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    report = cluster.report_missing("chief", "worker", "ps")
    try:
        with signals_handled(signal.SIG_DFL, *numbers):
            yield
    except tf.errors.OpError as error:
        reason = f"cannot connect {cluster.address} to the other processes of TF_CONFIG: {first_line(error)}"
        raise JobiError(reason) from None
    finally:
        report.kill()
        report.wait()


# Errors that another process cannot cause by ending.
NOT_OF_OTHERS = tf.errors.ResourceExhaustedError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError


@contextmanager
def workers_needed(strategy: tf.distribute.Strategy, folder: Path) -> Iterator[None]:
    """Raises a `JobiError` instead of those with which TensorFlow ends a step when another worker has ended."""
    try:
        yield
    except tf.errors.OpError as error:
        several = has_workers(strategy) or has_servers(strategy)
        if not several or isinstance(error, NOT_OF_OTHERS):
            raise
        other = "a parameter server" if has_servers(strategy) else "another worker"
        raise JobiError(f"{other} has ended: resume {folder} by starting all processes again") from error


def strategy_for(devices: str = "all", logical_devices: int = 1) -> tf.distribute.Strategy:
    """Returns the strategy for `"all"` devices or numbers such as `"0,1"`: GPUs where there are any, else the CPU.

    That is a `MirroredStrategy` for two devices or more, else one that leaves everything to the one device. The CPU can
    be split into `logical_devices`, to try several without GPUs.

    Raises:
        UsageError: a device does not exist, or TensorFlow started before the CPU could be split.
    """
    if logical_devices > 1:
        try:
            cpu, parts = tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()]
            tf.config.set_logical_device_configuration(cpu, parts * logical_devices)
        except RuntimeError:  # TensorFlow runs already
            if (count := len(tf.config.list_logical_devices("CPU"))) != logical_devices:
                reason = f"but TensorFlow runs with {count} already"
                raise UsageError(f"expected to split the CPU into {logical_devices} devices, {reason}") from None
    kind = "CPU" if logical_devices > 1 or not tf.config.list_physical_devices("GPU") else "GPU"
    present = [f"{kind}:{i}" for i in range(len(tf.config.list_logical_devices(kind)))]
    numbers = list(range(len(present))) if devices == "all" else [int(x) for x in devices.split(",")]
    if max(numbers) >= len(present) or len(set(numbers)) != len(numbers):
        raise UsageError(f"expected distinct devices out of {', '.join(present)} by their numbers, got {devices}")
    chosen = [present[i] for i in numbers]
    if len(chosen) > 1:
        # NCCL serves GPUs; on CPUs the default collective ops fail when a process makes a second strategy.
        reduction = None if kind == "GPU" else tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(chosen, cross_device_ops=reduction)
    if devices == "all":
        return tf.distribute.get_strategy()
    return tf.distribute.OneDeviceStrategy(chosen[0])
