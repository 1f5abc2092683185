"""An export of every scorer gives the scores of its run, and ranks as the evaluator does, on both sides."""

import json
from itertools import product

import keras
import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.errors import UsageError
from jobi_tf.export import export_run, stored_model
from jobi_tf.models.scorers import SCORERS
from tests.export.asking import PREDICT, load, named, named_columns, query, random_ids, with_each_entity
from tests.models.oracles import WIDTHS, oracle_scores

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


# Every scorer; those that differ most in how they are stored and searched come first.
FIRST = [("complex", False), ("complex", True), ("tucker", False), ("transe", False), ("conve", True)]
CASES = [
    pytest.param(*case, marks=[] if case in FIRST else pytest.mark.slow)
    for case in product(SCORERS, [False, True])
    if case != ("conve", False)
]


@pytest.mark.parametrize(("scorer", "reciprocal"), CASES)
def test_scores_and_ranks_are_those_of_the_run(run_of, tmp_path, monkeypatch, scorer, reciprocal):
    # The 31 entities in two slices, and queries in several blocks.
    monkeypatch.setattr(stored_model, "SLICE_SCORES", 1)
    monkeypatch.setattr(stored_model, "QUERY_BYTES", 1000)
    monkeypatch.setattr(stored_model, "ROWS", 7)
    run = run_of(scorer, reciprocal)
    graph, model = run.graph, run.model
    exported = export_run(run, tmp_path, top_k=31, warmup=False)
    ask, triples = load(exported.path), random_ids(graph, 200)
    scores = ask("serving_default", **named_columns(graph, triples))["score"]
    np.testing.assert_allclose(scores, run.score(named(graph, triples)), **CLOSE)
    np.testing.assert_allclose(scores, oracle_scores(model, triples), **CLOSE)

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:  # as servers load it
        signatures = tf.compat.v1.saved_model.load(session, ["serve"], str(exported.path)).signature_def
        signature = signatures["serving_default"]
        feed = {signature.inputs[name].name: values for name, values in named_columns(graph, triples).items()}
        np.testing.assert_array_equal(session.run(signature.outputs["score"].name, feed), scores)

    evaluation = jobi_tf.evaluate(run)
    for signature in ("predict_heads", "predict_tails"):
        name, _, column = PREDICT[signature]
        got = ask(signature, **query(graph, graph.test, signature, 31))
        entities = np.stack([graph.entities.ids(row) for row in got[name]])  # [N, E]
        candidates = np.stack(
            [with_each_entity(*x) for x in zip(graph.test, [column] * len(entities), entities, strict=True)]
        )
        expected = oracle_scores(model, candidates.reshape(-1, 3), column // 2).reshape(entities.shape)
        np.testing.assert_allclose(got["score"], expected, **CLOSE)
        # A filtered rank: the answer among those that are not known facts.
        answer = entities == graph.test[:, column, None]
        rivals, true = np.where(got["seen"], -np.inf, got["score"]), got["score"][answer][:, None]
        np.testing.assert_array_equal((rivals > true).sum(1), evaluation.ranks[name].greater)
        np.testing.assert_array_equal((rivals == true).sum(1), evaluation.ranks[name].equal)

    for signature, (_, inputs, _) in PREDICT.items():
        assert all(len(x) == 0 for x in ask(signature, **{name: [] for name in (*inputs, "k")}).values())

    contract, card = json.loads((exported.path / "signature.json").read_text()), exported.path / "MODEL_CARD.md"
    assert (contract["model"], contract["reciprocal"]) == (scorer, reciprocal)
    assert contract["width"] == (10 if scorer == "conve" else WIDTHS[scorer][0] * 8 // 5)
    assert ("reciprocal: a triple has one score" in card.read_text("utf-8")) == reciprocal


class Shift(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.shift, self.built = tf.Variable(0.5), True  # which Keras does not track

    def call(self, queries, training=False):
        return queries + self.shift


class Shifted(jobi_tf.Scorer):
    def query_net(self, dim, seed):
        return Shift()

    def tail_query(self, head, relation):
        return head * relation


def test_networks_may_have_variables_of_tensorflow(run_of, tmp_path):
    graph = run_of("complex", False).graph
    model = jobi_tf.JoBi(graph.num_entities, graph.num_relations, 4, Shifted(), reciprocal=True)
    exported = export_run(jobi_tf.Run.from_model(model, graph), tmp_path)
    triples = random_ids(graph, 9)
    scores = load(exported.path)("serving_default", **named_columns(graph, triples))["score"]
    np.testing.assert_allclose(scores, model.score(triples), **CLOSE)


@pytest.mark.parametrize(
    ("scorer", "reciprocal"), [("tucker", True), pytest.param("rotate", False, marks=pytest.mark.slow)]
)
def test_rounded_and_restricted(run_of, tmp_path, scorer, reciprocal):
    run = run_of(scorer, reciprocal)
    (tmp_path / "names").write_text("entity 1\nentity 2\nentity 5\n")
    exported = export_run(run, tmp_path / "here", top_k=3, dtype="float16", candidates=tmp_path / "names", warmup=False)
    assert 0 < exported.drift.most < 0.05
    assert exported.drift.same_best > 0.8
    ask, graph = load(exported.path), run.graph
    for signature in ("predict_heads", "predict_tails"):
        name, _, column = PREDICT[signature]
        got = ask(signature, **query(graph, graph.test, signature, 3))
        candidates = np.repeat(graph.test[:, None], 3, 1)
        candidates[..., column] = np.stack([graph.entities.ids(row) for row in got[name]])
        assert set(candidates[..., column].flat) == {1, 2, 5}
        expected = oracle_scores(run.model, candidates.reshape(-1, 3), column // 2).reshape(got["score"].shape)
        np.testing.assert_allclose(got["score"], expected, atol=0.05)


def test_a_relation_is_stored_as_queries_take_it(run_of, tmp_path):
    run = run_of("tucker")
    exported = export_run(run, tmp_path, warmup=False)
    table = tf.train.load_checkpoint(str(exported.path / "variables" / "variables")).get_tensor(
        "model/relation/.ATTRIBUTES/VARIABLE_VALUE"
    )
    core = run.model.heads[0].shared["core"].numpy()
    np.testing.assert_allclose(table, run.model.heads[0].relations.table.numpy() @ core, rtol=1e-5, atol=1e-6)
    run.model.heads[0].shared["core"].assign(core * 1e6)
    try:
        with pytest.raises(UsageError, match="float16"):
            export_run(run, tmp_path, dtype="float16", warmup=False)
    finally:
        run.model.heads[0].shared["core"].assign(core)
