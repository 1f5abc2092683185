"""A batch of each form, of a graph with few entities."""

import numpy as np
import tensorflow as tf

ENTITIES, RELATIONS = 9, 4
FORMS = ["own", "own by side", "shared", "shared by side", "queries"]
BY_SIDE = ["own by side", "shared by side", "queries"]
WEIGHTS = np.array([1.5, 0.5, 1.0, 1.5, 0.25, 1.25], np.float32)


def batch(form, seed=0, weights=False):
    rng = np.random.default_rng(seed)
    if form == "queries":
        inputs = {
            "anchors": rng.integers(ENTITIES, size=4),
            "relations": rng.integers(RELATIONS, size=4),
            "sides": [0, 0, 1, 1],
            "answers": [[1, 2, 3], [5, -1, -1], [0, 4, -1], [8, 7, 6]],
        }
        floats = {"weights": tf.constant(WEIGHTS[:4])}
    else:
        shape, name = ((2, 3), "chunks") if form.startswith("shared") else ((6,), "triples")
        sizes = (ENTITIES, RELATIONS, ENTITIES)
        inputs = {name: np.stack([rng.integers(size, size=shape) for size in sizes], -1)}
        if form in BY_SIDE:
            inputs |= {f"{side}_negatives": rng.integers(ENTITIES, size=(shape[0], 2)) for side in ("head", "tail")}
        else:
            inputs["negatives"] = rng.integers(ENTITIES, size=(shape[0], 4))
        if form == "own":
            inputs["head_counts"] = rng.integers(5, size=6)
        floats = {"weights": tf.constant(WEIGHTS.reshape(shape))} if weights else {}
    return {name: tf.constant(x, tf.int32) for name, x in inputs.items()} | floats


def triples_of(inputs):
    """The triples of a batch with what each counts and the side that is sought; and how many there are."""
    if "anchors" not in inputs:
        triples = next(inputs[name] for name in ("triples", "chunks") if name in inputs).numpy().reshape(-1, 3)
        weights = inputs["weights"].numpy().ravel() if "weights" in inputs else np.ones(len(triples))
        sides = ((0.5, 0), (0.5, 1)) if "head_negatives" in inputs else ((1.0, None),)
        return [(x, w * share, side) for x, w in zip(triples, weights, strict=True) for share, side in sides], len(
            triples
        )
    found = []
    names = ("anchors", "relations", "sides", "answers", "weights")
    for anchor, relation, side, answers, weight in zip(*(inputs[x].numpy() for x in names), strict=True):
        answers = answers[answers >= 0]
        for answer in answers:
            triple = (anchor, relation, answer) if side else (answer, relation, anchor)
            found.append((triple, weight / len(answers), side))
    return found, len(inputs["anchors"])
