import shutil
from types import SimpleNamespace

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.errors import DataError, JobiError, UsageError
from jobi_tf.training.storage import save_model
from tests.graphs import named_graph, random_graph
from tests.models.oracles import oracle_scores

LEAK = np.array([[3, 1, 7]], np.int32)  # in train and in test
PARTS = random_graph().splits
GRAPH = named_graph(PARTS | {x: np.concatenate([PARTS[x], LEAK]) for x in ("train", "test")}, 30, 4)


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
    frame = pd.DataFrame(names, columns=["head", "relation", "tail"])
    others = (name for name in names), tf.constant(names), frame[["tail", "relation", "head"]].assign(weight=1)
    for given in others:
        np.testing.assert_array_equal(run.score(given), scores)


def test_tails_and_heads_by_name(run):
    tails = run.tails("entity 3", "relation 1", k=30)
    heads = run.heads("relation 1", "entity 3", k=30)
    known = {tuple(t): name for name, split in reversed(GRAPH.splits.items()) for t in split.tolist()}
    for answers, is_tail in ((tails, True), (heads, False)):
        ids = [int(a.entity.split()[1]) for a in answers]
        triples = np.array([(3, 1, i) if is_tail else (i, 1, 3) for i in ids])
        assert sorted(ids) == list(range(30))
        assert [a.score for a in answers] == sorted((a.score for a in answers), reverse=True)
        np.testing.assert_allclose([a.score for a in answers], oracle_scores(run.model, triples), atol=1e-5)
        assert [a.known for a in answers] == [tuple(t) in known for t in triples.tolist()]
        assert [a.split for a in answers] == [known.get(tuple(t)) for t in triples.tolist()]
    assert [a.split for a in tails if a.entity == "entity 7"] == ["train"]
    new = run.tails("entity 3", "relation 1", k=30, new_only=True)
    assert new == [a for a in tails if not a.known]
    assert len(run.tails("entity 3", "relation 1")) == 10
    assert run.answers(1, []) == []


def test_unknown_names_and_no_answers_are_refused(run):
    with pytest.raises(DataError, match=r"'entity 333'.*'entity 3'"):
        run.tails("entity 333", "relation 1")
    with pytest.raises(DataError, match="relation 'capital'"):
        run.score([("entity 3", "capital", "entity 4")])
    with pytest.raises(UsageError, match=r"k .*0"):
        run.heads("relation 1", "entity 3", k=0)
    for queries in ([("entity 3",)], ["ab"], ("entity 3", "relation 1"), [3]):
        with pytest.raises(UsageError, match="queries"):
            run.answers(1, queries)
    for triples in (None, "test", run.graph, [("entity 3", "relation 1")], [("entity 3", "relation 1", None)]):
        with pytest.raises(DataError):
            run.score(triples)


def test_weights_that_are_not_finite_are_an_error():
    model = jobi_tf.JoBi(30, 4, 3)
    table = model.entities.table.numpy()
    table[3] = np.nan
    model.entities.table.assign(table)
    broken = jobi_tf.Run.from_model(model, GRAPH)
    for ask in (
        lambda: broken.score([("entity 3", "relation 1", "entity 4")]),
        lambda: broken.relations("entity 3", "entity 4"),
        lambda: broken.nearest("entity 4"),
        lambda: broken.complete(),
        lambda: broken.explain("entity 4", "relation 1", "entity 5"),
    ):
        with pytest.raises(JobiError, match="finite"):
            ask()


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"config.yaml .*absent"):
        jobi_tf.load_run(tmp_path / "absent")


def test_a_full_disk_while_a_model_is_written_is_an_error_of_its_file(run, tmp_path, monkeypatch):
    """As HDF5 reports it when it closes a file."""

    def close(*_: object, **__: object) -> None:
        raise RuntimeError("failed (file write failed, errno = 28, error message = 'No space left on device', buf = 0)")

    monkeypatch.setattr(keras.Model, "save", close)
    with pytest.raises(OSError, match="No space") as caught:
        save_model(run.model, tmp_path / "model.keras")
    assert caught.value.filename == str(tmp_path / "model.keras")
    assert not list(tmp_path.iterdir())


def test_a_model_is_not_written_to_a_disk_without_room(run, tmp_path, monkeypatch):
    """HDF5 may crash there."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000))
    monkeypatch.setattr(keras.Model, "save", lambda *_, **__: pytest.fail("nothing may be written"))
    with pytest.raises(OSError, match="No space") as caught:
        save_model(run.model, tmp_path / "model.keras")
    assert caught.value.filename == str(tmp_path / "model.keras")


def test_relations_between_two_entities(run):
    answers = run.relations("entity 3", "entity 5", k=4)
    triples = np.array([(3, int(a.relation.split()[1]), 5) for a in answers])
    np.testing.assert_allclose([a.score for a in answers], oracle_scores(run.model, triples), atol=1e-5)
    assert [a.score for a in answers] == sorted((a.score for a in answers), reverse=True)
    assert ("relation 1", "train") in [(a.relation, a.split) for a in run.relations("entity 3", "entity 7")]
    head, relation, tail = GRAPH.test[0]
    known = [a for a in run.relations(f"entity {head}", f"entity {tail}") if a.split]
    assert (f"relation {relation}", "test") in [(a.relation, a.split) for a in known]


def test_embeddings_and_near_entities(run):
    table = run.model.entities.table.numpy()
    np.testing.assert_array_equal(run.embedding("entity 4"), table[4])
    units = table / np.linalg.norm(table, axis=1, keepdims=True)
    expected = np.argsort(-(units @ units[4]))
    near = run.nearest("entity 4", k=5)
    assert [x.entity for x in near] == [f"entity {i}" for i in expected[1:6]]
    assert near[0].similarity == pytest.approx(units[4] @ units[expected[1]], rel=1e-5)
    with pytest.raises(DataError, match="'entity 99'"):
        run.embedding("entity 99")


def test_candidates_restrict_the_answers(run):
    names = ["entity 2", "entity 9", "entity 11"]
    every = [a for a in run.tails("entity 3", "relation 1", k=30) if a.entity in names]
    assert run.tails("entity 3", "relation 1", k=30, candidates=names) == every


def test_results_are_a_line_and_a_table(run):
    answers = run.tails("entity 3", "relation 1", k=4)
    for shown in (run, run.graph, answers, run.nearest("entity 3")):
        assert len(repr(shown).splitlines()) == 1
        assert len(repr(shown)) < 300
        assert shown._repr_html_().startswith("<table>")
    frame = answers.to_frame()
    assert list(frame.columns) == ["entity", "score", "known", "split"]
    assert list(frame.entity) == [a.entity for a in answers]


def test_a_run_is_saved_as_another_folder(run, tmp_path):
    saved = run.save(tmp_path / "saved")
    np.testing.assert_array_equal(saved.model.entities.table, run.model.entities.table)
    assert saved.graph.fingerprint == run.graph.fingerprint
    assert saved.config == run.config
    assert saved.history == run.history
