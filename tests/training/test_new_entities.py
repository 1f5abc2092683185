"""Entities that a model did not see: warm starts, pretrained vectors, and runs that are extended."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.errors import DataError, UsageError
from jobi_tf.export import export_run
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.extend import _among, _extended_graph, _NewEntities
from jobi_tf.training.vectors import read_vectors, write_vectors
from tests.graphs import random_graph

GRAPH = random_graph()
SETTINGS = {"dim": 8, "batch_size": 50, "negatives": 5, "eval_every": 0, "callbacks": ()}


def train(folder, graph=GRAPH, **settings):
    return jobi_tf.train(graph, run_dir=folder, **SETTINGS | {"epochs": 1} | settings)


BY_SIDE = {"reciprocal": True, "negatives_mode": "by-side", "negatives": 6}


@pytest.fixture(scope="module", params=[{}, pytest.param(BY_SIDE, marks=pytest.mark.slow)])
def settings(request):
    return request.param


@pytest.fixture(scope="module")
def run(tmp_path_factory, settings):
    return train(tmp_path_factory.mktemp("runs") / "run", epochs=3, **settings)


def renamed(graph):
    """The same triples of the same names with other ids, an entity and a relation more."""
    names = {
        split: [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in rows]
        for split, rows in graph.splits.items()
    }
    train = [("new entity", "new relation", "entity 1"), *names["train"][::-1]]
    return jobi_tf.Graph.from_triples(train, names["valid"], names["test"])


def test_a_warm_start_copies_rows_by_name(run, settings, tmp_path):
    other = renamed(GRAPH)
    warm = train(tmp_path / "warm", other, warm_start=str(run.path), learning_rate=1e-30, **settings)
    for name in run.graph.entities.names:
        if name in other.entities:
            np.testing.assert_array_equal(warm.embedding(name), run.embedding(name))
    triples = [(other.entities[h], other.relations[r], other.entities[t]) for h, r, t in other.test]
    np.testing.assert_allclose(warm.score(triples), run.score(triples), rtol=1e-5)
    assert np.abs(warm.embedding("new entity")).max() > 0


def test_frozen_entities_stay_while_relations_are_trained(run, settings, tmp_path):
    options = {"freeze_entities": True, "learning_rate": 0.1}
    frozen = train(tmp_path / "frozen", warm_start=str(run.path), **options, **settings)
    np.testing.assert_array_equal(frozen.model.entities.table, run.model.entities.table)
    assert not np.array_equal(frozen.model.heads[0].relations.table, run.model.heads[0].relations.table)
    resumed = jobi_tf.resume(frozen.path, epochs=2)
    np.testing.assert_array_equal(resumed.model.entities.table, run.model.entities.table)


@pytest.mark.parametrize(
    "options",
    [{"warm_start": "absent"}, {"entity_vectors": "absent"}, {"soft_labels": "absent", "loss": "full-softmax"}],
)
def test_what_a_training_starts_from_has_to_exist(options, tmp_path):
    with pytest.raises(UsageError, match="absent"):
        jobi_tf.train(GRAPH, run_dir=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_warm_start_needs_the_same_kind_of_model(run, settings, tmp_path):
    for changes, word in (({"dim": 4}, "dim"), ({"model": "simple"}, "simple")):
        with pytest.raises(UsageError, match=word):
            train(tmp_path / word, warm_start=str(run.path), **settings | changes)
        assert not (tmp_path / word).exists()


@pytest.mark.parametrize("header", ["", "2 16\n"])
@pytest.mark.parametrize("suffix", [".npz", ".txt"])
def test_pretrained_vectors_are_copied_by_name(tmp_path, suffix, header):
    vectors, path = np.arange(32, dtype=np.float32).reshape(2, 16) / 16, tmp_path / f"vectors{suffix}"
    names = ["entity_3", "somebody else"]
    if suffix == ".npz":
        np.savez(path, names=np.array(names), vectors=vectors)
    else:
        lines = [" ".join([name, *map(str, row)]) for name, row in zip(names, vectors.tolist(), strict=True)]
        path.write_text(header + "\n".join(lines) + "\n")
    run = train(tmp_path / "run", entity_vectors=str(path), freeze_entities=True)
    np.testing.assert_array_equal(run.embedding("entity 3"), vectors[0])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("entity_3 1 2\n", "vectors:1"),
        ("stranger " + "1 " * 16, "none of"),
        ("entity_3 " + "nan " * 16, "NaN"),
        (2 * ("entity_3 " + "1 " * 15 + "1\n"), "entity_3"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(tmp_path, content, words):
    path = tmp_path / "vectors"
    path.write_text(content)
    with pytest.raises(DataError, match=words):
        train(tmp_path / "run", entity_vectors=str(path))
    assert not (tmp_path / "run").exists()


def test_names_that_word2vec_text_cannot_tell_apart(tmp_path):
    with pytest.raises(UsageError, match="new_york"):
        write_vectors(tmp_path / "x.txt", ["new york", "new_york"], np.zeros((2, 3)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"names": np.array(["entity 3"], object), "vectors": np.ones((1, 16))}, "text"),
        ({"names": np.array(["entity 3"]), "vectors": np.ones((1, 16), "c8")}, "complex"),
        ({"vectors": np.ones((1, 16))}, "`names`"),
    ],
)
def test_arrays_of_vectors_that_do_not_fit(tmp_path, arrays, words):
    np.savez(tmp_path / "vectors.npz", **arrays)
    with pytest.raises(DataError, match=words):
        read_vectors(tmp_path / "vectors.npz", 16)


def test_a_missing_file_of_vectors_is_not_called_damaged(tmp_path):
    for name, words in (("vectors.npz", r"vectors\.npz.*not exist"), ("vectors", "No such file")):
        with pytest.raises(DataError, match=words):
            read_vectors(tmp_path / name, 16)


def test_a_truncated_file_of_vectors_is_refused(tmp_path):
    path = tmp_path / "vectors.npz"
    np.savez(path, names=np.array(["a"]), vectors=np.ones([1, 16], np.float32))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=str(path)):
        read_vectors(path, 16)


@pytest.mark.parametrize(
    "options",
    [{}, {"scorer": "conve", "dim": 9}, {"entity_initializer": keras.initializers.Constant(np.ones((30, 16)))}],
)
def test_a_reciprocal_model_of_fit_can_be_extended(options):
    model = jobi_tf.JoBi(GRAPH.num_entities, GRAPH.num_relations, reciprocal=True, **{"dim": 8} | options)
    extended = jobi_tf.Run.from_model(model, GRAPH).extend([("new", "relation 1", "entity 1")], steps=2)
    assert len(extended.tails("new", "relation 1", k=5)) == 5


def test_a_run_is_extended_by_entities_and_nothing_else_changes(run, tmp_path):
    given = [("entity new", "relation 1", f"entity {i}") for i in range(5)]
    given += [("entity 2", "relation 2", "entity newer"), ("entity 1", "relation 3", "entity 2")]
    before = [x.numpy().copy() for x in run.model.weights]
    extended = run.extend(given, steps=3)
    assert extended.graph.num_entities == GRAPH.num_entities + 2
    assert run.graph.num_entities == GRAPH.num_entities
    for old, new, kept in zip(before, extended.model.weights, run.model.weights, strict=True):
        np.testing.assert_array_equal(kept, old)
        np.testing.assert_array_equal(new.numpy()[tuple(map(slice, old.shape))], old)
    assert all(answer.split == "train" for answer in extended.tails("entity new", "relation 1", 40) if answer.known)
    extended.save(tmp_path / "extended")
    loaded = jobi_tf.load_run(tmp_path / "extended")
    np.testing.assert_array_equal(loaded.score(given), extended.score(given))
    assert loaded.graph.fingerprint == extended.graph.fingerprint
    assert loaded.history == extended.history == run.history
    again = loaded.extend([("entity newest", "relation 1", "entity 1")], steps=1)
    assert again.config.extended_by == ["2 entities, fitted to 7 triples", "1 entity, fitted to 1 triple"]
    card = (export_run(again, tmp_path / "exports", warmup=False).path / "MODEL_CARD.md").read_text("utf-8")
    assert all(text in card for text in again.config.extended_by)
    model = jobi_tf.load_model(tmp_path / "extended" / "model.keras")  # also what Keras keeps to train on
    np.testing.assert_array_equal(model.entities.table, extended.model.entities.table)


@pytest.mark.parametrize(("loss", "margin"), [("margin", 1.0), ("logistic", 6.0)])
def test_an_extension_has_the_default_margin_of_its_loss(loss, margin):
    tables = []
    for given in ({}, {"margin": margin}, {"margin": 0.5}):
        model = jobi_tf.JoBi(GRAPH.num_entities, GRAPH.num_relations, 4, "transe")
        run = jobi_tf.Run.from_model(model, GRAPH, loss=loss, **given)
        tables.append(run.extend([("new", "relation 1", "entity 1")], steps=2).embedding("new"))
    np.testing.assert_array_equal(tables[0], tables[1])
    assert np.abs(tables[0] - tables[2]).max() > 0


def test_negatives_of_an_extension_are_new_and_labelled_by_all_training_triples():
    given = [(f"new {i}", "relation 1", f"entity {t}") for i in range(3) for t in range(20)]
    graph, ids = _extended_graph(GRAPH, given)
    new = np.arange(GRAPH.num_entities, graph.num_entities)
    config = TrainConfig(dataset="x", negatives=8, filter_negatives=True)
    triples = GRAPH.train[GRAPH.train[:, 1] == 1]
    drawn = _NewEntities(graph, ids, new, config).draw(tf.constant(triples), tf.constant([0, 0]))
    known = {tuple(x) for x in graph.train.tolist()}
    entities, counts, labels = (x.numpy() for x in (drawn.entities, drawn.head_counts, drawn.triple_labels))
    assert set(entities.ravel()) <= set(new)
    for (h, r, t), count, row, found in zip(triples.tolist(), counts, entities.tolist(), labels.tolist(), strict=True):
        assert found == [-(((x, r, t) if i < count else (h, r, x)) in known) for i, x in enumerate(row)]
    assert labels.min() == -1


def test_triples_of_an_extension_have_the_mean_weight(tmp_path):
    weights = np.linspace(0, 1, len(GRAPH.train), dtype=np.float32)
    run = train(tmp_path / "run", dataclasses.replace(GRAPH, weights={"train": weights}))
    first = GRAPH.entities[GRAPH.train[0, 0]], GRAPH.relations[GRAPH.train[0, 1]], GRAPH.entities[GRAPH.train[0, 2]]
    extended = run.extend([first, ("entity new", "relation 1", "entity 1")], steps=1).graph
    np.testing.assert_allclose(extended.weights["train"], [*weights, 0.5], rtol=1e-5)
    assert extended.weights.keys() == {"train"}


def test_an_extension_may_have_fewer_queries_than_triples(tmp_path):
    options = {k: v for k, v in SETTINGS.items() if k != "negatives"}
    run = jobi_tf.train(GRAPH, run_dir=tmp_path / "run", loss="full-softmax", epochs=1, **options)
    given = [(f"new {i}", "relation 1", f"entity {t}") for i in range(4) for t in range(4)]
    assert run.extend(given, steps=1).graph.num_entities == GRAPH.num_entities + 4


def test_an_extension_learns_what_it_is_given(tmp_path):
    """Entity new is the tail of every head that entity 7 is of: it answers like entity 7."""
    rows = [(h, r, 7) for h in range(12) for r in range(2)]
    others = [(h, r, t) for h, r, t in GRAPH.train.tolist() if t != 7][:150]
    splits = {"train": np.array(rows + others, np.int32), "valid": GRAPH.valid, "test": GRAPH.test}
    run = train(tmp_path / "run", dataclasses.replace(GRAPH, splits=splits), epochs=60, learning_rate=0.02)
    extended = run.extend([(f"entity {h}", f"relation {r}", "new") for h, r, _ in rows[:12]])
    ranks = []
    for h, r, _ in rows[12:]:
        answers = [x.entity for x in extended.tails(f"entity {h}", f"relation {r}", 40)]
        ranks.append(answers.index("new") + 1)
    assert np.mean(ranks) < 8  # 16 by chance


@pytest.mark.parametrize("more", [SETTINGS, {"loss": "full-softmax", "reciprocal": True, "joint": False}])
def test_new_entities_are_no_answer_to_everything(tmp_path, more):
    """True answers rank above them, since they were negatives too."""
    options = {"dim": 8, "batch_size": 50, "eval_every": 0, "callbacks": (), "epochs": 40, "learning_rate": 0.02}
    run = jobi_tf.train(GRAPH, run_dir=tmp_path / "run", **more | options)
    given = [(f"new {i}", f"relation {r}", f"entity {t}") for i in range(10) for r, t in ((0, 1), (1, 2), (2, i))]
    names = [f"new {i}" for i in range(10)]
    above = jobi_tf.evaluate(run.extend(given), triples=GRAPH.train, candidates=names).metrics()["mean_rank"] - 1
    assert above < 0.3  # of the 10 new entities; 0.5 if they are no negatives


def test_extensions_that_cannot_be_are_refused(run):
    name = GRAPH.relations[0]
    for triples in ([], [("a", "no relation", "b")], [("a\nb", name, "c")], [("", name, "c")], ("a", name, "b")):
        with pytest.raises(DataError):
            run.extend(triples)
    with pytest.raises(UsageError, match="never saw"):
        run.extend([("entity 1", name, "entity 2")])
    with pytest.raises(UsageError, match="steps"):
        run.extend([("a", name, "b")], steps=0)
    for rate in (float("nan"), "0.1"):
        with pytest.raises(UsageError, match="learning_rate"):
            run.extend([("a", name, "b")], learning_rate=rate)


def test_given_facts_leave_the_other_splits(run):
    names = GRAPH.entities, GRAPH.relations, GRAPH.entities
    facts = [tuple(x[i] for x, i in zip(names, rows[0], strict=True)) for rows in (GRAPH.train, GRAPH.test)]
    graph = run.extend([*facts, ("entity new", "relation 1", "entity 1")], steps=1).graph
    assert [len(graph.train), len(graph.test)] == [len(GRAPH.train) + 2, len(GRAPH.test) - 1]


def test_given_triples_are_found_where_keys_of_all_triples_do_not_fit_64_bits():
    most = 2**31 - 1
    given = np.array([[0, 1, 2], [4, 7, 3], [most, most, most]], np.int32)
    triples = np.array([[4, 1, 2], [4, 7, 3], [1, 1, 2]], np.int32)  # the first one has the key of [0, 1, 2], mod 2^64
    assert _among(triples, given).tolist() == [False, True, False]


def test_a_warm_start_needs_a_common_entity(run, settings, tmp_path):
    other = jobi_tf.Graph.from_triples([("a", "relation 1", "b")] * 90, [("a", "relation 1", "b")])
    with pytest.raises(DataError, match="in common"):
        train(tmp_path / "other", other, warm_start=str(run.path), **settings)


def test_errors_in_vectors_name_the_line(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("2 4\na 1 2 3 4\nb 1 2 x 4\n")
    with pytest.raises(DataError, match=":3:"):
        read_vectors(path, 4)
    with pytest.raises(DataError, match="of 3 numbers, got 4"):
        read_vectors(path, 3)
