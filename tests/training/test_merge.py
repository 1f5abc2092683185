"""Runs that are merged into one."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.errors import UsageError
from jobi_tf.evaluation.weights import fit_weights
from jobi_tf.export import export_run
from jobi_tf.training.config import TrainConfig
from tests.graphs import random_graph

GRAPH = random_graph(entities=40, relations=3, train=300, valid=120, test=40)


def untrained(scorer="complex", dim=4, seed=0, graph=GRAPH, reciprocal=False, joint=True):
    """A run whose tables are far enough from zero that mistakes show."""
    model = jobi_tf.JoBi(graph.num_entities, graph.num_relations, dim, scorer, joint, reciprocal=reciprocal, seed=seed)
    for table in model.weights:
        table.assign(3 * table)
    settings = {"dataset": "tiny", "model": scorer, "dim": dim, "seed": seed, "reciprocal": reciprocal, "joint": joint}
    full = {"loss": "full-softmax"} if reciprocal else {}
    return jobi_tf.Run(None, TrainConfig.create(settings | full), graph, model)


@pytest.mark.parametrize("scorer", ["complex", "distmult", "simple", "rescal"])
@pytest.mark.parametrize("reciprocal", [False, True])
def test_the_scores_of_equal_weights_are_the_sum(tmp_path, scorer, reciprocal):
    runs = [untrained(scorer, dim, seed, reciprocal=reciprocal) for seed, dim in enumerate((4, 3, 5))]
    merged = jobi_tf.merge_runs(runs, tmp_path / "merged", "equal")
    assert (merged.model.dim, merged.config.dim, merged.model.joint, merged.config.joint) == (12, 12, False, False)
    names = [(GRAPH.entities[h], GRAPH.relations[r], GRAPH.entities[t]) for h, r, t in GRAPH.test.tolist()]
    np.testing.assert_allclose(merged.score(names), sum(run.score(names) for run in runs), atol=1e-5)
    for side in (0, 1):
        total = sum(run.model.scores(GRAPH.test, side) for run in runs)
        np.testing.assert_allclose(merged.model.scores(GRAPH.test, side), total, atol=1e-5)


def test_evaluation_and_export_are_those_of_the_sum(tmp_path):
    runs = [untrained(dim=dim, seed=dim) for dim in (4, 6)]
    merged = jobi_tf.merge_runs(runs, tmp_path / "merged", "equal")
    ranks = jobi_tf.evaluate(merged, split="test", raw=True).ranks
    for side, name in enumerate(("head", "tail")):
        total = sum(run.model.scores(GRAPH.test, side).numpy().astype(float) for run in runs)
        true = total[np.arange(len(total)), GRAPH.test[:, 2 * side]]
        np.testing.assert_array_equal(ranks[name].ranks(), 1 + (total > true[:, None] + 1e-6).sum(1))
    exported = export_run(merged, tmp_path / "export", warmup=False)
    card = (exported.path / "MODEL_CARD.md").read_text("utf-8")
    assert "merged from 2 runs" in card
    assert not re.search("epoch|batch_size|weights of the runs", card)
    served = tf.saved_model.load(str(exported.path)).signatures["score_ids"]
    columns = dict(zip(("head", "relation", "tail"), tf.constant(GRAPH.test.T), strict=True))
    total = sum(run.model.score(GRAPH.test).numpy() for run in runs)
    np.testing.assert_allclose(served(**columns)["score"], total, atol=1e-5)


def test_fitted_weights_prefer_the_run_that_knows_the_relation():
    """One run scores relation 0 well and the other relation 1; both have noise elsewhere."""
    entities, true = np.eye(40, dtype=np.float32), GRAPH.valid
    runs = []
    for mine in (0, 1):
        model = jobi_tf.JoBi(40, 3, 40, "rescal", joint=False, seed=mine)
        matrices = np.random.default_rng(mine).normal(size=(3, 40, 40)).astype(np.float32)
        for h, r, t in true[true[:, 1] == mine].tolist():
            matrices[r, h, t] += 4
        model.entities.table.assign(entities)
        model.heads[0].relations.table.assign(matrices.reshape(3, -1))
        runs.append(jobi_tf.Run(None, TrainConfig(dataset="tiny"), GRAPH, model))
    fitted = fit_weights([run.model for run in runs], GRAPH, sides=False)
    assert fitted.method == "relation"
    assert fitted.weights[0, 0] > 2 * abs(fitted.weights[0, 1])
    assert fitted.weights[1, 1] > 2 * abs(fitted.weights[1, 0])
    assert fitted.held_out["equal"] < max(fitted.held_out.values())


def test_runs_that_cannot_be_summed_are_refused(tmp_path):
    run = untrained()
    for other, key in (
        (untrained("distmult"), "model"),
        (untrained(reciprocal=True), "reciprocal"),
        (untrained(graph=random_graph(entities=40, relations=3, seed=1)), "graph"),
    ):
        with pytest.raises(UsageError, match=f"{key}.*not saved"):
            jobi_tf.merge_runs([run, other], tmp_path / "merged")
    for runs, weights, key in (
        ([run], "fitted", "1"),
        ([untrained("transe", joint=False)] * 2, "fitted", "transe"),
        ([run, run], "best", "'best'"),
    ):
        with pytest.raises(UsageError, match=key):
            jobi_tf.merge_runs(runs, tmp_path / "merged", weights)
    graph = random_graph(valid=0)
    with pytest.raises(UsageError, match="valid"):
        jobi_tf.merge_runs([untrained(graph=graph), untrained(graph=graph)], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(UsageError, match="full"):
        jobi_tf.merge_runs([run, run], tmp_path / "full")
    with pytest.raises(UsageError, match="merged_from"):
        jobi_tf.train(GRAPH, merged_from=["a"], run_dir=tmp_path / "run")


def test_the_command_writes_a_run_like_any_other(tmp_path, call):
    for seed, dim in enumerate((4, 6)):
        untrained(dim=dim, seed=seed).save(tmp_path / f"seed-{seed}")
    merged = tmp_path / "merged"
    assert str(merged) in call("merge", tmp_path / "seed-0", tmp_path / "seed-1", "--out", merged).stdout
    record = json.loads((merged / "merged.json").read_text())
    assert [Path(x["run"]).name for x in record["runs"]] == ["seed-0", "seed-1"]
    assert len(record["weights"]) == GRAPH.num_relations
    stored = json.loads(call("runs", "list", tmp_path, "--filter", "dim=10", "--json").stdout)[0]
    evaluated = json.loads(call("evaluate", merged, "--split", "valid", "--json").stdout)
    assert stored["val_mrr"] == pytest.approx(evaluated["mrr"])
    assert len(stored["merged_from"]) == 2
    assert stored["model"] == "complex"
    assert stored["epochs"] is stored["learning_rate"] is stored["eval_every"] is None
    assert re.search(r"^merged +– ", call("runs", tmp_path).stdout, re.MULTILINE)
    call("predict", merged, "--head", "entity 1", "--relation", "relation 0", "-k", 2)
    call("report", merged, tmp_path / "seed-0", "--out", tmp_path / "report.html")
    call("merge", tmp_path / "seed-0", tmp_path / "seed-0", "--out", tmp_path / "twice", status=2)


def test_the_command_says_if_a_run_is_as_good(tmp_path, call):
    for valid, said in ((GRAPH.valid, True), (GRAPH.valid[:0], False)):
        graph = replace(GRAPH, splits={**GRAPH.splits, "valid": valid})
        runs = [tmp_path / f"{len(valid)}-{seed}" for seed in (0, 1)]
        for seed, run in enumerate(runs):
            untrained(seed=seed, graph=graph).save(run)
            (run / "metrics.jsonl").write_text('{"epoch": 1, "val_mrr": 1.0}\n' if said else "")
        printed = call("merge", *runs, "--out", tmp_path / f"{len(valid)}-merged", "--weights", "equal")
        assert ("no better" in printed.stderr) == said
