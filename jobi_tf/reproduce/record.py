"""What is kept of a complete run: its settings, its time and its results on test, by side and by relation."""

import json
import statistics
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobi_tf.errors import DataError

if TYPE_CHECKING:
    from jobi_tf.training.run import Run

FILE = "evaluation.json"


@dataclass(frozen=True)
class Record:
    """The results of a complete run.

    Args:
        content: what the file holds, see `measure`.
    """

    content: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        """Time of training and ranking."""
        return self.content["train_seconds"] + self.content["rank_seconds"]

    def metric(self, name: str, side: str = "both") -> float:
        """Returns a metric of test on a side, or a time."""
        if name == "step_ms":
            return 1e3 * self.content["epoch_seconds"] / self.content["steps"]
        if name == "train_hours":
            return self.content["train_seconds"] / 3600
        if name in ("epoch_seconds", "epochs"):
            return self.content[name]
        if name in ("implausible", "wrong_implausible"):
            return self.implausible(name, side)
        test = self.content["test"]
        return (test if side == "both" else test[side])[name]

    def of_relation(self, relation: str, side: str, name: str) -> float:
        """Returns a metric of the test triples of a relation on a side."""
        row = self.content["relations"][relation][side]
        return row[name] if name not in _PARTS else _share(row[name], row[_PARTS[name]])

    def implausible(self, name: str, side: str = "both") -> float:
        """Returns the share of first answers that are implausible: `wrong_implausible` of the wrong ones."""
        rows = [
            row
            for relation in self.content["relations"].values()
            for at, row in relation.items()
            if side in (at, "both")
        ]
        return _share(sum(row[name] for row in rows), sum(row[_PARTS[name]] for row in rows))


_PARTS = {"implausible": "triples", "wrong_implausible": "wrong"}


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def read_record(path: Path) -> Record | None:
    """Reads the results in the folder of a run; None if there are none.

    Raises:
        DataError: the file is damaged.
    """
    try:
        content = json.loads((path / FILE).read_text(encoding="utf-8"))
        Record(content).metric("mrr")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"expected the results of a run in {path / FILE}, which is damaged: {reason}") from None
    return Record(content)


def write_record(run: "Run", jobs: int) -> None:
    """Ranks the test split with a trained run, and keeps everything that tables are made of."""
    from jobi_tf.files import written_beside

    assert run.path is not None  # it was trained into a folder
    text = json.dumps(measure(run, jobs), indent=1, ensure_ascii=False) + "\n"
    with written_beside(run.path / FILE) as beside:
        beside.write_text(text, encoding="utf-8")


def measure(run: "Run", jobs: int = 1) -> dict[str, Any]:
    """Returns the content of the record of a run.

    Args:
        run: the run.
        jobs: trainings that went on at once, which is what its times are to be read by.
    """
    from jobi_tf.evaluation.evaluate import evaluate
    from jobi_tf.evaluation.metrics import best_row
    from jobi_tf.training.assembly import epoch
    from jobi_tf.training.run_folder import RunFolder, describe_environment

    assert run.path is not None
    rows = RunFolder(run.path).read_metrics()
    best = best_row(rows, run.config.monitor) or rows[-1]
    seconds = [row["seconds"] for row in rows]
    evaluation = evaluate(run)
    return {
        "dataset": run.graph.name,
        "graph": run.graph.fingerprint,
        "settings": run.config.model_dump(exclude={"run_dir"}),
        "epochs": rows[-1]["epoch"],
        "best_epoch": best["epoch"],
        "valid": {name.removeprefix("val_"): value for name, value in best.items() if name.startswith("val_")},
        "test": evaluation.to_dict(),
        "relations": _relations(run, evaluation.ranks),
        "steps": epoch(run.config, run.graph).steps,
        # The first epoch of a process compiles.
        "epoch_seconds": statistics.median(seconds[1:] or seconds),
        "train_seconds": sum(seconds),
        "rank_seconds": evaluation.seconds,
        "jobs": jobs,
        "commit": commit(),
        "environment": {key: value for key, value in describe_environment().items() if key != "command"},
    }


def _relations(run: "Run", ranks: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """Returns for each relation of test and each side its metrics, and how many first answers are implausible."""
    import numpy as np

    from jobi_tf.data.occurrences import SIDES, KnownAnswers, Occurrences
    from jobi_tf.evaluation.breakdowns import first_answers
    from jobi_tf.evaluation.ranks import rank_metrics

    graph, triples = run.graph, np.asarray(run.graph.test)
    known = KnownAnswers.of_graph(graph, ("train", "valid", "test"), triples)
    occurrences = Occurrences.of_graph(graph)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for side, side_name in enumerate(SIDES):
        first = first_answers(run.model, known, occurrences, triples, side, ranks[side_name])
        for relation in np.unique(triples[:, 1]):
            chosen = triples[:, 1] == relation
            counts = {
                "triples": chosen,
                "wrong": chosen & ~first.right,
                "implausible": chosen & ~first.plausible,
                "wrong_implausible": chosen & ~first.right & ~first.plausible,
            }
            metrics = rank_metrics(ranks[side_name][chosen].ranks())
            row = {**metrics, **{name: int(which.sum()) for name, which in counts.items()}}
            found.setdefault(graph.relations[relation], {})[side_name] = row
    return found


@cache
def commit() -> str | None:
    """Returns the commit of the checkout that this package is in, with + if files were changed; None outside one."""
    here = Path(__file__).parent
    try:
        asked = [("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--untracked-files=no")]
        said = [subprocess.run(["git", *what], cwd=here, capture_output=True, text=True, timeout=10) for what in asked]
        tracked = subprocess.run(["git", "ls-files", "--error-unmatch", __file__], cwd=here, capture_output=True)
    except (OSError, subprocess.SubprocessError):
        return None
    if any(answer.returncode for answer in said) or tracked.returncode:
        return None  # an installed package that lies in somebody else's checkout
    return said[0].stdout.strip() + ("+" if said[1].stdout.strip() else "")
