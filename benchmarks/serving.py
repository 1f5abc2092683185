"""What a server of an export answers in a second, and how long an answer takes."""

import base64
import json
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jobi_tf.errors import JobiError
from jobi_tf.export import export_run
from jobi_tf.models.jobi import JoBi
from jobi_tf.training.assembly import completed
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.run import Run

from .child import call
from .figures import Figure, Target
from .setting import Setting
from .training import paper_settings

CLIENTS = (1, 4, 32)
PROTOCOLS = ("REST", "gRPC")
SECONDS = 2.0
NAME = "graph"
_GRPC = "/tensorflow.serving.PredictionService/Predict"
_REST = f"/v1/models/{NAME}:predict"
_READY = re.compile(r"serving \S+ version \d+ at (http://\S+) and (grpc://\S+)")


@dataclass(frozen=True)
class Request:
    """A request: `rows` names a column, to a signature."""

    name: str
    what: str
    signature: str
    columns: dict[str, list[Any]]

    @property
    def rows(self) -> int:
        """Triples or queries in it."""
        return len(next(iter(self.columns.values())))

    def body(self, protocol: str) -> bytes:
        """Returns it as a client would send it, rows for REST."""
        if protocol == "REST":
            rows = [dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]
            return json.dumps({"signature_name": self.signature, "instances": rows}).encode()
        import tensorflow as tf
        from tensorflow_serving.apis.predict_pb2 import PredictRequest

        request = PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = NAME, self.signature
        for name, values in self.columns.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
        return request.SerializeToString()


def serving(setting: Setting) -> Iterator[Figure]:
    """Queries a server from other processes on the same machine, over both protocols."""
    graph = setting.graph
    config = completed(TrainConfig.create({"dataset": graph.name, **paper_settings(setting)}), graph)
    # Answers take as long whatever the weights are, so that nothing is trained.
    model = JoBi(graph.num_entities, graph.num_relations, config.dim, config.model, config.joint)
    run = Run(setting.work / "untrained", config, graph, model)
    cold, warm = setting.work / "cold" / NAME, setting.work / "warm" / NAME
    setting.say("  exporting")
    export_run(run, cold, warmup=False)
    export_run(run, warm)
    requests = _requests(run)
    yield from _starts(setting, {"without": cold, "with": warm}, requests, graph.name)
    yield from _rates(setting, warm, requests, graph.name)


def _requests(run: Run) -> list[Request]:
    rng = np.random.default_rng(0)
    graph = run.graph
    triples = graph.test[rng.permutation(len(graph.test))[:64]]
    names = {
        "head": [graph.entities[i] for i in triples[:, 0]],
        "relation": [graph.relations[i] for i in triples[:, 1]],
        "tail": [graph.entities[i] for i in triples[:, 2]],
    }
    one = {name: column[:1] for name, column in names.items()}
    query: dict[str, list[Any]] = {"head": one["head"], "relation": one["relation"], "k": [10]}
    return [
        Request("score-1", "score of one triple", "serving_default", one),
        Request("score-64", f"scores of {len(triples)} triples", "serving_default", names),
        Request("tails", "ten best tails", "predict_tails", query),
    ]


def _starts(setting: Setting, folders: dict[str, Path], requests: list[Request], data: str) -> Iterator[Figure]:
    """Times the start of a server, until it is ready, and its first requests."""
    took: dict[tuple[str, str], list[float]] = {}
    first_ones = (requests[0], requests[2])
    for turn in range(setting.repeats):
        setting.say(f"  start {turn + 1} of {setting.repeats}, with and without warm-up")
        for name, folder in folders.items():
            begun = time.perf_counter()
            with started(folder) as urls:
                took.setdefault((name, "start"), []).append(time.perf_counter() - begun)
                for request in first_ones:
                    first = _ask(setting, urls["REST"], "REST", request, 1, 0)["first"]
                    took.setdefault((name, request.name), []).append(first)
    for (name, what), values in took.items():
        if what == "start":
            yield Figure(f"serving/start-{name}", f"server ready, {name} warm-up", "s", values, data)
    for request in first_ones:
        for name in folders:
            what = f"first {request.what} by REST, {name} warm-up"
            yield Figure(f"serving/first-{request.name}-{name}", what, "ms", took[name, request.name], data)


def _rates(setting: Setting, folder: Path, requests: list[Request], data: str) -> Iterator[Figure]:
    """Asks in turns: every request, protocol and number of clients once a round."""
    variants = [(r, p, c) for r in requests for p in PROTOCOLS for c in ((4,) if setting.tiny else CLIENTS)]
    measured: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    with started(folder) as urls:
        for turn in range(setting.repeats):
            setting.say(f"  round {turn + 1} of {setting.repeats}")
            for request, protocol, clients in variants:
                answer = _ask(setting, urls[protocol], protocol, request, clients, 0.1 if setting.tiny else SECONDS)
                measured.setdefault((request.name, protocol, clients), []).append(answer)
    for request, protocol, clients in variants:
        answers = measured[request.name, protocol, clients]
        p50, p99 = (statistics.median(answer[name] for answer in answers) for name in ("p50", "p99"))
        yield Figure(
            f"serving/{request.name}-{protocol}-{clients}",
            f"{request.what} by {protocol}, {clients} client{'s' * (clients > 1)}",
            "triples/s" if "score" in request.name else "queries/s",
            [answer["answered"] * request.rows / answer["seconds"] for answer in answers],
            data,
            target=Target(">=", 5000) if (request.name, protocol, clients) == ("score-64", "REST", 4) else None,
            note=f"p50 {p50:.2f} ms, p99 {p99:.2f} ms",
        )
    for protocol in PROTOCOLS:
        waits = [answer["p99"] for answer in measured["tails", protocol, 4]]
        what = f"ten best tails by {protocol}, 4 clients, 99th percentile"
        yield Figure(f"serving/tails-{protocol}-p99", what, "ms", waits, data, target=Target("<", 30))


def _ask(setting: Setting, url: str, protocol: str, request: Request, clients: int, seconds: float) -> dict[str, Any]:
    arguments = {
        "url": url,
        "method": _REST if protocol == "REST" else _GRPC,
        "body": base64.b64encode(request.body(protocol)).decode(),
        "clients": clients,
        "seconds": seconds,
    }
    answer = call("ask", setting.say, None, arguments)
    if answer["failed"]:
        raise JobiError(f"{answer['failed']} of the requests for {request.what} by {protocol} failed")
    return answer


@contextmanager
def started(folder: Path) -> Iterator[dict[str, str]]:
    """Runs a server of its own process on ports that the system chooses; gives its addresses by protocol."""
    command = [sys.executable, "-m", "jobi_tf.cli", "serve", str(folder)]
    ports = ["--rest-port", "0", "--grpc-port", "0"]
    process = subprocess.Popen([*command, *ports], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if ready := _READY.match(line):
                yield dict(zip(PROTOCOLS, ready.groups(), strict=True))
                break
        else:
            raise JobiError(f"the server ended before it was ready, with status {process.wait()}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
