import json
from dataclasses import replace

import numpy as np
import pytest

from jobi_tf.data.graph import Graph, Source
from jobi_tf.errors import DataError, UsageError
from tests.graphs import random_graph


def test_save_and_open(tmp_path):
    graph = random_graph(valid=0)
    graph.save(tmp_path / "graph")
    opened = Graph.open(tmp_path / "graph")
    assert (opened.name, opened.entities.names, opened.relations.names) == (
        graph.name, graph.entities.names, graph.relations.names
    )  # fmt: skip
    for name in ("train", "valid", "test"):
        np.testing.assert_array_equal(opened.split(name), graph.split(name))
        assert opened.split(name).dtype == np.int32
    assert opened.fingerprint == graph.fingerprint
    assert [x.name for x in tmp_path.iterdir()] == ["graph"]


def test_opened_triples_cannot_be_changed(tmp_path):
    random_graph().save(tmp_path / "graph")
    with pytest.raises(ValueError, match="read-only"):
        Graph.open(tmp_path / "graph").train[0] = 0


def test_the_fingerprint_tells_graphs_apart():
    a, b, c = random_graph(), random_graph(seed=1), random_graph()
    c.entities.names[0] = "renamed"
    moved = {"train": np.concatenate([a.train, a.valid[:1]]), "valid": a.valid[1:], "test": a.test}
    d = replace(a, splits=moved)
    assert len({a.fingerprint, b.fingerprint, c.fingerprint, d.fingerprint}) == 4
    assert a.fingerprint == random_graph().fingerprint


def test_sources_tell_the_line(tmp_path):
    graph = random_graph()
    sources = {"train": Source("train.tsv", 2), "test": Source("all.tsv", lines=np.arange(25) * 10)}
    Graph(graph.name, graph.entities, graph.relations, graph.splits, sources).save(tmp_path / "graph")
    opened = Graph.open(tmp_path / "graph").sources
    assert opened["train"].where(0) == "train.tsv:2"
    assert opened["test"].where(3) == "all.tsv:30"
    assert "valid" not in opened


def test_weights_are_saved(tmp_path):
    graph = random_graph()
    weighted = replace(graph, weights={"train": np.linspace(0, 2, len(graph.train))})
    weighted.save(tmp_path / "graph")
    opened = Graph.open(tmp_path / "graph")
    assert [*opened.weights] == ["train"]
    assert opened.weights["train"].dtype == np.float32
    np.testing.assert_allclose(opened.weights["train"], np.linspace(0, 2, len(graph.train)), rtol=1e-6)
    assert opened.fingerprint == graph.fingerprint


def test_sizes_and_seen_entities():
    graph = random_graph()
    assert (graph.num_entities, graph.num_relations) == (30, 4)
    assert set(np.flatnonzero(graph.seen_in_training)) == set(graph.train[:, 0]) | set(graph.train[:, 2])


def test_a_failed_save_leaves_nothing(tmp_path):
    graph = random_graph()
    broken = Graph(graph.name, graph.entities, graph.relations, {**graph.splits, "test": np.array(["x"])})
    with pytest.raises(ValueError, match="'x'"):
        broken.save(tmp_path / "graph")
    assert not list(tmp_path.iterdir())


def test_a_folder_with_files_is_not_overwritten(tmp_path):
    random_graph().save(tmp_path / "graph")
    with pytest.raises(UsageError, match="graph has files"):
        random_graph().save(tmp_path / "graph")


def test_what_is_no_graph_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"graph\.json"):
        Graph.open(tmp_path / "absent")
    random_graph().save(tmp_path / "graph")
    meta = tmp_path / "graph" / "graph.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"format": 99}))
    with pytest.raises(DataError, match=r"\b99\b.*\b1\b"):
        Graph.open(tmp_path / "graph")


def test_an_unknown_split_is_refused():
    with pytest.raises(DataError, match="'dev'"):
        random_graph().split("dev")
