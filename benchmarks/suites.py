"""What is measured, and what is aimed at."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.results import Line
from benchmarks.running import Setting, Suite, Task

MANY = 1_900_000  # entities: a graph like the paper's FB1.9M


def sizes(setting: Setting) -> dict[str, Any]:
    """Returns the settings with which all libraries are timed: d = 200, batch 1,000, 50 negatives."""
    small = {"dim": 4, "batch_size": 100, "negatives": 5}
    return small if setting.tiny else {"dim": 200, "batch_size": 1000, "negatives": 50}


def fit(setting: Setting, folder: Path, **settings: Any) -> Task:
    """Returns the task of timing some steps of training."""
    steps = 5 if setting.tiny else 30
    return Task("train", {"dataset": str(folder), "steps": steps, **sizes(setting), **settings})


def with_memory(
    name: str, what: str, task: str, key: str, ratio: str = "", target: str = "", most: str = ""
) -> list[Line]:
    """Returns the figure of a task, and that of its peak memory, with its own target."""
    memory = Line(f"{name}-memory", f"{what}, peak memory", task, "MB", ratio, most)
    return [Line(name, what, task, key, ratio, target), memory]


def training(setting: Setting) -> Iterator[Suite]:
    """Training of JoBi and of plain ComplEx; shared negatives; the sampler alone; full softmax."""
    folder, size = setting.dataset, sizes(setting)
    options = {"batch_size": size["batch_size"], "negatives": size["negatives"]}
    tasks = {
        "joint": fit(setting, folder),
        "plain": fit(setting, folder, joint=False, p=0.0),
        "biased": fit(setting, folder, joint=False),
        "shared": fit(setting, folder, negatives_mode="shared"),
        "sampler": Task("sample", {"dataset": str(folder), "batches": 20 if setting.tiny else 300, **options}),
    }
    lines = [
        Line("training/joint", "JoBi training, ComplEx", "joint", "rate"),
        Line("training/plain", "plain ComplEx training", "plain", "rate"),
        Line("training/step", "JoBi step", "joint", "ms", "joint / plain", "<= 1.12"),
        Line("training/biased", "step without pair head, negatives as JoBi's", "biased", "ms", "joint / biased"),
        Line("training/sampler", "sampler alone, a batch", "sampler", "ms", "sampler / joint"),
        Line("shared/joint", "JoBi training, shared negatives", "shared", "rate", "shared / joint"),
    ]
    yield Suite(tasks, lines, folder.name)
    for dim in (4,) if setting.tiny else (200, 500):
        queries = {"loss": "full-softmax", "dim": dim, "batch_size": 50 if setting.tiny else 500}
        arguments = {"dataset": str(folder), "steps": 5 if setting.tiny else 20, **queries}
        tasks = {x: Task("train", {**arguments, "precision": x}) for x in ("float32", "bfloat16")}
        what = f"JoBi step, 500 queries against all entities, d = {dim}"
        lines = [
            Line(f"training/full-softmax-{dim}", what, "float32", "ms"),
            Line(f"training/bfloat16-{dim}", f"{what}, in bfloat16", "bfloat16", "ms", "float32 / bfloat16", ">= 1.6"),
        ]
        yield Suite(tasks, lines, folder.name)


def quality(setting: Setting) -> Iterator[Suite]:
    """Time to a validation Hits@10 of .485 with shared and with own negatives."""
    size = {"dim": 4, "batch_size": 100} if setting.tiny else {"dim": 200, "batch_size": 1000}
    common = {"dataset": str(setting.dataset), "hits": 0.01 if setting.tiny else 0.485, "most_epochs": 15, **size}
    tasks = {mode: Task("quality", {"mode": mode, **common}) for mode in ("own", "shared")}
    what = "training to validation Hits@10 0.485, shared negatives"
    line = Line("quality/time", what, "shared", "seconds", "own / shared", ">= 2")
    yield Suite(tasks, [line], setting.dataset.name, once=True)


def with_entities(setting: Setting, entities: int) -> Path:
    """Returns a graph with some number of entities; all have equally many relations and triples."""
    return setting.synthetic(entities, *((5, 1_000) if setting.tiny else (3_247, 2_000_000)))


def scale(setting: Setting) -> Iterator[Suite]:
    """A training step with 1,900,000 entities against one with 14,541."""
    few, many = (64, 400) if setting.tiny else (14_541, MANY)
    folders = {f"{few:,}": with_entities(setting, few), f"{many:,}": with_entities(setting, many)}
    dim = 4 if setting.tiny else 100
    for mode in ("own", "shared"):
        tasks = {name: fit(setting, folder, negatives_mode=mode, dim=dim) for name, folder in folders.items()}
        options = {name: sizes(setting)[name] for name in ("batch_size", "negatives")} | {"mode": mode}
        tasks["rows"] = Task("rows", {"dataset": str(folders[f"{many:,}"]), "dim": dim, **options})
        what = f"JoBi step, d = {dim}, {many:,} entities, {mode} negatives"
        rows = f"gathering and scattering its rows of three tables, {mode} negatives"
        lines = [
            Line(f"scale/{mode}", what, f"{many:,}", "ms", f"{many:,} / {few:,}", "<= 1.25"),
            Line(f"scale/{mode}-rows", rows, "rows", "ms", f"{many:,} / rows", "<= 1.5"),
        ]
        yield Suite(tasks, lines, folders[f"{many:,}"].name)
    folder = folders[f"{many:,}"]
    changes = {"adam": {}, "row-adagrad": {"optimizer": "row-adagrad"}, "bfloat16-table": {"table_dtype": "bfloat16"}}
    tasks = {name: fit(setting, folder, dim=dim, **change) for name, change in changes.items()}
    lines = []
    for name in [*changes][1:]:
        what = f"JoBi step, d = {dim}, {many:,} entities, {name}"
        lines += with_memory(f"scale/{name}", what, name, "ms", f"{name} / adam")
    yield Suite(tasks, lines, folder.name)


def processes(setting: Setting) -> Iterator[Suite]:
    """Training by one process, by two workers, and by two workers with two servers, all on this machine."""
    settings = {"dataset": str(setting.dataset), "epochs": 2, "negatives_mode": "shared-by-side", **sizes(setting)}
    settings |= {"negatives": 20} if setting.tiny else {}
    counts = {"one": (1, 0), "workers": (2, 0), "servers": (2, 2)}
    tasks = {x: Task("train_processes", {"workers": w, "servers": s, **settings}) for x, (w, s) in counts.items()}
    lines = []
    for name, title in (("one", "one process"), ("workers", "two workers"), ("servers", "two workers and two servers")):
        what, ratio = f"JoBi training, shared negatives by side, {title}", "" if name == "one" else f"{name} / one"
        lines += with_memory(f"processes/{name}", what, name, "rate", ratio)
    yield Suite(tasks, lines, setting.dataset.name, once=True)


def streaming(setting: Setting) -> Iterator[Suite]:
    """Training of 19.3 million triples from shards against training from memory."""
    folder = large_graph(setting)
    sources = {"shards": setting.shards(folder), "memory": folder}
    tasks = {name: fit(setting, source, tensorboard="none", dim=4) for name, source in sources.items()}
    lines = with_memory("streaming/step", "JoBi step, d = 4, from shards", "shards", "ms", "shards / memory")
    yield Suite(tasks, lines, folder.name)


def ranking(setting: Setting) -> Iterator[Suite]:
    """Filtered ranking of the test split against the bare matrix products."""
    arguments = {"dataset": str(setting.dataset), "dim": sizes(setting)["dim"]}
    lines = [
        Line("ranking/product", "bare matrix products of all scores", "product", "rate"),
        Line("ranking/rank", "filtered ranking, both sides", "rank", "rate", "rank / product", ">= 0.7"),
    ]
    yield Suite({name: Task(name, arguments) for name in ("rank", "product")}, lines, setting.dataset.name)


# Title of another library, and the targets of jobi-tf's rates divided by its rates.
PEERS: dict[str, tuple[str, dict[str, str]]] = {
    "pykeen": ("PyKEEN 1.11.1", {"train": ">= 10", "rank": ">= 60"}),
    "ampligraph": ("AmpliGraph 2.2.0", {"train": ">= 2.5"}),
}


def peers(setting: Setting) -> Iterator[Suite]:
    """PyKEEN and AmpliGraph in turns with jobi-tf, in environments that uv makes for their scripts."""
    folder, size = setting.dataset, sizes(setting)
    ours = {
        "train": fit(setting, folder),
        "train-shared": fit(setting, folder, negatives_mode="shared"),
        "rank": Task("rank", {"dataset": str(folder), "dim": size["dim"], "whole": True}),
    }
    for name, (title, targets) in PEERS.items():
        command = _peer(name, folder, *([200, 20] if setting.tiny else [20_000, 2048]), *size.values())
        tasks, lines = dict(ours), []
        for own in ours:
            measure = own.removesuffix("-shared")  # they have none: their training stands beside both of ours
            task = f"{name} {measure}"
            tasks[task] = Task(command, round={"measure": measure})
            ratio = f"{own} / {task}"
            lines.append(Line(f"peers/{name}-{own}", f"{title}, {measure}", task, "rate", ratio, targets.get(own, "")))
        yield Suite(tasks, lines, folder.name)
    folder = with_entities(setting, 400 if setting.tiny else MANY)
    few = [200, 20] if setting.tiny else [10_000, 100]
    large = size | ({} if setting.tiny else {"dim": 100})
    command = _peer("pykeen", folder, *few, *large.values())
    tasks = {"train": fit(setting, folder, **large), "pykeen": Task(command, round={"measure": "train"})}
    what = f"{PEERS['pykeen'][0]}, train, d = {large['dim']}, {MANY:,} entities"
    yield Suite(tasks, [Line("peers/pykeen-large", what, "pykeen", "rate", "train / pykeen")], folder.name)


def _peer(name: str, *arguments: object) -> tuple[str, ...]:
    """Returns the command of a peer's script, in an environment that uv makes for it."""
    script = Path(__file__).with_name("peers") / f"{name}_complex.py"
    return (sys.executable, "-m", "uv", "run", "--quiet", "--script", str(script), *map(str, arguments))


def large_graph(setting: Setting) -> Path:
    """Returns a synthetic graph of the size of the largest one of the paper."""
    return setting.synthetic(*((200, 5, 2_000) if setting.tiny else (MANY, 3_247, 19_300_000)))


def data(setting: Setting) -> Iterator[Suite]:
    """Preparing and building 19.3 million triples of text; opening prepared graphs."""
    small, large = setting.dataset, large_graph(setting)
    build = ["data", "build", "--from", str(large / "train.tsv"), "--out", "OUT"]
    tasks = {
        "prepare": Task("load", {"dataset": str(large), "prepare": True}),
        "build": Task("command", {"arguments": build}),
    }
    what = "preparing 19.3 M triples of text"
    lines = with_memory("data/prepare", what, "prepare", "seconds", target="< 300", most="< 6000")
    lines += with_memory("data/build", "building a data set of 19.3 M triples", "build", "seconds")
    yield Suite(tasks, lines, large.name, once=True)
    for name, folder, target in (("open", small, "< 0.3"), ("open-large", large, "< 2")):
        line = Line(f"data/{name}", f"opening {folder.name}, prepared", name, "seconds", target=target)
        yield Suite({name: Task("load", {"dataset": str(folder)})}, [line], folder.name)


def large(setting: Setting) -> Iterator[Suite]:
    """Training, and ranking with ComplEx and RotatE, of 1.9 million entities and 19.3 million triples, with memory."""
    folder = large_graph(setting)
    dim, batch, steps = (4, 50, 5) if setting.tiny else (100, 1000, 400)
    settings = {"dataset": str(folder), "steps": steps, "dim": dim, "batch_size": batch}
    # 45 minutes an epoch
    lines = with_memory("large/step", "JoBi step", "train", "ms", target="< 140", most="< 9000")
    yield Suite({"train": Task("train", settings)}, lines, folder.name)
    for name, scorer, title, count in (("rank", "complex", "ComplEx", 500), ("rotate", "rotate", "RotatE", 20)):
        arguments = {"dataset": str(folder), "dim": dim, "triples": count}
        tasks = {name: Task("rank", {**arguments, "scorer": scorer})}
        what = f"ranking {count} test triples, {title}, both sides"
        lines = with_memory(f"large/{name}", what, name, "seconds")
        if name == "rank":
            tasks["product"] = Task("product", arguments)
            what = f"bare matrix products of the scores of {count} test triples"
            lines.append(Line("large/product", what, "product", "rate", "rank / product", ">= 0.67"))
        yield Suite(tasks, lines, folder.name)


BASE = {"entities": 100_000, "triples": 2_000_000, "negatives": 50, "batch_size": 1000, "dim": 100}
VARIED = {
    "entities": (15_000, 50_000, 100_000, 500_000, 1_900_000),
    "triples": (500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000),
    "negatives": (10, 25, 50, 100, 200),
    "batch_size": (100, 250, 500, 1000, 2000),
    "dim": (25, 50, 100, 200, 400),
}
TINY_BASE = {"entities": 64, "triples": 600, "negatives": 5, "batch_size": 50, "dim": 4}


def growth(setting: Setting) -> Iterator[Suite]:
    """Time and memory of a step against entities, triples, negatives, batch size and d."""
    base, varied = (TINY_BASE, {"dim": (4, 8)}) if setting.tiny else (BASE, VARIED)
    for name, values in varied.items():
        for value in values:
            point = {**base, name: value}
            folder = setting.synthetic(point.pop("entities"), 5 if setting.tiny else 500, point.pop("triples"))
            lines = with_memory(f"growth/{name}-{value}", f"JoBi step, {name} {value:,}", "step", "ms")
            yield Suite({"step": fit(setting, folder, **point)}, lines, "synthetic")


def memory(setting: Setting) -> Iterator[Suite]:
    """Resident memory over 20 short epochs, each with its ranking."""
    count, settled = (5, 3) if setting.tiny else (20, 3)
    arguments = {"dataset": str(setting.dataset), "triples": 30_000, "count": count, "settled": settled}
    lines = [
        Line("memory/resident", f"resident memory after {count} epochs", "epochs", "resident", unit="MB"),
        Line("memory/growth", f"most above epoch {settled} later on", "epochs", "growth", unit="MB"),
        Line("memory/end", f"above epoch {settled} at the end", "epochs", "end", unit="MB"),
    ]
    yield Suite({"epochs": Task("epochs", {**arguments, **sizes(setting)})}, lines, setting.dataset.name, once=True)


def start(setting: Setting) -> Iterator[Suite]:
    """Start of the command line: `jobi-tf --help`, and a command that reads a graph."""
    commands = {"help": ["--help"], "stats": ["data", "stats", "world", "--json"]}
    lines = [
        Line("start/help", "`jobi-tf --help`", "help", "seconds", target="< 0.5"),
        Line("start/stats", "`jobi-tf data stats world`", "stats", "seconds"),
    ]
    yield Suite({name: Task("command", {"arguments": x}) for name, x in commands.items()}, lines, "world")


REQUESTS = {
    "score-1": ("score of one triple", "triples/s"),
    "score-64": ("scores of 64 triples", "triples/s"),
    "tails": ("ten best tails", "queries/s"),
}
SERVING_TARGETS = {
    "score-64-REST-4": ">= 5000",
    "tails-REST-32": ">= 600",
    "tails-REST-4-p99": "< 30",
    "tails-gRPC-4-p99": "< 30",
}


def serving(setting: Setting) -> Iterator[Suite]:
    """Start of the server and its first answers; answers a second and waits by REST and gRPC, 1 to 32 clients."""
    dataset, name = str(setting.dataset), setting.dataset.name
    export = Task("export", {"dataset": dataset, "folder": "exports", **sizes(setting)})
    yield Suite({"export": export}, [], name, once=True)  # each checkout serves what it exported
    for how, folder in (("without", "cold"), ("with", "warm")):
        task = Task("starts", {"folder": f"exports/{folder}/graph", "dataset": dataset})
        lines = [
            Line(f"serving/start-{how}", f"server ready, {how} warm-up requests", how, "seconds"),
            Line(f"serving/first-score-1-{how}", f"first score by REST, {how} them", how, "score-1", unit="ms"),
            Line(f"serving/first-tails-{how}", f"first ten best tails by REST, {how} them", how, "tails", unit="ms"),
        ]
        yield Suite({how: task}, lines, name)
    tasks, lines = {}, []
    for request, (what, unit) in REQUESTS.items():
        for protocol in ("REST", "gRPC"):
            for clients in (4,) if setting.tiny else (1, 4, 32):
                task_name, title = f"{request}-{protocol}-{clients}", f"{what} by {protocol}, clients: {clients}"
                seconds = 0.1 if setting.tiny else 2.0
                load = {"request": request, "protocol": protocol, "clients": clients, "seconds": seconds}
                tasks[task_name] = Task("load_test", {"folder": "exports/warm/graph", "dataset": dataset}, load)
                for key, its_unit in (("rate", unit), ("p50", "ms"), ("p99", "ms")):
                    figure, text = (task_name, title) if key == "rate" else (f"{task_name}-{key}", f"{title}, {key}")
                    target = SERVING_TARGETS.get(figure, "")
                    lines.append(Line(f"serving/{figure}", text, task_name, key, target=target, unit=its_unit))
    yield Suite(tasks, lines, name)


_ALL = (training, quality, scale, processes, streaming, ranking, peers, data, large, growth, memory, start, serving)
SUITES: dict[str, Callable[[Setting], Iterator[Suite]]] = {suite.__name__: suite for suite in _ALL}
ON_REQUEST = ("peers",)
