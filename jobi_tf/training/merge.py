"""Several runs as one: the sum of bilinear models is one model with their embeddings side by side."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jobi_tf.data.occurrences import SIDES, KnownAnswers, column
from jobi_tf.errors import UsageError
from jobi_tf.evaluation.answers import best_answers
from jobi_tf.evaluation.evaluate import evaluate
from jobi_tf.evaluation.ranks import Ranks
from jobi_tf.files import new_folder
from jobi_tf.models.jobi import JoBi
from jobi_tf.models.scorers import RESCAL, ComplEx, DistMult, SimplE
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.recording import MetricsRecord
from jobi_tf.training.run import Run, load_run
from jobi_tf.training.run_folder import RunFolder

SCORERS = (ComplEx, DistMult, SimplE, RESCAL)
WEIGHTS = ("fitted", "equal")
CANDIDATES = 100  # wrong answers of a query that weights are fitted on: the best of the unweighted sum
SHRINKAGES = (1000, 100, 10)  # queries of validation that the global weights stand for
QUERIES_A_BLOCK = 100
MAX_STEPS, HALVINGS, TOLERANCE = 50, 20, 1e-5  # of Newton's method


class Fitted(NamedTuple):
    """Weights of the runs.

    Attributes:
        weights: for each relation, with reciprocal relations then for each inverse, those of the runs: [R or 2R, runs].
        method: `equal`, `global` (the same for all relations) or `relation`.
        shrinkage: queries of validation that the global weights stand for in those of a relation.
        held_out: for each way of weighting, its MRR on the halves of the validation split that it was not fitted on.
    """

    weights: np.ndarray
    method: str
    shrinkage: int | None = None
    held_out: dict[str, float] | None = None


def merge_runs(runs: Sequence[Run | str | Path], out: str | Path, weights: str = "fitted") -> Run:
    """Merges runs of one graph into a run whose scores are the weighted sum of theirs.

    The embeddings of the runs are put side by side, so that the merged model is an ordinary one with the sum of their
    sizes. The weights multiply its relation embeddings. Its pair head is left out, as it only helps training.

    With `weights="fitted"` each relation, with reciprocal relations each side of it, has a weight for each run. They
    minimize the cross entropy of validation triples, and are drawn to weights that are the same for all relations, the
    more the fewer validation triples a relation has. How strongly, and whether this is better than no weights at all,
    is decided on halves of the validation split: the simplest way of weighting is taken that is not worse than the best
    by more than a standard error.

    Args:
        runs: two or more runs, or their folders, of ComplEx, DistMult, SimplE or RESCAL.
        out: folder of the merged run. `merged.json` there has the weights and the settings of the runs.
        weights: `"fitted"` or `"equal"`, by which the scores are the plain sum.

    Returns:
        The merged run.

    Raises:
        UsageError: there are fewer than two runs; they differ in graph, scorer or reciprocal relations, or cannot be
            summed; `weights` is unknown, or there are no validation triples to fit them; or `out` has files already.
        DataError: a folder is not that of a run.

    Example:
        >>> jobi_tf.merge_runs(["runs/seed-0", "runs/seed-1"], "runs/merged").tails("steroid", "affects", k=3)
    """
    out, loaded = Path(out), [x if isinstance(x, Run) else load_run(x) for x in runs]
    _check(loaded, weights)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"expected a new or empty folder for the merged run, but {out} has files already")
    models, graph = [run.model for run in loaded], loaded[0].graph
    model = side_by_side(models)
    rows, dims = model.heads[0].relations.table.shape[0], [x.dim for x in models]
    fitted = fit_weights(model, dims, loaded[0]) if weights == "fitted" else Fitted(np.ones((rows, len(dims))), "equal")
    for relation_part, weight in zip(_parts(model, dims, relations=True), fitted.weights.T, strict=True):
        table = model.heads[0].relations.table.numpy()
        table[:, relation_part] *= weight[:, None].astype(np.float32)
        model.heads[0].relations.table.assign(table)
    with new_folder(out) as beside:
        folder = RunFolder(beside)
        folder.begin(_config(loaded, model), graph)
        model.save(folder.model)
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
                raise UsageError(
                    f"expected runs with the same {name} to merge: {first.path} has {ours}, {run.path} has {theirs}"
                )
    if weights == "fitted" and not len(first.graph.valid):
        raise UsageError(f"expected validation triples in {first.graph.name} to fit weights, got none: use equal")


def side_by_side(models: Sequence[JoBi]) -> JoBi:
    """Returns a model without a pair head whose scores are the sum of those of the models."""
    first, dims = models[0], [x.dim for x in models]
    scorer = type(first.scorer)()
    model = JoBi(first.num_entities, first.num_relations, sum(dims), scorer, joint=False, reciprocal=first.reciprocal)
    for table, tables, relations in (
        (model.entities.table, [x.entities.table for x in models], False),
        (model.heads[0].relations.table, [x.heads[0].relations.table for x in models], True),
    ):
        values = np.zeros(table.shape, np.float32)
        for part, other in zip(_parts(model, dims, relations), tables, strict=True):
            values[:, part] = other.numpy()
        table.assign(values)
    return model


def _parts(model: JoBi, dims: Sequence[int], relations: bool = False) -> list[np.ndarray]:
    """Returns the columns of a merged table that hold each run, those of RESCAL's matrices being diagonal blocks."""
    total, starts = sum(dims), np.cumsum([0, *dims[:-1]])
    ranges = [np.arange(start, start + dim) for start, dim in zip(starts, dims, strict=True)]
    if relations and isinstance(model.scorer, RESCAL):
        return [(total * x[:, None] + x).ravel() for x in ranges]
    return [np.concatenate([part * total + x for part in range(model.scorer.parts)]) for x in ranges]


@dataclass(frozen=True)
class _Queries:
    """Validation queries: the row of their relation, and the scores of the true answer and then of wrong ones.

    Args:
        rows: int [N].
        scores: those of each run, float32 [N, 1 + candidates, runs].
        mask: what is added to scores, 0 or -inf where there is no further candidate, float32 [N, 1 + candidates].
    """

    rows: np.ndarray
    scores: np.ndarray
    mask: np.ndarray

    def __getitem__(self, chosen: Any) -> "_Queries":
        return _Queries(self.rows[chosen], self.scores[chosen], self.mask[chosen])

    def reciprocal_ranks(self, weights: np.ndarray) -> np.ndarray:
        """Returns 1 / rank among the candidates with these weights of relations, [R or 2R, runs] → [N]."""
        totals = np.einsum("nck,nk->nc", self.scores, weights[self.rows]) + self.mask
        better, equal = (compare(totals[:, 1:], totals[:, :1]).sum(1) for compare in (np.greater, np.equal))
        return 1 / Ranks(better, equal).ranks()


def fit_weights(model: JoBi, dims: Sequence[int], run: Run) -> Fitted:
    """Fits the weights of runs whose embeddings are side by side in a model; see `merge_runs`."""
    queries = _queries(model, dims, run)
    rows = model.heads[0].relations.table.shape[0]
    halves = np.random.default_rng(0).permutation(len(queries.rows)) % 2
    held_out: dict[tuple[str, int | None], list[np.ndarray]] = {}
    for half in range(2):
        fitted_on, measured_on = queries[halves == half], queries[halves != half]
        for way, weights in _ways(fitted_on, rows).items():
            held_out.setdefault(way, []).append(measured_on.reciprocal_ranks(weights))
    values = {way: np.concatenate(parts) for way, parts in held_out.items()}
    best = max(values, key=lambda way: values[way].mean())
    # The simplest one that is not worse than the best by more than a standard error.
    chosen = next(way for way, x in values.items() if _mean_in_errors(values[best] - x) <= 1)
    names = {way: way[0] + (f" {way[1]}" if way[1] else "") for way in values}
    return Fitted(_ways(queries, rows)[chosen], *chosen, {names[way]: float(x.mean()) for way, x in values.items()})


def _mean_in_errors(differences: np.ndarray) -> float:
    """Returns the mean of differences divided by its standard error, 0 if all are 0."""
    return float(differences.mean() * len(differences) ** 0.5 / max(differences.std(), 1e-12))


def _queries(model: JoBi, dims: Sequence[int], run: Run) -> _Queries:
    valid, table = np.asarray(run.graph.valid), model.entities.table.numpy()
    known, parts = KnownAnswers.of_graph(run.graph, ("train", "valid"), valid), _parts(model, dims)
    found = []
    for side in range(len(SIDES)):
        wrong = best_answers(model, known, valid, side, CANDIDATES, new_only=True).entities
        answers = np.concatenate([valid[:, [column(side)]], wrong], 1)  # [N, 1 + candidates]
        scores = np.empty((*answers.shape, len(dims)), np.float32)
        for start in range(0, len(valid), QUERIES_A_BLOCK):
            block = slice(start, start + QUERIES_A_BLOCK)
            vectors, candidates = model.queries(valid[block], side).numpy(), table[answers[block]]
            for i, part in enumerate(parts):
                scores[block, :, i] = np.einsum("nw,ncw->nc", vectors[:, part], candidates[..., part])
        mask = np.where(answers < 0, -np.inf, 0).astype(np.float32)
        found.append((model.heads[0].relation_ids(valid[:, 1], side), scores, mask))
    return _Queries(*(np.concatenate(x) for x in zip(*found, strict=True)))


def _ways(queries: _Queries, rows: int) -> dict[tuple[str, int | None], np.ndarray]:
    """Returns the weights [rows, runs] of each way of weighting, fitted on queries: its method and its shrinkage."""
    runs = queries.scores.shape[2]
    ones = np.ones(runs)
    everywhere, curvature = _minimum(queries, ones, np.zeros((runs, runs)))
    ways: dict[tuple[str, int | None], np.ndarray] = {
        ("equal", None): np.tile(ones, (rows, 1)),
        ("global", None): np.tile(everywhere, (rows, 1)),
    }
    for shrinkage in SHRINKAGES:
        weights = np.tile(everywhere, (rows, 1))
        for row in np.unique(queries.rows):
            weights[row], _ = _minimum(queries[queries.rows == row], everywhere, shrinkage * curvature)
        ways["relation", shrinkage] = weights
    return ways


def _minimum(queries: _Queries, center: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Minimizes Σ cross entropy + ½ (w - center)ᵀ precision (w - center) over weights w, by Newton's method.

    Returns:
        The weights [runs], and the mean second derivative of the cross entropy of a query there, [runs, runs].
    """
    scores = queries.scores.astype(np.float64)

    def loss(point: np.ndarray) -> float:
        totals = scores @ point + queries.mask
        largest = totals.max(1, keepdims=True)
        log_sums = largest[:, 0] + np.log(np.exp(totals - largest).sum(1))
        return float((log_sums - totals[:, 0]).sum() + (point - center) @ precision @ (point - center) / 2)

    point = center
    for _ in range(MAX_STEPS):
        totals = scores @ point + queries.mask
        shares = np.exp(totals - totals.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        means = np.einsum("nc,nck->nk", shares, scores)
        curvature = np.einsum("nck,ncl->kl", shares[..., None] * scores, scores) - means.T @ means
        gradient = (means - scores[:, 0]).sum(0) + precision @ (point - center)
        step = np.linalg.solve(curvature + precision + 1e-9 * np.eye(len(point)), gradient)
        now = loss(point)
        better = (x for i in range(HALVINGS) if loss(x := point - 0.5**i * step) < now)
        if (next_point := next(better, None)) is None or np.abs(next_point - point).max() < TOLERANCE:
            break
        point = next_point
    return point, curvature / len(scores)


def _config(runs: Sequence[Run], model: JoBi) -> TrainConfig:
    """Returns the settings that all runs share, others being the defaults, with those of the merged model."""
    first, *others = (run.config.model_dump(exclude_unset=True, exclude={"run_dir"}) for run in runs)
    shared = {name: value for name, value in first.items() if all(x.get(name) == value for x in others)}
    merged_from = [str(run.path) for run in runs]
    own = {"model": model.scorer.name, "reciprocal": model.reciprocal, "dim": model.dim, "joint": False, "epochs": 1}
    return TrainConfig.create({"dataset": runs[0].graph.name} | shared | own | {"merged_from": merged_from}).effective()


def _record(runs: Sequence[Run], fitted: Fitted) -> dict[str, Any]:
    graph = runs[0].graph
    names = list(graph.relations.names)
    rows = [names] if len(fitted.weights) == len(names) else [names, [f"{name} (heads)" for name in names]]
    named = zip([name for part in rows for name in part], fitted.weights.round(6).tolist(), strict=True)
    return {
        "runs": [{"run": str(run.path), "settings": run.config.model_dump(exclude={"run_dir"})} for run in runs],
        "method": fitted.method,
        "shrinkage": fitted.shrinkage,
        "held_out_mrr": fitted.held_out,
        "weights": dict(named),
    }
