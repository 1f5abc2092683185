"""Pools of runs."""

import json

import numpy as np
import pytest

import jobi_tf
from jobi_tf.errors import UsageError
from jobi_tf.evaluation import answers
from jobi_tf.evaluation.exclusions import NumpyModel
from jobi_tf.training.pool import PoolModel, _scales
from tests.graphs import random_graph

from .test_merge import GRAPH, untrained


def test_a_run_pooled_with_itself_ranks_as_the_run():
    run = untrained()
    pool = jobi_tf.Pool([run, run])
    for side in (0, 1):
        ratio = pool.model.scores(GRAPH.test, side).numpy() / run.model.scores(GRAPH.test, side).numpy()
        np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:, :1], ratio.shape), rtol=1e-3)
        assert (ratio > 0).all()
    ranks, expected = jobi_tf.evaluate(pool).ranks, jobi_tf.evaluate(run).ranks
    for side, found in ranks.items():
        np.testing.assert_array_equal(found.ranks(), expected[side].ranks())
    names = [x.entity for x in run.tails("entity 1", "relation 0")]
    assert [x.entity for x in pool.tails("entity 1", "relation 0")] == names


def test_scores_are_the_weighted_sum_of_runs_of_two_scorers_and_rules(monkeypatch):
    runs, rules = [untrained("complex"), untrained("transe", joint=False)], jobi_tf.RuleModel(GRAPH)
    pool = jobi_tf.Pool(runs, rules)
    triples = GRAPH.test
    members = [*(run.model for run in runs), *rules.parts]
    for side in (0, 1):
        weights = pool.model.weights.numpy()[triples[:, 1] + (1 - side) * GRAPH.num_relations]
        total = sum(weights[:, [i]] * x.scores(triples, side).numpy() for i, x in enumerate(members))
        np.testing.assert_allclose(pool.model.scores(triples, side), total, rtol=1e-4, atol=1e-4)
    names = [(GRAPH.entities[h], GRAPH.relations[r], GRAPH.entities[t]) for h, r, t in triples.tolist()]
    monkeypatch.setattr(answers, "SCORES_AT_ONCE", 3 * GRAPH.num_entities)
    np.testing.assert_allclose(pool.score(names), total[np.arange(len(triples)), triples[:, 2]], rtol=1e-4, atol=1e-4)


def test_what_says_nothing_about_validation_queries_keeps_its_scale():
    model = untrained().model
    silent = NumpyModel(GRAPH, lambda triples, side: np.zeros((len(triples), GRAPH.num_entities), np.float32))
    assert _scales([model, silent], GRAPH.valid)[1] == 1


def test_held_out_ranks_are_among_all_entities_and_noise_gains_nothing():
    graph = random_graph(entities=400, relations=2, train=300, valid=150, test=10)
    pool = jobi_tf.Pool([untrained(seed=seed, graph=graph) for seed in (1, 2)])
    equal = PoolModel(pool.model.models, pool.model.weights.numpy() / pool.fitted.weights)
    assert pool.fitted.held_out["equal"] == pytest.approx(
        jobi_tf.evaluate(equal, graph, "valid").metrics()["mrr"], abs=0.002
    )
    assert max(pool.fitted.held_out.values()) < 0.05


def test_what_cannot_be_pooled_is_a_usage_error():
    other = random_graph(entities=40, relations=3, seed=1)
    with pytest.raises(UsageError, match="1"):
        jobi_tf.Pool([untrained()])
    with pytest.raises(UsageError, match=other.fingerprint[:8]):
        jobi_tf.Pool([untrained()], jobi_tf.RuleModel(other))
    for wrong in ((untrained(), None), jobi_tf.RuleModel(other)), ((untrained(),), untrained()):
        with pytest.raises(UsageError, match=r"got (NoneType|Run)"):
            jobi_tf.Pool(*wrong)
    empty = random_graph(valid=0)
    with pytest.raises(UsageError, match="valid"):
        jobi_tf.Pool([untrained(graph=empty), untrained(graph=empty)])


def test_commands_take_several_runs_and_rules(tmp_path, call):
    folders = [tmp_path / name for name in ("complex", "distmult")]
    for folder in folders:
        untrained(folder.name).save(folder)
    pool = jobi_tf.Pool(folders, jobi_tf.RuleModel(GRAPH))
    assert "fitted" in call("evaluate", *folders, "--split", "valid").stderr
    found = json.loads(call("evaluate", *folders, "--rules", "--json").stdout)
    assert found["mrr"] == pytest.approx(jobi_tf.evaluate(pool).metrics()["mrr"])
    assert not (folders[0] / "evaluations").exists()
    query = ("--head", "entity 1", "--relation", "relation 0", "-k", 3, "--json")
    answers = json.loads(call("predict", *folders, "--rules", *query).stdout)["answers"]
    assert [x["entity"] for x in answers] == [x.entity for x in pool.tails("entity 1", "relation 0", k=3)]
    assert str(folders[0]) in call("evaluate", folders[0], folders[0], status=2).stderr
    assert "--server" in call("predict", "--rules", *query, "--server", "http://localhost:1", status=2).stderr


def test_the_folder_of_one_run_is_no_list_of_runs():
    for call in (jobi_tf.Pool, lambda runs: jobi_tf.merge_runs(runs, "out")):
        for wrong in ("runs/a", None):
            with pytest.raises(UsageError, match=f"list of runs, got '{wrong}'"):
                call(wrong)
