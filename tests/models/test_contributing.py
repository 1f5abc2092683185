"""The scorer that CONTRIBUTING.md shows is all that a new one takes."""

import importlib
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.data.occurrences import HEAD, TAIL, KnownAnswers, column
from jobi_tf.errors import UsageError
from jobi_tf.evaluation.ranker import Ranker
from tests.graphs import random_graph

from .oracles import distmult, tables

GUIDE = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


def shown() -> str:
    section = GUIDE.read_text("utf-8").split("## Write a scorer")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]


def test_the_scorer_of_the_guide_by_the_name_of_its_module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_scorers.py").write_text(shown().replace("my_package", "my_scorers"))
    by_class = importlib.import_module("my_scorers").MyDistMult
    options = {"model": by_class, "dim": 8, "epochs": 1, "eval_every": 1, "callbacks": ()}
    run = jobi_tf.train(random_graph(), run_dir=tmp_path / "run", **options)
    found = jobi_tf.load_run(run.path)
    assert type(found.model.scorer).__name__ == "MyDistMult"
    assert jobi_tf.Run.from_model(found.model, found.graph).config.model == "my_scorers:MyDistMult"
    for name, words in (("my_scorers:Mine", "Mine"), ("my_scorers:keras", "subclass"), ("no.where:X", "no.where")):
        with pytest.raises(UsageError, match=words):
            jobi_tf.JoBi(3, 2, scorer=name)


def test_the_scorer_of_the_guide_trains_ranks_and_is_saved(tmp_path):
    assert len(shown().splitlines()) <= 14
    names = {}
    exec(shown(), names)
    graph = random_graph(train=180)
    model = jobi_tf.JoBi(graph.num_entities, graph.num_relations, 8, scorer=names["MyDistMult"]())
    losses = {"triple": jobi_tf.SampledSoftmax(), "pair": jobi_tf.PairCrossentropy()}
    model.compile(jobi_tf.LazyAdam(0.05), losses)
    batches, steps = jobi_tf.training_batches(graph, 60, 8), jobi_tf.steps_per_epoch(graph, 60)
    losses = model.fit(batches, epochs=3, steps_per_epoch=steps, verbose=0).history["triple_loss"]
    assert losses[-1] < losses[0]

    entity, relation = tables(model)
    every = np.repeat(graph.test[:, None], graph.num_entities, 1)
    for side in (HEAD, TAIL):
        candidates = every.copy()
        candidates[..., column(side)] = np.arange(graph.num_entities)
        scores = distmult(*(table[candidates[..., i]] for i, table in enumerate((entity, relation, entity))))
        np.testing.assert_allclose(model.scores(tf.constant(graph.test), side), scores, atol=1e-5)
        ranks = Ranker(model, KnownAnswers.of_graph(graph, ())).rank(graph.test, side)
        true = scores[np.arange(len(scores)), graph.test[:, column(side)]]
        np.testing.assert_array_equal(ranks.greater, (scores > true[:, None] + 1e-9).sum(1))

    model.save(tmp_path / "model.keras")
    restored = keras.saving.load_model(tmp_path / "model.keras")
    assert type(restored.scorer) is names["MyDistMult"]
