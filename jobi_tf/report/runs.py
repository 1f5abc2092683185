"""Stored evaluations of runs, the list of runs below a folder, and the comparison of two runs; without TensorFlow."""

import hashlib
import json
import os
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import SIDES
from jobi_tf.errors import DataError, UsageError, damaged
from jobi_tf.evaluation.metrics import METRICS
from jobi_tf.evaluation.ranks import Ranks
from jobi_tf.evaluation.significance import Difference, paired_bootstrap
from jobi_tf.files import written_beside
from jobi_tf.training.config import RECORDED, TrainConfig
from jobi_tf.training.run_folder import PRETRAINED, RunFolder, run_summary, stored_evaluation

if TYPE_CHECKING:
    from jobi_tf.evaluation.evaluate import Evaluation

# Settings that merged runs have; the others are of trainings.
_OF_MERGED = {"dataset", "split", "columns", "header", "weights", "model", "reciprocal", "joint", "dim", *RECORDED}


def evaluation_name(
    split: str, side: str, ties: str, raw: bool, filter_with_test: bool, candidates: np.ndarray | None
) -> str:
    """Returns the name under which an evaluation is stored, such as `test`, `test-raw` or `valid-tail`.

    The arguments are the options of `jobi-tf evaluate`; other `candidates`, ids int [C], have another name.
    """
    parts = [split, *(x for x in (side, ties) if x not in ("both", "realistic"))]
    parts += [name for name, given in {"raw": raw, "filter-with-test": filter_with_test}.items() if given]
    if candidates is not None:
        digest = hashlib.sha256(np.sort(candidates).astype("<i8").tobytes()).hexdigest()[:8]
        parts.append(f"candidates-{digest}")
    return "-".join(parts)


def store_evaluation(run_dir: Path, name: str, evaluation: "Evaluation", result: Mapping[str, Any]) -> Path:
    """Writes an evaluation into the run folder, and returns the path of its metrics.

    `evaluations/NAME.json` has the result and the epoch of the model; `evaluations/NAME.npz` the epoch and, for each
    side, the counts of better and equal candidates, int64 [N]. The result `test` is also written to the logs for
    TensorBoard.
    """
    folder = RunFolder(run_dir)
    path = folder.evaluations / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    epoch = run_summary(folder)["best_epoch"]
    ranks = {f"{side}_{x}": getattr(ranks, x) for side, ranks in evaluation.ranks.items() for x in ("greater", "equal")}
    with written_beside(path.with_suffix(".npz")) as beside:
        np.savez_compressed(beside, epoch=epoch, **ranks)
    with written_beside(path) as beside:
        text = json.dumps({"epoch": epoch, **result}, ensure_ascii=False, allow_nan=False, indent=1)
        beside.write_text(text + "\n", encoding="utf-8")
    if name == "test" and folder.logs.is_dir():
        from jobi_tf.training.tensorboard import write_scalars

        write_scalars(folder.logs, {f"test/{METRICS[x]}": result[x] for x in METRICS}, epoch)
    return path


def stored_ranks(run_dir: Path) -> np.ndarray:
    """Returns the stored ranks of the test split with realistic ties, float64 [N, 2]: as head and as tail.

    Raises:
        DataError: there are none for the model of the run, or the file is damaged.
    """
    folder = RunFolder(run_dir)
    path = folder.evaluations / "test.npz"
    if path.exists():
        with damaged("the ranks of an evaluation", path), np.load(path) as file:
            if file["epoch"] == run_summary(folder)["best_epoch"]:
                return np.stack([Ranks(file[f"{x}_greater"], file[f"{x}_equal"]).ranks() for x in SIDES], 1)
    command = f"jobi-tf evaluate {shlex.quote(str(run_dir))}"
    raise DataError(f"expected an evaluation of {run_dir} on the test split: run `{command}` first")


def settings_of(config: TrainConfig) -> dict[str, Any]:
    """Returns all settings of a run but its folder.

    They are None if they have no effect, if another program trained and did not say, or, of a merged run, if they are
    about training.
    """
    absent = {*config.without_effect()}
    if config.own_program:
        absent |= TrainConfig.model_fields.keys() - config.model_fields_set
    if config.merged_from:
        absent |= TrainConfig.model_fields.keys() - _OF_MERGED
    settings = config.model_dump(exclude={"run_dir"})
    return {name: None if name in absent else value for name, value in settings.items()}


def run_values(path: Path) -> dict[str, Any]:
    """Returns the settings and metrics in the folder of a run, without loading its model.

    These are its `settings_of`, `epochs_done`, `best_epoch` (None if none was ranked) and metrics such as `val_mrr` of
    the best epoch and `test_hits@10` of `stored_evaluation`, or None.
    """
    folder = RunFolder(path)
    found, test, config = run_summary(folder), stored_evaluation(path), folder.read_config()
    return {
        **settings_of(config),
        **{"epochs_done": found["epochs"], "best_epoch": found["best_epoch"] if found["metrics"] else None},
        **{f"val_{name}": found["metrics"].get(name) for name in METRICS},
        **{f"test_{name}": test.get(name) for name in METRICS},
    }


def find_runs(folder: Path, report: Callable[[OSError], None] | None = None) -> list[Path]:
    """Returns the run folders in a folder, at any depth, in alphabetical order; the folder itself may be one.

    `report` is called with the error of each folder that cannot be read.
    """
    found = []
    for path, folders, files in os.walk(folder, onerror=report):
        if "config.yaml" in files:
            found.append(Path(path))
            folders.clear()
        folders[:] = [name for name in folders if not name.startswith(".")]  # such as one that is being written
    return sorted(found)


def labels(paths: Sequence[Path]) -> list[str]:
    """Returns the shortest end of each path that no other path has, else all of it; the paths are different."""
    pretrained = {path: Path("pretrained", name) for name, path in PRETRAINED.items()}
    parts = [pretrained.get(path, path.resolve()).parts for path in paths]
    counts = Counter(part[-n:] for part in parts for n in range(1, len(part) + 1))
    ends = (next((x[-n:] for n in range(1, len(x)) if counts[x[-n:]] == 1), x) for x in parts)
    return ["/".join(end) for end in ends]


def select_runs(
    runs: Mapping[Path, dict[str, Any]], where: Mapping[str, Any], sort: str | None = None
) -> dict[Path, dict[str, Any]]:
    """Returns those of some `run_values` that have the values `where`, sorted by the value of the name `sort`.

    The best come first for metrics, and runs without a value last.

    Raises:
        UsageError: a name is not one of those of `run_values`.
    """
    for name in [*where, *([sort] if sort else [])]:
        if any(name not in values for values in runs.values()):
            raise UsageError(f"expected a setting or a metric such as val_mrr or test_hits@10, got {name!r}")
    chosen = [(path, x) for path, x in runs.items() if all(x[name] == value for name, value in where.items())]
    if sort:
        falling = sort.startswith(("val_", "test_")) and not sort.endswith("mean_rank")
        present = [row for row in chosen if row[1][sort] is not None]
        present.sort(key=lambda row: row[1][sort], reverse=falling)
        chosen = present + [row for row in chosen if row[1][sort] is None]
    return dict(chosen)


def different_settings(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Returns the settings in which runs, given by their `settings_of`, differ, with all values; of one run, all.

    A setting without effect in a run, which is None, counts as the default. Settings that a merged run lacks are not
    compared.
    """
    found = {}
    for name, field in TrainConfig.model_fields.items():
        if name not in runs[0]:
            continue
        values = [x[name] for x in runs if x[name] is not None or not x["merged_from"]]
        values = [field.default if x is None else x for x in values]
        if len(runs) == 1 or any(value != values[0] for value in values):
            found[name] = [run[name] for run in runs]
    return found


def common_graph(paths: Sequence[Path]) -> Graph:
    """Returns the graph that all runs are on, or raises a `UsageError` if they differ or a run is given twice."""
    if not paths:
        raise UsageError("expected the folder of a run, got none")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError(f"expected every run once, got {', '.join(map(str, paths))}")
    for path in paths:
        RunFolder(path).read_config()  # whose error is the clearest if the folder is not that of a run
    graphs = [Graph.open(RunFolder(path).graph) for path in paths]
    for path, graph in zip(paths, graphs, strict=True):
        if graph.fingerprint != graphs[0].fingerprint:
            names = [f"{x.name} ({x.fingerprint[:8]})" for x in (graphs[0], graph)]
            raise UsageError(
                "expected runs on the same graph, as ranks compare only among the same entities and triples: "
                f"{paths[0]} is on {names[0]}, {path} on {names[1]}"
            )
    return graphs[0]


def compare_runs(a: Path, b: Path, samples: int = 10_000, seed: int = 0) -> dict[str, Difference]:
    """Returns the differences of `mrr` and `hits@10` of run b to run a, by a paired bootstrap over the test triples.

    The value of a triple is the mean over its two ranks, as head and as tail, which are drawn together.

    Raises:
        UsageError: the runs are on different graphs, or are the same.
        DataError: a run was not evaluated on the test split, or is damaged.
    """
    common_graph([a, b])
    first, second = stored_ranks(a), stored_ranks(b)
    values = {"mrr": (1 / first, 1 / second), "hits@10": (first <= 10, second <= 10)}
    return {name: paired_bootstrap(x.mean(1), y.mean(1), samples=samples, seed=seed) for name, (x, y) in values.items()}
