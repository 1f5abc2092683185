"""The scorer that CONTRIBUTING.md shows is all that a new one takes."""

import re
from pathlib import Path

import numpy as np
import tensorflow as tf

import jobi_tf
from jobi_tf.data.occurrences import HEAD, TAIL, column
from jobi_tf.evaluation.ranker import Ranker
from jobi_tf.models.scorer import Scorer
from jobi_tf.models.scorers import SCORERS
from jobi_tf.training.assembly import build_batches, compile_model, completed, epoch
from jobi_tf.training.config import TrainConfig
from tests.graphs import random_graph

from .oracles import distmult

GUIDE = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


def shown() -> str:
    section = GUIDE.read_text("utf-8").split("## Add a scorer")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]


def test_the_scorer_of_the_guide_trains_and_ranks(monkeypatch):
    assert len(shown().splitlines()) <= 10
    names = {"Scorer": Scorer}
    exec(shown().replace('"distmult"', '"mine"'), names)  # under a name of its own
    monkeypatch.setitem(SCORERS, "mine", names["DistMult"]())
    graph = random_graph(train=180)
    config = completed(TrainConfig.create({"dataset": "tiny", "batch_size": 60, "learning_rate": 0.05}), graph)
    model = jobi_tf.JoBi(graph.num_entities, graph.num_relations, 8, "mine")
    compile_model(model, config, steps=9)
    steps = epoch(config, graph).steps
    batches = build_batches(config, graph)
    losses = model.fit(batches, epochs=3, steps_per_epoch=steps, verbose=0, shuffle=False).history["triple_loss"]
    assert losses[-1] < losses[0]

    entity, relation = model.entity.numpy().astype(float), model.triple_relation.numpy().astype(float)
    every = np.repeat(graph.test[:, None], graph.num_entities, 1)
    for side in (HEAD, TAIL):
        candidates = every.copy()
        candidates[..., column(side)] = np.arange(graph.num_entities)
        scores = distmult(*(table[candidates[..., i]] for i, table in enumerate((entity, relation, entity))))
        np.testing.assert_allclose(model.scores(tf.constant(graph.test), side), scores, atol=1e-5)
        ranks = Ranker(model, None).rank(graph.test, side)
        true = scores[np.arange(len(scores)), graph.test[:, column(side)]]
        np.testing.assert_array_equal(ranks.greater, (scores > true[:, None] + 1e-9).sum(1))
