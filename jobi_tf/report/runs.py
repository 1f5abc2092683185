"""Stored evaluations of runs, the list of runs below a folder, and the comparison of two runs; without TensorFlow."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jobi_tf.errors import DataError, UsageError
from jobi_tf.evaluation.metrics import METRICS, best_row
from jobi_tf.evaluation.ranks import Ranks
from jobi_tf.evaluation.significance import Difference, paired_bootstrap
from jobi_tf.files import written_beside
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.run_folder import RunFolder

if TYPE_CHECKING:
    from jobi_tf.evaluation.evaluate import Evaluation


def evaluation_name(split: str, side: str = "both", ties: str = "realistic", **variants: bool) -> str:
    """Returns the name under which an evaluation is stored, such as `test`, `test-raw` or `valid-tail`.

    Args:
        split: the split that was ranked.
        side: `head`, `tail` or `both`.
        ties: rule for equal scores.
        **variants: whether the evaluation was `raw`, had given `candidates`, and so on.
    """
    parts = [split, "" if side == "both" else side, "" if ties == "realistic" else ties]
    return "-".join(filter(None, [*parts, *(name.replace("_", "-") for name, used in variants.items() if used)]))


def store_evaluation(run_dir: Path, name: str, evaluation: "Evaluation", result: Mapping[str, Any]) -> Path:
    """Writes an evaluation into the run folder, and returns the path of its metrics.

    `evaluations/NAME.json` has the result and the epoch of the model; `evaluations/NAME.npz` the epoch and, for each
    side, the counts of better and equal candidates, int64 [N].

    Raises:
        OSError: it cannot be written.
    """
    folder = RunFolder(run_dir)
    path = folder.evaluations / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    epoch = model_epoch(folder)
    ranks = {f"{side}_{x}": getattr(ranks, x) for side, ranks in evaluation.ranks.items() for x in ("greater", "equal")}
    with written_beside(path.with_suffix(".npz")) as beside:
        np.savez_compressed(beside, epoch=epoch, **ranks)
    with written_beside(path) as beside:
        text = json.dumps({"epoch": epoch, **result}, ensure_ascii=False, allow_nan=False, indent=1)
        beside.write_text(text + "\n", encoding="utf-8")
    return path


def stored_evaluation(run_dir: Path, name: str = "test") -> dict[str, Any]:
    """Returns the stored metrics; empty if there are none, or they are of a model of another epoch.

    Raises:
        DataError: the file is damaged.
    """
    folder = RunFolder(run_dir)
    path = folder.evaluations / f"{name}.json"
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        return result if result["epoch"] == model_epoch(folder) else {}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"expected the metrics of an evaluation in {path}, which is damaged: {error}") from None


def stored_ranks(run_dir: Path, name: str = "test") -> np.ndarray:
    """Returns the stored ranks with realistic ties, float64 [N, 2]: as head and as tail.

    Raises:
        DataError: there are none for the model of the run, or the file is damaged.
    """
    folder = RunFolder(run_dir)
    path = folder.evaluations / f"{name}.npz"
    try:
        with np.load(path) as file:
            if file["epoch"] == model_epoch(folder):
                sides = [Ranks(file[f"{side}_greater"], file[f"{side}_equal"]) for side in ("head", "tail")]
                return np.stack([ranks.ranks() for ranks in sides], 1)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"expected the ranks of an evaluation in {path}, which is damaged: {error}") from None
    raise DataError(f"expected an evaluation of {run_dir} on the test split: run `jobi-tf evaluate {run_dir}` first")


def model_epoch(folder: RunFolder) -> int:
    """Returns the epoch of the model of a run: the best one, or the last if no epoch was ranked."""
    rows = folder.read_metrics()
    row = best_row(rows, folder.read_config().monitor) or (rows[-1] if rows else {"epoch": 0})
    return row["epoch"]


@dataclass(frozen=True)
class RunSummary:
    """What the folder of a run tells without loading its model.

    Args:
        path: the run folder.
        config: the settings.
        epochs: number of finished epochs.
        best: the logs of the best epoch; empty if no epoch was ranked.
        test: metrics on the test split, see `stored_evaluation`.
    """

    path: Path
    config: TrainConfig
    epochs: int
    best: Mapping[str, Any]
    test: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "RunSummary":
        """Reads a run folder.

        Raises:
            DataError: this is not the folder of a run, or it is damaged.
        """
        folder = RunFolder(path)
        config, rows = folder.read_config(), folder.read_metrics()
        return cls(path, config, len(rows), best_row(rows, config.monitor) or {}, stored_evaluation(path))

    def values(self) -> dict[str, Any]:
        """Returns all settings, `epochs_done`, `best_epoch` and the metrics such as `val_mrr` and `test_hits@10`."""
        best = {f"val_{name}": self.best.get(f"val_{name}") for name in METRICS}
        test = {f"test_{name}": self.test.get(name) for name in METRICS}
        settings = self.config.model_dump(exclude={"run_dir"})
        return settings | {"epochs_done": self.epochs, "best_epoch": self.best.get("epoch")} | best | test


def find_runs(folder: Path) -> list[Path]:
    """Returns the run folders in a folder, at any depth, in alphabetical order; the folder itself may be one."""
    found = []
    for path, folders, files in os.walk(folder):
        if "config.yaml" in files:
            found.append(Path(path))
            folders.clear()
    return sorted(found)


def select_runs(runs: list[RunSummary], where: Mapping[str, Any], sort: str | None = None) -> list[RunSummary]:
    """Returns the runs with the given values, sorted by a value: the best first for metrics; runs without it last.

    Raises:
        UsageError: a name is not one of those of `RunSummary.values`.
    """
    rows = [(run, run.values()) for run in runs]
    for name in [*where, *([sort] if sort else [])]:
        if rows and name not in rows[0][1]:
            raise UsageError(f"expected a setting or a metric such as val_mrr or test_hits@10, got {name!r}")
    rows = [row for row in rows if all(row[1][name] == value for name, value in where.items())]
    if sort:
        falling = sort.startswith(("val_", "test_")) and not sort.endswith("mean_rank")
        present = [row for row in rows if row[1][sort] is not None]
        present.sort(key=lambda row: row[1][sort], reverse=falling)
        rows = present + [row for row in rows if row[1][sort] is None]
    return [run for run, _ in rows]


def different_settings(runs: list[RunSummary]) -> dict[str, list[Any]]:
    """Returns the settings in which runs differ, with the value of each run; of a single run, all settings."""
    every = [run.config.model_dump(exclude={"run_dir"}) for run in runs]
    rows = {name: [settings[name] for settings in every] for name in every[0]}
    return {name: row for name, row in rows.items() if len(runs) == 1 or any(value != row[0] for value in row)}


class Comparison(NamedTuple):
    """Two runs, and for `mrr` and `hits@10` on the test split the difference of the second to the first."""

    runs: tuple[RunSummary, RunSummary]
    differences: dict[str, Difference]


def compare_runs(a: Path, b: Path, samples: int = 10_000, seed: int = 0) -> Comparison:
    """Compares two evaluated runs by a paired bootstrap over the test triples.

    The value of a triple is the mean over its two ranks, as head and as tail, which are drawn together.

    Raises:
        UsageError: the runs are on different graphs.
        DataError: a run was not evaluated on the test split, or is damaged.
    """
    runs = RunSummary.read(a), RunSummary.read(b)
    graphs = [RunFolder(path).open_graph() for path in (a, b)]
    if graphs[0].fingerprint != graphs[1].fingerprint:
        names = [f"{graph.name} ({graph.fingerprint[:8]})" for graph in graphs]
        raise UsageError(f"expected two runs on the same graph, got {a} on {names[0]} and {b} on {names[1]}")
    first, second = stored_ranks(a), stored_ranks(b)
    pairs = {"mrr": (1 / first, 1 / second), "hits@10": (first <= 10, second <= 10)}
    differences = {
        name: paired_bootstrap(x.mean(1), y.mean(1), samples=samples, seed=seed) for name, (x, y) in pairs.items()
    }
    return Comparison(runs, differences)
