import numpy as np
import pytest

import jobi_tf
from jobi_tf.datasets.synthetic import synthesize
from jobi_tf.errors import UsageError
from tests.datasets.files import named_triples


@pytest.fixture(scope="module")
def graph():
    return synthesize(900, 14, 12_000, seed=3)


def test_sizes_and_distinct_triples(graph):
    assert (graph.num_entities, graph.num_relations) == (900, 14)
    assert [len(graph.split(name)) for name in ("train", "valid", "test")] == [11_760, 120, 120]
    every = np.concatenate([*graph.splits.values()])
    assert every.dtype == np.int32
    assert len(np.unique(every, axis=0)) == 12_000
    assert graph.seen_in_training.all()


def test_a_relation_links_few_of_all_entities(graph):
    for relation in range(3):
        rows = graph.train[graph.train[:, 1] == relation]
        assert len(np.unique(rows[:, 2])) < 0.75 * graph.num_entities


def squares(rows):
    """How often two heads share two tails."""
    linked = np.zeros((900, 900))
    linked[rows[:, 0], rows[:, 2]] = 1
    common = np.triu(linked @ linked.T, 1)
    return (common * (common - 1) / 2).sum()


def test_tails_follow_from_heads(graph):
    rows = graph.train[graph.train[:, 1] == 0]
    shuffled = rows.copy()
    shuffled[:, 2] = np.random.default_rng(0).permutation(rows[:, 2])
    assert squares(rows) > 2 * squares(shuffled)


def test_degrees_have_hubs(graph):
    degrees = np.sort(np.bincount(graph.train[:, [0, 2]].ravel()))
    assert degrees[-1] > 5 * np.median(degrees)


def test_equal_seeds_give_equal_graphs(graph):
    assert synthesize(900, 14, 12_000, seed=3).fingerprint == graph.fingerprint
    assert synthesize(900, 14, 12_000, seed=4).fingerprint != graph.fingerprint


@pytest.mark.parametrize(
    ("sizes", "words"),
    [((100, 2, 100), "102.*got 100"), ((16, 1, 2000), "got 2,000.* 256 "), ((15, 1, 100), "16 .* got 15")],
)
def test_sizes_that_do_not_fit(sizes, words):
    with pytest.raises(UsageError, match=words):
        synthesize(*sizes)


def test_the_command_writes_what_load_graph_reads(tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ("data", "synthesize", "--entities", 40, "--relations", 2, "--triples", 300)
    assert "294 train, 3 valid, 3 test triples in synthetic-40-2-300-0" in call(*command).output
    made, read = synthesize(40, 2, 300), jobi_tf.load_graph("synthetic-40-2-300-0")
    for split in made.splits:
        assert named_triples(made, split) == named_triples(read, split)
    assert "synthetic-40-2-300-0" in call(*command, status=2).stderr
