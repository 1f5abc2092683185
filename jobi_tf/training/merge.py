"""Several runs as one: the sum of bilinear models is one model with their embeddings side by side."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jobi_tf.errors import UsageError
from jobi_tf.evaluation.evaluate import evaluate
from jobi_tf.evaluation.weights import Fitted, fit_weights
from jobi_tf.files import check_new, new_folder
from jobi_tf.models import scorers
from jobi_tf.models.jobi import JoBi
from jobi_tf.models.scorers import RESCAL
from jobi_tf.training.config import MERGEABLE, TrainConfig
from jobi_tf.training.recording import MetricsRecord
from jobi_tf.training.run import Run, load_run, load_runs
from jobi_tf.training.run_folder import RunFolder
from jobi_tf.training.storage import save_model

SCORERS = tuple(scorers.SCORERS[name] for name in MERGEABLE)
WEIGHTS = ("fitted", "equal")


def merge_runs(runs: Sequence[Run | str | Path], out: str | Path, weights: str = "fitted") -> Run:
    """Merges runs of one graph into a run whose scores are the weighted sum of their scores.

    The embeddings of the runs are concatenated, so the merged model is an ordinary one whose size is the sum of the
    sizes. The weights are multiplied into its relation embeddings. It has no pair head, which is only used in training.

    With `weights="fitted"`, each run has a weight for each relation, or for each side of it with reciprocal relations.
    The weights minimize the cross-entropy of the validation triples, with shrinkage towards weights that are equal for
    all relations, which is stronger for relations with few validation triples. The amount of shrinkage is chosen on
    held-out halves of the validation split, among no weights, equal weights for all relations, and weights for each
    relation: the simplest choice within a standard error of the best.

    Args:
        runs: two or more runs, or their folders, of ComplEx, DistMult, SimplE or RESCAL.
        out: folder of the merged run. Its `merged.json` contains the weights and the settings of the runs.
        weights: `"fitted"`, or `"equal"` for the plain sum of the scores.

    Returns:
        The merged run.

    Raises:
        UsageError: there are fewer than two runs; they differ in graph, scorer or reciprocal relations, or cannot be
            summed; `weights` is unknown, or there are no validation triples to fit them; or `out` is not empty.
        DataError: a folder is not that of a run.

    Example:
        >>> jobi_tf.merge_runs(["runs/seed-0", "runs/seed-1"], "runs/merged").tails("steroid", "affects", k=3)
    """
    out = Path(out)
    check_new(out)
    loaded = load_runs(runs)
    _check(loaded, weights)
    models, graph = [run.model for run in loaded], loaded[0].graph
    if weights == "fitted":
        fitted = fit_weights(models, graph, models[0].reciprocal)
    else:
        fitted = Fitted(np.ones((models[0].heads[0].relations.table.shape[0], len(models))), "equal")
    model = side_by_side(models, fitted.weights)
    with new_folder(out) as beside:
        folder = RunFolder(beside)
        folder.begin(_config(loaded, model), graph)
        save_model(model, folder.model)
        (beside / "merged.json").write_text(json.dumps(_record(loaded, fitted), indent=1) + "\n", encoding="utf-8")
        if len(graph.valid):
            metrics = evaluate(model, graph, "valid").metrics()
            MetricsRecord(folder, []).on_epoch_end(0, {f"val_{name}": value for name, value in metrics.items()})
    return load_run(out)


def _check(runs: Sequence[Run], weights: str) -> None:
    if weights not in WEIGHTS:
        raise UsageError(f"expected weights to be one of {', '.join(WEIGHTS)}, got {weights!r}")
    if len(runs) < 2:
        raise UsageError(f"expected two or more runs to merge, got {len(runs)}")
    first = runs[0]
    if type(first.model.scorer) not in SCORERS:
        names = ", ".join(x.__name__ for x in SCORERS)
        raise UsageError(f"expected runs of {names}, whose scores can be summed, got {first.model.scorer.name}")
    for run in runs[1:]:
        values = {
            "graph": (first.graph.fingerprint[:8], run.graph.fingerprint[:8]),
            "model": (first.model.scorer.name, run.model.scorer.name),
            "reciprocal": (first.model.reciprocal, run.model.reciprocal),
        }
        for name, (ours, theirs) in values.items():
            if ours != theirs:
                pair = f"{_name(first)} has {ours}, {_name(run)} has {theirs}"
                raise UsageError(f"expected runs with the same {name} to merge: {pair}")
    if weights == "fitted" and not len(first.graph.valid):
        raise UsageError(f"expected validation triples in {first.graph.name} to fit weights, got none: use equal")


def _name(run: Run) -> str:
    return str(run.path or "a run that is not saved")


def side_by_side(models: Sequence[JoBi], weights: np.ndarray) -> JoBi:
    """Returns a model without a pair head whose scores are the weighted sum of those of the models.

    The weights are for each relation, or with reciprocal relations for each side: [R or 2R, models].
    """
    first, dims = models[0], [x.dim for x in models]
    scorer = type(first.scorer)()
    counts, total = (first.num_entities, first.num_relations), sum(dims)
    model = JoBi(*counts, total, scorer, joint=False, reciprocal=first.reciprocal, dtype="float32")
    entities, relations = model.entities.table.numpy(), model.heads[0].relations.table.numpy()
    starts = np.cumsum([0, *dims[:-1]])
    if isinstance(scorer, RESCAL):
        relations[:] = 0
    for other, start, weight in zip(models, starts, weights.T.astype(np.float32), strict=True):
        own = np.arange(start, start + other.dim)
        columns = np.concatenate([part * total + own for part in range(scorer.parts)])
        entities[:, columns] = other.entities.table
        if isinstance(scorer, RESCAL):  # a diagonal block of the matrix
            columns = (total * own[:, None] + own).ravel()
        relations[:, columns] = weight[:, None] * other.heads[0].relations.table.numpy()
    model.entities.table.assign(entities)
    model.heads[0].relations.table.assign(relations)
    return model


def _config(runs: Sequence[Run], model: JoBi) -> TrainConfig:
    """Returns the settings that all runs share, others being the defaults, with those of the merged model."""
    own_files = {"run_dir", "soft_labels"}
    first, *others = (run.config.model_dump(exclude_unset=True, exclude=own_files) for run in runs)
    shared = {name: value for name, value in first.items() if all(x.get(name) == value for x in others)}
    merged_from = [_name(run) for run in runs]
    own = {"model": model.scorer.name, "reciprocal": model.reciprocal, "dim": model.dim, "joint": False, "epochs": 1}
    return TrainConfig.create({"dataset": runs[0].graph.name} | shared | own | {"merged_from": merged_from}).effective()


def _record(runs: Sequence[Run], fitted: Fitted) -> dict[str, Any]:
    names = runs[0].graph.relation_names(runs[0].model.reciprocal)
    return {
        "runs": [{"run": _name(run), "settings": run.config.model_dump(exclude={"run_dir"})} for run in runs],
        "method": fitted.method,
        "shrinkage": fitted.shrinkage,
        "held_out_mrr": fitted.held_out,
        "weights": dict(zip(names, fitted.weights.round(6).tolist(), strict=True)),
    }
