"""Writing a run as a version of a SavedModel."""

import errno
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

import jobi_tf
from jobi_tf.data.occurrences import HEAD, TAIL, column
from jobi_tf.errors import DataError, JobiError, UsageError, check_at_least
from jobi_tf.evaluation.calibration import Calibration, calibrate, sample
from jobi_tf.export.card import model_card
from jobi_tf.export.contract import BATCHES, contract, example_requests, write_id_tables, write_warmup
from jobi_tf.export.lists import AnswerLists
from jobi_tf.export.servable import Servable
from jobi_tf.export.stored_model import StoredModel
from jobi_tf.files import new_folder
from jobi_tf.models.jobi import JoBi

DTYPES = ("float32", "float16")
TOP_K, MAX_TOP_K = 100, 1000  # the default, and the greatest
DRIFT_QUERIES = 500  # of which best answers are compared
CHECKED_ROWS = 2**16  # of a table, at once
LAST_VERSION = 2**63 - 1  # TensorFlow Serving stores versions in 64 bits


@dataclass(frozen=True)
class Drift:
    """How the scores of an export differ from the model's."""

    most: float  # greatest difference of a triple's score
    mean: float  # mean difference
    same_best: float  # share of queries, on both sides, with the same best answer, 0 to 1
    triples: int  # their number
    queries: int  # their number

    def __str__(self) -> str:
        """Returns the differences in one sentence."""
        return (
            f"scores of {self.triples:,} triples differ by {self.mean:.2g} on average, {self.most:.2g} at most; "
            f"{self.same_best:.2%} of {self.queries:,} queries have the same best answer"
        )


@dataclass(frozen=True)
class Exported:
    """A version of an export.

    Args:
        path: folder of the version.
        version: number of the version.
        dtype: dtype of the stored tables.
        top_k: largest `k` of a request.
        typed: whether answers are restricted to entities seen with the relation.
        candidates: number of entities that can be answers; None: all.
        calibration: the calibration of scores to probabilities, and its reliability.
        drift: difference between the scores and those of the model; None for float32.
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
        """Total size of the files in bytes."""
        return sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())


def export_run(
    run: "jobi_tf.Run",
    folder: str | Path,
    version: int | None = None,
    top_k: int = TOP_K,
    dtype: str = "float32",
    candidates: str | Path | Sequence[str] | None = None,
    typed: bool = False,
    warmup: bool = True,
) -> Exported:
    """Writes a run as `folder/<version>`, a SavedModel that is queried by name.

    TensorFlow Serving, C++ and Python load it without this library. It contains the triple head only. The version
    appears when it is complete. Without `tensorflow-serving-api`, warm-up requests are omitted with a `UserWarning`.

    Args:
        run: the run.
        folder: folder of the versions; created if it does not exist.
        version: number of the version; None: the next one.
        top_k: largest number of answers that a request can ask for, 1 to 1,000.
        dtype: dtype of the stored tables, `"float32"` or `"float16"`.
        candidates: names of the only entities that are returned as answers, or a file with one name per line.
        typed: whether to restrict answers to entities that training saw on that side of the relation.
        warmup: whether to write the requests that a server computes when it loads the version.

    Raises:
        UsageError: an option is out of range, the version exists, or the folder is that of a run.
        DataError: `candidates` cannot be read, is empty or contains an unknown name.
        JobiError: the weights of the model are not finite.

    Example:
        >>> exported = export_run(jobi_tf.load_run("runs/umls"), "exports/umls")
        >>> tf.saved_model.load(exported.path).signatures["predict_tails"](
        ...     head=tf.constant(["steroid"]), relation=tf.constant(["affects"]), k=tf.constant([5]))["tail"]
    """
    folder = Path(folder)
    if not isinstance(getattr(run, "model", None), JoBi):
        raise UsageError(f"expected a run, as jobi_tf.load_run opens it, got {run!r}")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise UsageError(f"expected dtype to be one of {', '.join(DTYPES)}, got {dtype!r}")
    check_at_least(1, top_k=top_k, version=1 if version is None else version)
    if top_k > MAX_TOP_K:
        raise UsageError(f"expected top_k from 1 to {MAX_TOP_K:,}, got {top_k}")
    if (folder / "config.yaml").exists():
        raise UsageError(
            f"expected a folder for exports, but {folder} is that of a run; a pool of runs cannot be exported, "
            "but `jobi-tf merge` makes one run of several that have the same scorer"
        )
    version = choose_version(folder, version)
    if isinstance(candidates, str | Path):
        ids: np.ndarray | None = run.graph.entities.ids_in_file(Path(candidates))
    else:
        ids = None if candidates is None else np.unique(run.graph.entities.ids(candidates))
    if ids is not None and not len(ids):
        raise DataError("expected names of entities as candidates, got none")
    _check_weights(run.model, dtype)
    path = folder / str(version)
    count = None if ids is None else len(ids)
    try:
        with new_folder(path) as beside, tempfile.TemporaryDirectory() as names:
            lists = AnswerLists(run.graph, ids, typed)
            stored = StoredModel(run.model, dtype, lists)
            calibration = calibrate(stored.scores_of, run.graph, run.config.p, run.config.seed)
            drift = None
            if dtype != "float32":
                triples = sample(run.graph, run.config.seed)[1]
                drift = measure_drift(StoredModel(run.model, "float32", lists), stored, triples)
            exported = Exported(path, version, dtype, top_k, typed, count, calibration, drift)
            servable = Servable(stored, run.graph, Path(names), top_k, calibration.slope, calibration.intercept)
            _write(beside, run, servable, exported, warmup)
    except OSError:
        choose_version(folder, version)  # raises a `UsageError` if another export has written it meanwhile
        raise
    return exported


def measure_drift(exact: StoredModel, rounded: StoredModel, triples: np.ndarray) -> Drift:
    """Compares the scores of `triples`, int32 [N, 3], and the best answers to the first of them as queries."""
    differences = np.abs(exact.scores_of(triples) - rounded.scores_of(triples))
    queries = tf.unstack(tf.constant(triples[:DRIFT_QUERIES], tf.int64), axis=1)
    same = []
    for side in (HEAD, TAIL):
        answers = [model.best(side, queries[column(1 - side)], queries[1], 1)[1] for model in (exact, rounded)]
        same.append((answers[0] == answers[1]).numpy())
    equal, most = np.concatenate(same), float(differences.max())
    return Drift(most, float(differences.mean()), float(equal.mean()), len(triples), len(equal))


def choose_version(folder: Path, version: int | None) -> int:
    """Returns `version`, which must not exist, or without it the integer after the versions that are in `folder`."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"expected a folder of versions, but {folder} is a file")
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    present = {int(name) for name in names if name.isascii() and name.isdigit()}
    if version is None:
        version = max(present, default=0) + 1
    if not 1 <= version <= LAST_VERSION:
        raise UsageError(f"expected a version from 1 to {LAST_VERSION}, got {version}")
    if version in present:
        raise UsageError(f"version {version} exists in {folder}; the next free one is {max(present) + 1}")
    return version


def _check_weights(model: JoBi, dtype: str) -> None:
    """Raises an error if weights are not finite, or not once they are rounded."""
    head = model.heads[0]
    net = [weight.value for weight in head.net.weights if len(weight.shape)] if head.net else []
    for weights in (model.entities.table.value, head.all_relations(), *net):
        starts = range(0, weights.shape[0], CHECKED_ROWS)
        largest = np.max([np.abs(weights[start : start + CHECKED_ROWS].numpy()).max() for start in starts])
        if not np.isfinite(largest):
            raise JobiError("the model's weights hold NaN or infinity")
        if largest > float(tf.as_dtype(dtype).max):
            raise UsageError(f"expected weights up to {tf.as_dtype(dtype).max:,.0f} for {dtype}, got {largest:,.0f}")


def _write(target: Path, run: "jobi_tf.Run", servable: Servable, exported: Exported, warmup: bool) -> None:
    functions = servable.trace()
    try:
        tf.saved_model.save(servable, str(target), signatures=functions)
    except tf.errors.ResourceExhaustedError as error:  # names a file that is gone by now
        if os.strerror(errno.ENOSPC) not in error.message:
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(exported.path)) from None
    requests = example_requests(run.graph, max(BATCHES), exported.top_k)
    if warmup:
        try:
            write_warmup(target, requests)
        except ImportError as error:
            text = f"no warm-up requests were written ({error}); they need: pip install 'jobi-tf[serving]'"
            warnings.warn(text, stacklevel=3)
    write_id_tables(target, run.graph)
    interface = contract(run, exported, functions, requests)
    # A server compares these: with damaged names, it would give wrong answers.
    interface["assets"] = {
        x.name: hashlib.sha256(x.read_bytes()).hexdigest() for x in sorted((target / "assets").iterdir())
    }
    (target / "signature.json").write_text(json.dumps(interface, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (target / "MODEL_CARD.md").write_text(model_card(run, exported, interface), "utf-8")
