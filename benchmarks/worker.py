"""Measurements of jobi-tf, each in its own process: `PYTHON worker.py TASK ARGUMENTS`, the arguments as JSON.

Each line on stdin starts a round; it is a JSON object with the arguments of the round. Each round is answered by one
line on stdout, a JSON object with what was measured: `seconds`, `ms`, `rate` (a second) and, always, `MB`, the peak of
the resident memory of this process. It uses public names of jobi_tf only, so that it measures any checkout: the one
whose Python runs it.
"""

import dataclasses
import http.client
import itertools
import json
import math
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

UNSETTLED = 3  # steps after a pause that are not measured, since their batches were made in the pause
BLOCKS = (128, 256, 512, 1024, 2048)  # queries
MOST_SCORES = 2**28  # at a time
PATIENCE = 60.0  # seconds to wait for an answer of a server
JOBI_TF = [str(Path(sys.executable).with_name("jobi-tf"))]  # older checkouts have another module
MODEL = "graph"


class Rounds:
    """The rounds that the parent process requests; iteration gives the arguments of each."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what libraries print does not mix with the answers

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(json.loads, sys.stdin)

    def answer(self, whose_memory: int = resource.RUSAGE_SELF, /, **measured: float) -> None:
        """Sends what was measured in this round."""
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(whose_memory).ru_maxrss * unit / 1e6
        print(json.dumps({"MB": peak, **measured}), file=self._answers, flush=True)


def text(rounds: Rounds, dataset: str, folder: str) -> None:
    """Writes a graph as train.tsv, valid.tsv and test.tsv."""
    import jobi_tf

    for _ in rounds:
        graph = jobi_tf.load_graph(dataset)
        Path(folder).mkdir(parents=True)
        for split in ("train", "valid", "test"):
            rows = ((graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.split(split))
            lines = "".join("\t".join(row) + "\n" for row in rows)
            Path(folder, f"{split}.tsv").write_text(lines, encoding="utf-8")
        rounds.answer()


def load(rounds: Rounds, dataset: str, prepare: bool = False) -> None:
    """Times `load_graph` on a prepared graph, or on a text that is not prepared yet."""
    import jobi_tf

    for _ in rounds:
        with tempfile.TemporaryDirectory(dir=".") as cache:
            if prepare:
                os.environ["JOBI_TF_HOME"] = str(Path(cache).absolute())
            rounds.answer(seconds=timed(lambda: jobi_tf.load_graph(dataset)))


def call(arguments: list[str]) -> None:
    """Runs `jobi-tf`. If it fails, ends this process with its status, so that its message is the last on stderr."""
    if status := subprocess.run([*JOBI_TF, *arguments], stdout=subprocess.DEVNULL).returncode:
        sys.exit(status)


def command(rounds: Rounds, arguments: list[str]) -> None:
    """Times a command of `jobi-tf` from start to end; `OUT` in the arguments stands for a new folder."""
    for _ in rounds:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            seconds = timed(partial(call, [str(Path(folder, "out")) if x == "OUT" else x for x in arguments]))
            rounds.answer(resource.RUSAGE_CHILDREN, seconds=seconds)


def train(rounds: Rounds, dataset: str, steps: int, **settings: Any) -> None:
    """Times some steps of `jobi_tf.train` a round; between rounds the training waits."""
    import keras

    import jobi_tf

    class Steps(keras.callbacks.Callback):
        def on_train_begin(self, logs: dict | None = None) -> None:
            self.ends: list[tuple[int, float]] = []  # number of steps in the epoch, time
            self.requests = iter(rounds)
            next(self.requests)

        def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
            self.ends.append((batch, time.perf_counter()))
            if len(self.ends) <= UNSETTLED + steps:
                return
            # An execution may have several steps; the pause between two epochs is left out.
            gaps = [
                (after - before) / (last - first)
                for (first, before), (last, after) in itertools.pairwise(self.ends[UNSETTLED:])
                if last > first
            ]
            step = statistics.median(gaps)
            rounds.answer(ms=1e3 * step, rate=settings["batch_size"] / step)
            if next(self.requests, None) is None:
                os._exit(0)
            self.ends.clear()

    settings = {"epochs": 10**6, "eval_every": 0, **settings}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        settings["run_dir"] = str(Path(folder, "run"))
        jobi_tf.train(jobi_tf.load_graph(dataset), callbacks=[Steps()], **settings)


def train_processes(rounds: Rounds, workers: int, servers: int = 0, **settings: Any) -> None:
    """Times the last epoch of a training by one process, or by several that `jobi-tf launch` starts.

    `MB` is the peak of the process that takes most.
    """
    launch = ["launch", "--workers", str(workers), "--servers", str(servers), "--"] if workers > 1 else []
    for _ in rounds:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            run = Path(folder, "run")
            values = {"run-dir": run, "eval-every": 0, "tensorboard": "none", **settings}
            options = [text for name, value in values.items() for text in (f"--{name.replace('_', '-')}", str(value))]
            call([*launch, "train", "--quiet", *options])
            last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
            rounds.answer(resource.RUSAGE_CHILDREN, rate=last["triples_per_second"])


def sample(rounds: Rounds, dataset: str, batches: int, **options: Any) -> None:
    """Times the stream of training batches when nothing else runs."""
    import jobi_tf

    stream = iter(jobi_tf.training_batches(jobi_tf.load_graph(dataset), **options))
    for _ in rounds:
        for _ in range(UNSETTLED):
            next(stream)
        start = time.perf_counter()
        for _ in range(batches):
            next(stream)
        rounds.answer(ms=1e3 * (time.perf_counter() - start) / batches)


def rank(
    rounds: Rounds, dataset: str, dim: int, scorer: str = "complex", triples: int | None = None, whole: bool = False
) -> None:
    """Times the filtered ranking of test triples on both sides.

    The time is that of the ranking alone, or of the `whole` call, which also collects the known answers.
    """
    import jobi_tf

    graph = jobi_tf.load_graph(dataset)
    graph = dataclasses.replace(graph, splits={**graph.splits, "test": graph.test[:triples]})
    model = jobi_tf.JoBi(graph.num_entities, graph.num_relations, dim, scorer)  # it takes as long whatever the weights
    for _ in rounds:
        graph = dataclasses.replace(graph)  # whose known answers are not in a cache
        start = time.perf_counter()
        result = jobi_tf.evaluate(model, graph)
        seconds = time.perf_counter() - start if whole else result.seconds
        rounds.answer(seconds=seconds, rate=len(graph.test) / seconds)


def product(rounds: Rounds, dataset: str, dim: int, triples: int | None = None) -> None:
    """Times the matrix products that the ranking of test triples cannot do without, in the best size of blocks."""
    import tensorflow as tf

    import jobi_tf

    graph = jobi_tf.load_graph(dataset)
    ranked = len(graph.test[:triples])
    entities = tf.random.normal([graph.num_entities, 2 * dim])
    queries = tf.random.normal([2 * ranked, 2 * dim])
    blocks = [x for x in BLOCKS if x * graph.num_entities <= MOST_SCORES]

    def seconds(block: int, count: int) -> float:
        start = time.perf_counter()
        for i in range(0, count, block):
            tf.matmul(queries[i : i + block], entities, transpose_b=True)
        return time.perf_counter() - start

    count = min(len(queries), 2 * max(blocks))
    seconds(blocks[0], count)  # threads start
    best = min(blocks, key=lambda block: min(seconds(block, count) for _ in range(2)))
    for _ in rounds:
        rounds.answer(rate=ranked / seconds(best, len(queries)))


def rows(rounds: Rounds, dataset: str, dim: int, **options: Any) -> None:
    """Times what Adam cannot do without: gathering the rows of a batch from three tables and scattering them back.

    This is done in the best number of blocks.
    """
    import tensorflow as tf

    import jobi_tf

    graph = jobi_tf.load_graph(dataset)
    tables = [tf.Variable(tf.zeros([graph.num_entities, 2 * dim])) for _ in range(3)]
    touched = []
    for inputs, *_ in jobi_tf.training_batches(graph, **options).take(10):
        triples = inputs["triples"] if "triples" in inputs else inputs["chunks"]
        ids = [tf.reshape(x, [-1]) for x in (triples[..., ::2], inputs["negatives"])]
        touched.append(tf.unique(tf.concat(ids, 0))[0])

    @tf.function
    def move(ids: tf.Tensor, blocks: int) -> None:
        for part in tf.split(ids[: tf.size(ids) // blocks * blocks], blocks):
            for table in tables:
                table.scatter_update(tf.IndexedSlices(tf.gather(table, part), part))

    def seconds(blocks: int) -> float:
        return timed(lambda: [move(ids, blocks) for ids in touched]) / len(touched)

    best = min((1, 8, 32), key=lambda blocks: min(seconds(blocks) for _ in range(3)))
    for _ in rounds:
        rounds.answer(ms=1e3 * seconds(best))


def quality(rounds: Rounds, dataset: str, hits: float, dim: int, batch_size: int, mode: str, most_epochs: int) -> None:
    """Measures the seconds of training until validation Hits@10, filtered by all splits, is `hits`.

    The time is that of `fit`, without the rankings, interpolated between epochs.
    """
    import keras

    import jobi_tf

    graph = jobi_tf.load_graph(dataset)
    steps = jobi_tf.steps_per_epoch(graph, batch_size)
    for _ in rounds:
        model = jobi_tf.JoBi(graph.num_entities, graph.num_relations, dim)
        losses = {"triple": jobi_tf.SampledSoftmax(), "pair": keras.losses.BinaryCrossentropy(from_logits=True)}
        model.compile(jobi_tf.LazyAdam(0.0012 if mode == "shared" else 0.0008), losses)
        total = before = 0.0
        for epoch in range(most_epochs):
            batches = jobi_tf.training_batches(graph, batch_size, mode=mode, first_step=epoch * steps)
            start = time.perf_counter()
            model.fit(batches, steps_per_epoch=steps, verbose=0, shuffle=False)
            seconds = time.perf_counter() - start
            ranking = jobi_tf.evaluate(model, graph, "valid", filter_with=("train", "valid", "test"))
            reached = ranking.metrics()["hits@10"]
            if reached >= hits:
                break
            total, before = total + seconds, reached
        else:
            raise RuntimeError(f"validation Hits@10 was {before:.4f} after {most_epochs} epochs, expected {hits}")
        rounds.answer(seconds=total + seconds * (hits - before) / (reached - before))


def epochs(rounds: Rounds, dataset: str, triples: int, count: int, settled: int, **settings: Any) -> None:
    """Measures the growth of resident memory over short epochs of `jobi_tf.train`, each with its ranking."""
    import keras
    import psutil

    import jobi_tf

    resident: list[float] = []
    process = psutil.Process()
    memory = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: resident.append(process.memory_info().rss / 1e6)
    )
    graph = jobi_tf.load_graph(dataset)
    graph = dataclasses.replace(graph, splits={**graph.splits, "train": graph.train[:triples]})
    for _ in rounds:
        resident.clear()
        with tempfile.TemporaryDirectory(dir=".") as folder:
            settings |= {"epochs": count, "eval_every": 1, "patience": count, "run_dir": str(Path(folder, "run"))}
            jobi_tf.train(graph, callbacks=[memory], **settings)
        first = resident[settled - 1]
        rounds.answer(resident=resident[-1], growth=max(resident[settled:]) - first, end=resident[-1] - first)


def export(rounds: Rounds, dataset: str, folder: str, **settings: Any) -> None:
    """Exports a run of one step, with warm-up requests and without: answers take as long whatever the weights."""
    import keras

    import jobi_tf
    from jobi_tf.export import export_run

    class OneStep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
            self.model.stop_training = True

    graph, run_dir = jobi_tf.load_graph(dataset), str(Path(folder, "run"))
    for _ in rounds:
        run = jobi_tf.train(graph, callbacks=[OneStep()], epochs=1, eval_every=0, run_dir=run_dir, **settings)
        for name in ("cold", "warm"):
            export_run(run, Path(folder, name, MODEL), warmup=name == "warm")
        rounds.answer()


def starts(rounds: Rounds, folder: str, dataset: str) -> None:
    """Times the start of a server, until it is ready, and its first answers."""
    requests = named_requests(dataset)
    for _ in rounds:
        start = time.perf_counter()
        with server(folder) as ports:
            ready = time.perf_counter() - start
            first = {}
            for name in ("score-1", "tails"):
                first[name] = 1e3 * timed(sender("REST", ports, *requests[name]))
        rounds.answer(seconds=ready, **first)


def load_test(rounds: Rounds, folder: str, dataset: str) -> None:
    """Sends a server the same request from several clients, each of which waits for its answer before the next one."""
    requests = named_requests(dataset)
    with server(folder) as ports:
        for arguments in rounds:
            signature, columns = requests[arguments["request"]]
            senders = [sender(arguments["protocol"], ports, signature, columns) for _ in range(arguments["clients"])]
            seconds, waits = in_parallel(senders, arguments["seconds"])
            p50, p99 = (1e3 * waits[math.ceil(share * len(waits)) - 1] for share in (0.5, 0.99))
            rounds.answer(rate=len(waits) * len(columns["relation"]) / seconds, p50=p50, p99=p99)


def in_parallel(senders: list[Callable[[], object]], seconds: float) -> tuple[float, list[float]]:
    """Returns how long all of it took, and the waits for all answers in ascending order; connecting is not counted."""

    def client(send: Callable[[], object]) -> list[float]:
        waits = [timed(send)]
        while time.perf_counter() < start + seconds:
            waits.append(timed(send))
        return waits

    for send in senders:
        send()
    with ThreadPoolExecutor(len(senders)) as pool:
        start = time.perf_counter()
        waits = sorted(itertools.chain.from_iterable(pool.map(client, senders)))
        return time.perf_counter() - start, waits


def timed(send: Callable[[], object]) -> float:
    """Returns the seconds that a call takes."""
    start = time.perf_counter()
    send()
    return time.perf_counter() - start


def named_requests(dataset: str) -> dict[str, tuple[str, dict[str, list[Any]]]]:
    """Returns the signature and the columns of each request, about test triples."""
    import jobi_tf

    graph = jobi_tf.load_graph(dataset)
    heads, relations, tails = graph.test[:64].T
    columns: dict[str, list[Any]] = {
        "head": [graph.entities[i] for i in heads],
        "relation": [graph.relations[i] for i in relations],
        "tail": [graph.entities[i] for i in tails],
    }
    one = {name: column[:1] for name, column in columns.items()}
    query = {"head": one["head"], "relation": one["relation"], "k": [10]}
    return {
        "score-1": ("serving_default", one),
        "score-64": ("serving_default", columns),
        "tails": ("predict_tails", query),
    }


def sender(protocol: str, ports: dict[str, str], signature: str, columns: dict[str, list[Any]]) -> Callable[[], object]:
    """Returns a function that sends a request, made before, over its own connection and waits for the answer."""
    if protocol == "REST":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        body = json.dumps({"signature_name": signature, "instances": rows})
        connection = http.client.HTTPConnection("127.0.0.1", int(ports["REST"]), timeout=PATIENCE)
        return lambda: post(connection, body.encode())
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis.predict_pb2 import PredictRequest

    message = PredictRequest(inputs={name: tf.make_tensor_proto(column) for name, column in columns.items()})
    message.model_spec.name, message.model_spec.signature_name = MODEL, signature
    # Channels to one address would otherwise share a connection.
    channel = grpc.insecure_channel(f"127.0.0.1:{ports['gRPC']}", [("grpc.use_local_subchannel_pool", 1)])
    call, content = channel.unary_unary("/tensorflow.serving.PredictionService/Predict"), message.SerializeToString()
    return lambda: call(content, timeout=PATIENCE)


def post(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    """Returns the answer of the REST server."""
    connection.request("POST", f"/v1/models/{MODEL}:predict", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise OSError(f"the server answered {answer.status}: {content[:200]!r}")
    return content


@contextmanager
def server(folder: str) -> Iterator[dict[str, str]]:
    """Runs `jobi-tf serve` until the block ends; gives its ports by protocol once it serves."""
    command = [*JOBI_TF, "serve", folder, "--rest-port", "0", "--grpc-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if not (line := process.stdout.readline()):  # type: ignore[union-attr]
                sys.exit(process.wait())  # its message is the last on stderr
            yield dict(zip(("REST", "gRPC"), re.findall(r":(\d+)", line), strict=True))
        finally:
            process.terminate()


if __name__ == "__main__":
    globals()[sys.argv[1]](Rounds(), **json.loads(sys.argv[2]))
