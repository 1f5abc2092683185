import shutil

import numpy as np
import pytest

import jobi_tf
from jobi_tf.errors import DataError, UsageError
from tests.graphs import random_graph
from tests.models.oracles import oracle_scores

GRAPH = random_graph()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    jobi_tf.train(GRAPH, run_dir=folder, dim=8, batch_size=50, negatives=5, epochs=1)
    return jobi_tf.load_run(folder)


def test_the_run_knows_its_graph_and_settings(run):
    assert run.graph.fingerprint == GRAPH.fingerprint
    assert (run.config.dim, run.config.dataset, run.config.batch_size) == (8, "tiny", 50)
    assert run.model.num_entities == 30


def test_score_by_name(run):
    triples = GRAPH.test[:7]
    names = [(GRAPH.entities[h], GRAPH.relations[r], GRAPH.entities[t]) for h, r, t in triples]
    scores = run.score(names)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, oracle_scores(run.model, triples), atol=1e-5)
    assert run.score([]).shape == (0,)


def test_tails_and_heads_by_name(run):
    tails = run.tails("entity 3", "relation 1", k=30)
    heads = run.heads("relation 1", "entity 3", k=30)
    known = {tuple(t): name for name, split in GRAPH.splits.items() for t in split.tolist()}
    for answers, is_tail in ((tails, True), (heads, False)):
        ids = [int(a.entity.split()[1]) for a in answers]
        triples = np.array([(3, 1, i) if is_tail else (i, 1, 3) for i in ids])
        assert sorted(ids) == list(range(30))
        assert [a.score for a in answers] == sorted((a.score for a in answers), reverse=True)
        np.testing.assert_allclose([a.score for a in answers], oracle_scores(run.model, triples), atol=1e-5)
        assert [a.known for a in answers] == [tuple(t) in known for t in triples.tolist()]
        assert [a.split for a in answers] == [known.get(tuple(t)) for t in triples.tolist()]
    new = run.tails("entity 3", "relation 1", k=30, new_only=True)
    assert new == [a for a in tails if not a.known]
    assert len(run.tails("entity 3", "relation 1")) == 10
    assert run.answers(1, []) == []


def test_unknown_names_and_no_answers_are_refused(run):
    with pytest.raises(DataError, match=r"unknown entity 'entity 333'.*did you mean 'entity 3'"):
        run.tails("entity 333", "relation 1")
    with pytest.raises(DataError, match="unknown relation 'capital'"):
        run.score([("entity 3", "capital", "entity 4")])
    with pytest.raises(UsageError, match="expected k to be at least 1, got 0"):
        run.heads("relation 1", "entity 3", k=0)


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"expected the folder of a run, found no config.yaml in .*absent"):
        jobi_tf.load_run(tmp_path / "absent")


def test_files_of_two_runs_are_refused(run, tmp_path):
    mixed = tmp_path / "mixed"
    shutil.copytree(run.path, mixed)
    shutil.rmtree(mixed / "graph")
    random_graph(entities=31).save(mixed / "graph")
    with pytest.raises(DataError, match="the files of two runs are mixed"):
        jobi_tf.load_run(mixed)


def test_a_damaged_model_is_an_error(run, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(run.path, damaged)
    (damaged / "model.keras").write_bytes(b"junk")
    with pytest.raises(DataError, match=r"expected a saved model in .*model.keras"):
        jobi_tf.load_run(damaged)


def test_a_moved_run_opens(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "moved")
    np.testing.assert_array_equal(jobi_tf.load_run(tmp_path / "moved").model.entity, run.model.entity)
