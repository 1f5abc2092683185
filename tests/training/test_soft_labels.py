"""Soft labels of a teacher, and runs that learn from them."""

import numpy as np
import pytest

import jobi_tf
from jobi_tf.data.batches import number_of_queries
from jobi_tf.data.occurrences import HEAD, KnownAnswers
from jobi_tf.errors import DataError, UsageError
from tests.graphs import random_graph

from .test_full_softmax import train
from .test_merge import GRAPH, untrained
from .test_train import Interrupt, assert_same_run, rows

QUERIES = number_of_queries(GRAPH)


@pytest.fixture(scope="module")
def labels():
    return jobi_tf.soft_labels(untrained(), k=6)


def test_they_are_the_most_likely_answers_that_training_lacks(labels):
    run, known = untrained(), KnownAnswers.of_graph(GRAPH, ["train"])
    for i, (anchor, relation, side) in enumerate(known.queries().tolist()):
        scores = run.model.scores(np.array([[anchor, relation, anchor]]), side).numpy()[0].astype(np.float64)
        likely = np.exp(scores) / np.exp(scores).sum()
        likely[known.answers[i]] = 0
        order = np.argsort(-likely)[:6]
        assert labels.entities[i].tolist() == order.tolist()
        np.testing.assert_allclose(labels.probabilities[i], likely[order], rtol=1e-4)


def test_a_file_of_them(labels, tmp_path):
    labels.save(tmp_path / "labels.npz")
    loaded = jobi_tf.SoftLabels.load(tmp_path / "labels.npz", GRAPH)
    np.testing.assert_array_equal(loaded.entities, labels.entities)
    np.testing.assert_array_equal(loaded.probabilities, labels.probabilities)
    with pytest.raises(DataError, match="another graph"):
        jobi_tf.SoftLabels.load(tmp_path / "labels.npz", random_graph())
    (tmp_path / "labels.npz").write_bytes(b"no")
    with pytest.raises(DataError, match="damaged"):
        jobi_tf.SoftLabels.load(tmp_path / "labels.npz", GRAPH)


def test_the_target_of_a_query_is_shared_by_odds(labels):
    inputs, found, _ = next(
        jobi_tf.query_batches(GRAPH, QUERIES, joint=False, soft_labels=labels, soft_weight=3.0)
        .take(1)
        .as_numpy_iterator()
    )
    keys = {tuple(row): i for i, row in enumerate(KnownAnswers.of_graph(GRAPH, ["train"]).queries().tolist())}
    assert {HEAD} < set(inputs["sides"].tolist())
    columns = zip(inputs["anchors"].tolist(), inputs["relations"].tolist(), inputs["sides"].tolist(), strict=True)
    for query, answers, (ids, shares) in zip(columns, inputs["answers"], found["triple"], strict=True):
        count, m = (answers >= 0).sum(), len(answers)
        np.testing.assert_array_equal(ids[:m], answers)
        np.testing.assert_array_equal(ids[m:], labels.entities[keys[query]])
        likely = labels.probabilities[keys[query]]
        soft = shares[m:].sum()
        assert soft / (1 - soft) == pytest.approx(3 * likely.sum() / (1 - likely.sum()), rel=1e-4)
        np.testing.assert_allclose(shares[m:] / soft, likely / likely.sum(), rtol=1e-5)
        np.testing.assert_allclose(shares[:m], np.where(answers >= 0, (1 - soft) / count, 0), rtol=1e-5)


def test_an_interrupted_run_learns_from_them_again(labels, tmp_path, monkeypatch):
    labels.save(tmp_path / "labels.npz")
    monkeypatch.chdir(tmp_path)
    settings = {"soft_labels": "labels.npz", "graph": GRAPH, "relation_prediction": 0.1}
    run = train(tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", callbacks=[Interrupt("within an epoch", 3)], **settings)
    monkeypatch.chdir("/")
    jobi_tf.resume(tmp_path / "run")
    assert_same_run(run.path, tmp_path / "run")
    plain = train(tmp_path / "plain", **settings | {"soft_labels": None})
    assert rows(plain.path)[-1]["triple_loss"] != pytest.approx(rows(run.path)[-1]["triple_loss"], rel=1e-3)


def test_a_run_that_learned_from_them_is_extended_and_merged(labels, tmp_path):
    labels.save(tmp_path / "labels.npz")
    run = train(tmp_path / "run", graph=GRAPH, soft_labels=str(tmp_path / "labels.npz"), soft_weight=3.0, epochs=1)
    head, relation, _ = GRAPH.train[0].tolist()
    extended = run.extend([(GRAPH.entities[head], GRAPH.relations[relation], "new")], steps=1)
    assert "new" in extended.graph.entities
    merged = jobi_tf.merge_runs([run.path, run.path], tmp_path / "merged", weights="equal")
    assert (merged.config.soft_labels, merged.config.soft_weight) == (None, 10)


def test_what_cannot_be_learnt_from_is_refused(labels, tmp_path):
    labels.save(tmp_path / "labels.npz")
    with pytest.raises(DataError, match="another graph"):
        train(tmp_path / "run", graph=random_graph(), soft_labels=str(tmp_path / "labels.npz"))
    assert [x.name for x in tmp_path.iterdir()] == ["labels.npz"]
    with pytest.raises(UsageError, match="valid"):
        jobi_tf.query_batches(GRAPH, 10, soft_labels=labels, split="valid")
    with pytest.raises(UsageError, match="soft_weight"):
        jobi_tf.query_batches(GRAPH, 10, soft_labels=labels, soft_weight=0.0)
    with pytest.raises(UsageError, match="soft_weight"):
        jobi_tf.query_batches(GRAPH, 10, soft_weight=3.0)
    with pytest.raises(UsageError, match=r"'labels\.npz'"):
        jobi_tf.query_batches(GRAPH, 10, soft_labels="labels.npz")
    with pytest.raises(UsageError, match="Graph"):
        jobi_tf.soft_labels(GRAPH)


def test_tensorboard_shows_a_run_that_learns_from_them(labels, tmp_path):
    labels.save(tmp_path / "labels.npz")
    settings = {"soft_labels": str(tmp_path / "labels.npz"), "tensorboard": "scalars,histograms", "epochs": 1}
    run = train(tmp_path / "run", graph=GRAPH, **settings)
    assert list(run.path.rglob("events.*"))
