"""Writing of a run as a version of a SavedModel."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from jobi_tf.errors import JobiError, UsageError
from jobi_tf.evaluation.evaluate import Trained
from jobi_tf.export.assets import known_keys, read_candidates, write_assets, write_tables
from jobi_tf.export.calibration import Calibration, calibrate, sample
from jobi_tf.export.card import model_card
from jobi_tf.export.contract import describe_signatures, example_requests, inputs_of, versions
from jobi_tf.export.drift import Drift, measure_drift
from jobi_tf.export.servable import UNKNOWN_SCORE, Servable
from jobi_tf.export.versions import choose_version
from jobi_tf.export.warmup import BATCHES, check_extra, write_warmup
from jobi_tf.files import new_folder
from jobi_tf.models.jobi import JoBi

DTYPES = ("float32", "float16")
TOP_K = 10
EXAMPLES = 2  # rows of the examples in signature.json


class Trainable(Trained, Protocol):
    """A run: what `jobi_tf.load_run` returns."""

    @property
    def path(self) -> Path:
        """The run folder."""

    @property
    def config(self) -> Any:
        """The settings of its training."""


@dataclass(frozen=True)
class Exported:
    """A version that was written.

    Args:
        path: its folder.
        version: its number.
        dtype: what the tables are stored as.
        top_k: answers a query.
        typed: whether answers are restricted to entities seen with the relation.
        candidates: number of entities that answers are restricted to, None for all.
        calibration: the probability of a score, and how reliable it is.
        drift: how far scores are from the model's; None where the tables were not rounded.
    """

    path: Path
    version: int
    dtype: str
    top_k: int
    typed: bool
    candidates: int | None
    calibration: Calibration
    drift: Drift | None

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())


def export_run(
    run: Trainable,
    folder: str | Path,
    version: int | None = None,
    top_k: int = TOP_K,
    dtype: str = "float32",
    candidates: str | Path | None = None,
    typed: bool = False,
    warmup: bool = True,
) -> Exported:
    """Writes a run as `folder/<version>`, a SavedModel by name.

    TensorFlow Serving, C++ and Python load it without this library. Only the triple head is in it. The version appears
    complete or not at all.

    Args:
        run: the run.
        folder: holds the versions; made if need be.
        version: number of the version; without it the one after the last.
        top_k: answers a query.
        dtype: what the tables are stored as, `"float32"` or `"float16"`.
        candidates: file with the names, one a line, of the only entities that may be answers.
        typed: restrict answers to entities that training saw on that side of the relation.
        warmup: write requests by which a server warms up.

    Raises:
        UsageError: an option cannot work, or the version is there already.
        DataError: `candidates` holds an unknown name, or none.
        JobiError: the model's weights are not finite.
        MissingExtraError: `warmup` needs a package that is not installed.

    Example:
        >>> exported = export_run(jobi_tf.load_run("runs/umls"), "exports/umls")
        >>> tf.saved_model.load(exported.path).signatures["predict_tails"](
        ...     head=tf.constant(["steroid"]), relation=tf.constant(["affects"]))["tail"]
    """
    folder = Path(folder)
    if dtype not in DTYPES:
        raise UsageError(f"expected a type of the tables out of {', '.join(DTYPES)}, got {dtype!r}")
    most = max(TOP_K, run.graph.num_entities)
    if not 1 <= top_k <= most:
        raise UsageError(f"expected from 1 to {most:,} answers a query (top-k), got {top_k:,}")
    if warmup:
        check_extra()
    version = choose_version(folder, version)
    ids = None if candidates is None else read_candidates(Path(candidates), run.graph.entities)
    _check_weights(run.model, dtype)
    path = folder / str(version)
    with new_folder(path) as beside:
        known, lists = known_keys(run.graph), beside / "lists"
        write_assets(lists, run.graph, known, ids, typed)
        servable = Servable(run.model, dtype, lists, top_k)
        calibration = _calibrated(servable, run, known)
        drift = (
            measure_drift(run.model, servable, sample(run.graph, run.config.seed)[1]) if dtype != "float32" else None
        )
        count = None if ids is None else len(ids)
        exported = Exported(path, version, dtype, top_k, typed, count, calibration, drift)
        _write(beside, run, servable, exported, warmup)
        shutil.rmtree(lists)  # copied among the assets
    return exported


def _calibrated(servable: Servable, run: Trainable, known: np.ndarray) -> Calibration:
    """Fits the probabilities on the scores of the tables as they are stored, and hands them to `servable`."""

    def scores(triples: np.ndarray) -> np.ndarray:
        return servable.scores(*tf.unstack(tf.constant(triples), axis=1)).numpy()

    calibration = calibrate(scores, run.graph, known, run.config.p, run.config.seed)
    servable.slope, servable.intercept = calibration.slope, calibration.intercept
    return calibration


def _write(target: Path, run: Trainable, servable: Servable, exported: Exported, warmup: bool) -> None:
    functions = servable.trace()
    tf.saved_model.save(servable, str(target), signatures=functions)
    examples = example_requests(run.graph, max(BATCHES))
    if warmup:
        write_warmup(target, examples, {name: inputs_of(function) for name, function in functions.items()})
    write_tables(target, run.graph)
    contract = _contract(run, servable, exported)
    contract["signatures"] = describe_signatures(functions)
    contract["examples"] = {
        name: {key: values[:EXAMPLES] for key, values in inputs.items()} for name, inputs in examples.items()
    }
    contract["versions"] = versions()
    (target / "signature.json").write_text(json.dumps(contract, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (target / "MODEL_CARD.md").write_text(model_card(run, exported, contract), "utf-8")


def _contract(run: Trainable, servable: Servable, exported: Exported) -> dict[str, Any]:
    """Returns the settings that stand in `signature.json`."""
    calibration = exported.calibration
    return {
        "model": run.model.scorer,
        "reciprocal": run.model.reciprocal,
        "graph": run.graph.name,
        "entities": servable.num_entities,
        "relations": servable.num_relations,
        "width": servable.width,
        "top_k": exported.top_k,
        "dtype": exported.dtype,
        "typed": exported.typed,
        "candidates": exported.candidates,
        "calibration": {
            "a": calibration.slope,
            "b": calibration.intercept,
            "ece_before": calibration.ece_before,
            "ece_after": calibration.ece_after,
        },
        "unknown_score": UNKNOWN_SCORE,
    }


def _check_weights(model: JoBi, dtype: str) -> None:
    """Refuses weights that are not finite, or not once they are rounded."""
    tables = (model.entity.value, model.relations())
    for weights in (*tables, *(weight.value for net in model.nets[:1] for weight in net.weights)):
        if not bool(tf.reduce_all(tf.math.is_finite(weights))):
            raise JobiError("expected finite weights, got NaN or infinity: the model's weights are broken")
    for table in tables:
        most = float(tf.reduce_max(tf.abs(table)))
        limit = float(tf.as_dtype(dtype).max)
        if most > limit:
            raise UsageError(f"expected weights up to {limit:,.0f} for {dtype}, got {most:,.0f}")
