"""What stands beside the model in an export: `signature.json`, tables of ids, and warm-up requests."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import entity_degrees
from jobi_tf.data.shards import blocks
from jobi_tf.export.servable import INPUTS
from jobi_tf.export.stored_model import UNKNOWN_SCORE

if TYPE_CHECKING:
    import jobi_tf
    from jobi_tf.export.export import Exported

PACKAGES = ("jobi-tf", "tensorflow", "keras", "numpy")
EXAMPLE_K = 10
EXAMPLES = 2  # rows of the examples
BATCHES = (1, 8, 32)  # rows of the warm-up requests

Requests = Mapping[str, Mapping[str, list[Any]]]


def example_requests(graph: Graph, rows: int, top_k: int) -> Requests:
    """Returns for each signature the inputs of up to `rows` training triples."""
    triples = next(iter(blocks(graph.train, rows))).tolist()
    ids = dict(zip(("head", "relation", "tail"), map(list, zip(*triples, strict=True)), strict=True))
    names: dict[str, list[Any]] = {
        key: [(graph.relations if key == "relation" else graph.entities)[i] for i in column]
        for key, column in ids.items()
    }
    names |= {"entity": names["head"], "k": [min(EXAMPLE_K, top_k)] * len(triples)}
    return {
        signature: {key: (ids if signature == "score_ids" else names)[key] for key in inputs}
        for signature, inputs in INPUTS.items()
    }


def contract(
    run: "jobi_tf.Run", exported: "Exported", functions: Mapping[str, Any], requests: Requests
) -> dict[str, Any]:
    """Returns the content of `signature.json`; in shapes -1 is a size that the request decides."""
    fit = exported.calibration
    return {
        "model": run.model.scorer.name,
        "reciprocal": run.model.reciprocal,
        "graph": run.graph.name,
        "entities": run.graph.num_entities,
        "relations": run.graph.num_relations,
        "width": run.model.entities.table.shape[1],
        "top_k": exported.top_k,
        "dtype": exported.dtype,
        "typed": exported.typed,
        "candidates": exported.candidates,
        "calibration": {"a": fit.slope, "b": fit.intercept, "ece_before": fit.ece_before, "ece_after": fit.ece_after},
        "unknown_score": UNKNOWN_SCORE,
        "signatures": {
            name: {
                "inputs": {key: {"dtype": dtype.name, "shape": [-1]} for key, dtype in INPUTS[name].items()},
                "outputs": {
                    key: {"dtype": x.dtype.name, "shape": [-1 if size is None else size for size in x.shape]}
                    for key, x in function.structured_outputs.items()
                },
            }
            for name, function in functions.items()
        },
        "examples": {
            name: {key: values[:EXAMPLES] for key, values in inputs.items()} for name, inputs in requests.items()
        },
        "versions": {name: version(name) for name in PACKAGES},
    }


def write_id_tables(folder: Path, graph: Graph) -> None:
    """Writes `entities.tsv` and `relations.tsv`: id, name and number of training triples."""
    train = np.asarray(graph.train)
    of_entities = entity_degrees(train, graph.num_entities)
    of_relations = np.bincount(train[:, 1], minlength=graph.num_relations)
    every = ("entities", graph.entities, of_entities), ("relations", graph.relations, of_relations)
    for kind, vocabulary, counts in every:
        with (folder / f"{kind}.tsv").open("w", encoding="utf-8", newline="\n") as file:
            file.write("id\tname\ttriples\n")
            rows = enumerate(zip(vocabulary.names, counts.tolist(), strict=True))
            file.writelines(f"{i}\t{name}\t{count}\n" for i, (name, count) in rows)


def write_warmup(folder: Path, requests: Requests) -> None:
    """Writes `assets.extra/tf_serving_warmup_requests`, which a server computes before it accepts others.

    The values of the requests are repeated to fill a batch. Without `tensorflow-serving-api` it raises an ImportError,
    and nothing is written.
    """
    from tensorflow_serving.apis.predict_pb2 import PredictRequest
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog, PredictLog

    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in requests.items():
            for batch in BATCHES:
                request = PredictRequest()
                request.model_spec.signature_name = signature
                for name, values in inputs.items():
                    rows = [values[i % len(values)] for i in range(batch)]
                    request.inputs[name].CopyFrom(tf.make_tensor_proto(rows, INPUTS[signature][name]))
                log = PredictionLog(predict_log=PredictLog(request=request))
                writer.write(log.SerializeToString())
