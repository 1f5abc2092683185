"""What is kept of a complete run: its settings, its time and its results on test, by side and by relation."""

import json
import math
import statistics
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobi_tf.files import read_json, written_beside
from jobi_tf.report.runs import store_evaluation
from jobi_tf.training.run_folder import RunFolder, describe_environment, run_summary

if TYPE_CHECKING:
    from jobi_tf.data.graph import Graph
    from jobi_tf.evaluation.evaluate import Evaluation
    from jobi_tf.training.run import Run

FILE = "evaluation.json"
_WHOLES = {"implausible": "triples", "wrong_implausible": "wrong"}  # what these counts are shares of


@dataclass(frozen=True)
class Record:
    """The results of a complete run; `content` is what the file holds, see `measure`."""

    content: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        """Time of the training steps and of the last ranking."""
        return self.content["train_seconds"] + self.content["rank_seconds"]

    def value(self, metric: str, side: str = "both", relation: str | None = None) -> float:
        """Returns a metric of the test triples, or of those of a relation, on a side; or a time."""
        content = self.content
        if metric in _WHOLES:
            relations = content["relations"].values() if relation is None else [content["relations"][relation]]
            rows = [row for sides in relations for name, row in sides.items() if side in (name, "both")]
            whole = sum(row[_WHOLES[metric]] for row in rows)
            return sum(row[metric] for row in rows) / whole if whole else math.nan
        if relation is not None:
            return content["relations"][relation][side][metric]
        if metric == "train_hours":
            return content["train_seconds"] / 3600
        if metric in ("epoch_seconds", "epochs"):
            return content.get(metric, math.nan)  # a pool has none
        if metric == "step_ms":
            return 1e3 * content.get("epoch_seconds", math.nan) / content.get("steps", 1)
        return (content["test"] if side == "both" else content["test"][side])[metric]


def read_record(path: Path) -> Record | None:
    """Reads the results in the folder of a run, None without any; raises a `DataError` if they are damaged."""
    content = read_json(path / FILE, "the results of a run", "test")
    return Record(content) if content else None


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Keeps the results of a run, see `measure`, in its folder."""
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    with written_beside(path / FILE) as beside:
        beside.write_text(text, encoding="utf-8")


def measure(run: "Run", jobs: int = 1) -> dict[str, Any]:
    """Ranks the test split with a run, trained as one of `jobs` at once, and returns all that tables are made of."""
    from jobi_tf.data.occurrences import KnownAnswers, Occurrences
    from jobi_tf.evaluation.evaluate import evaluate
    from jobi_tf.report.measured import breakdown, first_answers
    from jobi_tf.training.assembly import epoch

    assert run.path is not None
    summary = run_summary(RunFolder(run.path))
    seconds = run.history["seconds"]
    evaluation = evaluate(run)
    store_evaluation(run.path, "test", evaluation, evaluation.to_dict())
    known = KnownAnswers.of_graph(run.graph, ("train", "valid", "test"), evaluation.triples)
    answers = first_answers(run.model, evaluation, known, Occurrences.of_graph(run.graph))
    relations: dict[str, dict[str, dict[str, float]]] = {}
    for (relation, side), part in answers.groupby(["relation", "side"]):
        relations.setdefault(run.graph.relations[relation], {})[side] = breakdown(part)
    return {
        **results(run.graph, evaluation, run.config.model_dump(exclude={"run_dir"}), summary["seconds"], jobs),
        "epochs": summary["epochs"],
        "best_epoch": summary["best_epoch"],
        "valid": summary["metrics"],
        "relations": relations,
        "steps": epoch(run.config, run.graph).steps,
        # The first epoch of a process compiles.
        "epoch_seconds": statistics.median(seconds[1:] or seconds),
    }


def results(
    graph: "Graph", evaluation: "Evaluation", settings: dict[str, Any], seconds: float, jobs: int
) -> dict[str, Any]:
    """Returns the part of a record that runs and pools have; `seconds` are those of training or of making the pool."""
    return {
        "dataset": graph.name,
        "graph": graph.fingerprint,
        "settings": settings,
        "test": evaluation.to_dict(),
        "train_seconds": seconds,
        "rank_seconds": evaluation.seconds,
        "jobs": jobs,
        "commit": commit(),
        "environment": {key: value for key, value in describe_environment().items() if key != "command"},
    }


@cache
def commit() -> str | None:
    """Returns the commit of the checkout that this package is in, with + if files were changed; None outside one."""

    def git(*arguments: object) -> str:
        command, here = ["git", *map(str, arguments)], Path(__file__).parent
        return subprocess.run(command, cwd=here, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)  # a package that is installed into another checkout is not tracked
        return git("describe", "--always", "--exclude=*", "--dirty=+", "--abbrev=12")
    except (OSError, subprocess.SubprocessError):
        return None
