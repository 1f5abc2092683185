from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from jobi_tf.data.batches import (
    ANSWERS_PER_QUERY,
    default_batch_size,
    number_of_queries,
    query_batches,
    steps_per_epoch,
    training_batches,
)
from jobi_tf.data.graph import Graph
from jobi_tf.data.negatives import NegativeSampler, Part
from jobi_tf.data.occurrences import Occurrences
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.errors import UsageError
from tests.graphs import random_graph

GRAPH = random_graph(train=60)
QUERIES = number_of_queries(GRAPH)


def stream(count, batch_size=10, graph=GRAPH, **options):
    return list(training_batches(graph, batch_size, 4, 0.5, **options).take(count).as_numpy_iterator())


def triples(batches):
    rows = [x.get("triples", x.get("chunks")) for x, *_ in batches]
    return [tuple(map(int, row)) for x in rows for row in x.reshape(-1, 3)]


def equal(a, b):
    return all(np.array_equal(x[name], y[name]) for x, y in zip(a, b, strict=True) for name in x)


def test_an_epoch_is_a_permutation_and_the_next_is_another():
    batches = stream(12)
    first, second = triples(batches[:6]), triples(batches[6:])
    assert set(first) == set(second) == set(map(tuple, GRAPH.train.tolist()))
    assert len(first) == len(second) == 60
    assert first != second


def test_triples_that_do_not_fill_a_batch_are_others_in_each_epoch():
    epochs = [triples(x) for x in np.array_split(np.array(stream(24, 7), object), 3)]
    assert all(len(set(x)) == 56 for x in epochs)
    assert len({frozenset(x) for x in epochs}) == 3


def test_one_triple_and_one_batch():
    graph = Graph(GRAPH.name, GRAPH.entities, GRAPH.relations, {"train": GRAPH.train[:1]})
    assert triples(stream(3, 1, graph)) == [tuple(GRAPH.train[0].tolist())] * 3


def test_negatives_differ_between_epochs():
    batches = stream(2, 60)
    assert not np.array_equal(np.sort(batches[0][0]["negatives"], 0), np.sort(batches[1][0]["negatives"], 0))


def test_the_seed_decides_the_stream():
    assert all(map(equal, stream(8), stream(8)))
    assert not any(map(equal, stream(8), stream(8, seed=1)))
    assert all(map(equal, stream(2, seed=2**62 - 1), stream(2, seed=2**62 - 1)))


@pytest.mark.parametrize("options", [{}, {"mode": "shared", "chunk": 2}])
def test_the_first_step_skips_the_ones_before(options):
    assert all(map(equal, stream(5, first_step=9, **options), stream(14, **options)[9:]))


@pytest.mark.parametrize(
    "options",
    [{}, {"mode": "by-side"}, {"mode": "shared", "chunk": 5}, {"mode": "shared-by-side", "chunk": 5, "joint": False}],
)
def test_the_parts_of_a_batch_are_made_by_themselves(options):
    whole = stream(3, 20, filter_negatives=True, **options)
    parts = [stream(3, 20, filter_negatives=True, **options, part=Part(i, 2)) for i in range(2)]
    for (inputs, labels), *halves in zip(whole, *parts, strict=True):
        for i, every in enumerate((inputs, labels)):
            for name, rows in every.items():
                np.testing.assert_array_equal(rows, np.concatenate([half[i][name] for half in halves]))


@pytest.mark.parametrize(("index", "count"), [(0, 0), (2, 2), (-1, 2), (0, 3)])
def test_parts_that_do_not_share_a_batch_are_refused(index, count):
    with pytest.raises(UsageError):
        training_batches(GRAPH, 20, part=Part(index, count))


def test_a_tensor_may_tell_the_first_step():
    for first in (tf.constant(2), tf.constant(2, tf.int64)):
        (batch,) = training_batches(GRAPH, 20, 4, first_step=first).take(1)
        np.testing.assert_array_equal(batch[0]["triples"], stream(3, 20)[2][0]["triples"])


def test_the_parts_of_a_batch_of_queries_are_made_by_themselves():
    options = {"pair_entities": 7}
    whole = list(query_batches(GRAPH, 10, **options).take(3).as_numpy_iterator())
    parts = [query_batches(GRAPH, 10, **options, part=Part(i, 2)).take(3).as_numpy_iterator() for i in range(2)]
    for (inputs, labels, weights), *halves in zip(whole, *parts, strict=True):
        for name in set(inputs) - {"answers"}:
            np.testing.assert_array_equal(inputs[name], np.concatenate([half[0][name] for half in halves]))
        np.testing.assert_array_equal(labels["pair"], np.concatenate([half[1]["pair"] for half in halves]))
        np.testing.assert_array_equal(weights["triple"], np.concatenate([half[2]["triple"] for half in halves]))
        answers = [row[row >= 0].tolist() for half in halves for row in half[1]["triple"]]
        assert [row[row >= 0].tolist() for row in labels["triple"]] == answers


@pytest.mark.parametrize("joint", [True, False])
def test_what_a_batch_holds(joint):
    inputs, labels = stream(1, joint=joint)[0]
    assert {name: (x.shape, x.dtype.name) for name, x in inputs.items()} == {
        "triples": ((10, 3), "int32"),
        "negatives": ((10, 4), "int32"),
        "head_counts": ((10,), "int32"),
    }
    assert {name: (x.shape, x.dtype.name) for name, x in labels.items()} == dict.fromkeys(
        ["triple", "pair"] if joint else ["triple"], ((10, 5), "int8")
    )
    for x in labels.values():
        assert (x[:, 0] == 1).all()
    assert not labels["triple"][:, 1:].any()


def test_labels_belong_to_their_negatives():
    heads, tails = ({(int(t[1]), int(t[column])) for t in GRAPH.train} for column in (0, 2))
    for inputs, labels in stream(6):
        for row, count in enumerate(inputs["head_counts"]):
            for place, entity in enumerate(inputs["negatives"][row]):
                seen = (int(inputs["triples"][row, 1]), int(entity)) in (heads if place < count else tails)
                assert labels["pair"][row, 1 + place] == seen


def test_validation_batches_have_validation_triples_and_negatives_of_training():
    batches = stream(2, 10, split="valid", mode="by-side")
    assert set(triples(batches)) == set(map(tuple, GRAPH.valid.tolist()))
    heads = {(int(t[1]), int(t[0])) for t in GRAPH.train}
    for inputs, labels in batches:
        for triple, negatives, row in zip(inputs["triples"], inputs["head_negatives"], labels["pair"], strict=True):
            assert row[0, 1:].tolist() == [(int(triple[1]), int(x)) in heads for x in negatives]


def test_weights_of_triples_become_sample_weights_with_mean_one():
    weights = np.arange(1, 61, dtype=np.float32)
    graph = Graph("tiny", GRAPH.entities, GRAPH.relations, GRAPH.splits, weights={"train": weights})
    of_triple = dict(zip(map(tuple, GRAPH.train.tolist()), weights / 30.5, strict=True))
    modes = ({}, {"mode": "by-side"}, {"mode": "shared", "chunk": 5}, {"mode": "shared-by-side", "chunk": 5})
    for options in modes:
        for inputs, labels, given in stream(6, graph=graph, **options):
            expected = [of_triple[x] for x in triples([(inputs,)])]
            np.testing.assert_allclose(inputs["weights"].ravel(), expected, rtol=1e-6)
            assert given.keys() == labels.keys()
            shares = given["triple"]  # with the rank of the losses
            assert shares.ndim == labels["triple"].ndim - 1
            np.testing.assert_array_equal(shares.ravel(), inputs["weights"].ravel())
    with pytest.raises(UsageError, match="weights"):
        query_batches(graph, 10)


@pytest.mark.parametrize("batch_size", [0, 61, 10.0])
def test_a_batch_size_out_of_range_is_refused(batch_size):
    with pytest.raises(UsageError, match=f"batch_size.* {batch_size}"):
        stream(1, batch_size)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "both"}, "mode .*'both'"),
        ({"mode": "shared", "chunk": 3}, "multiple .*3 .*10"),
        ({"mode": "by-side", "negatives": 5}, "even .*5"),
        ({"mode": "by-side", "sampler": NegativeSampler(Occurrences.of_graph(GRAPH), 5, 0.3)}, "even .*5"),
        ({"mode": "shared", "negatives": 1}, "negatives .*2.* 1"),
        ({"mode": "shared", "chunk": 0}, "chunk .* 0"),
        ({"chunk": 5}, "no chunk .*5"),
        ({"first_step": -1}, "first_step .*-1"),
    ],
)
def test_wrong_arguments_are_refused(options, words):
    with pytest.raises(UsageError, match=words):
        training_batches(GRAPH, 10, **options)


def test_more_entities_than_float32_can_number_are_refused_as_labels():
    names = Vocabulary(range(2**24 + 1), "entity")
    with pytest.raises(UsageError, match=r"entities .*16,777,217"):
        query_batches(replace(GRAPH, entities=names), 10)


@pytest.mark.parametrize("function", [training_batches, query_batches, steps_per_epoch])
def test_the_name_of_a_graph_is_no_graph(function):
    with pytest.raises(UsageError, match=r"graph.* 'umls'"):
        function("umls", 10)


@pytest.mark.parametrize(("triples", "size"), [(3, 3), (5216, 52), (20_000, 200), (272_115, 1000), (10**7, 1000)])
def test_default_batch_size(triples, size):
    assert default_batch_size(triples) == size


@pytest.mark.parametrize("devices", range(1, 9))
@pytest.mark.parametrize("triples", [5216, 86_835, 272_115])
def test_default_batch_sizes_can_be_shared_by_any_number_of_devices(triples, devices):
    for chunk in (1, 10):
        size = default_batch_size(triples, multiple=devices * chunk)
        assert size % (devices * chunk) == 0
        assert abs(size - default_batch_size(triples)) < devices * chunk


def test_steps_per_epoch():
    assert steps_per_epoch(GRAPH, 7) == 8
    assert steps_per_epoch(GRAPH, 10, queries=True) == QUERIES // 10
    assert steps_per_epoch(GRAPH, 10, split="valid") == 2
    with pytest.raises(UsageError, match=r"answers_per_query .*0"):
        steps_per_epoch(GRAPH, 10, queries=True, answers_per_query=0)


def test_batches_by_side_hold_the_same_triples():
    for own, (inputs, labels) in zip(stream(6), stream(6, mode="by-side"), strict=True):
        assert triples([(inputs,)]) == triples([own])
        assert inputs["head_negatives"].shape == inputs["tail_negatives"].shape == (10, 2)
        assert labels["triple"].shape == labels["pair"].shape == (10, 2, 3)
        assert (labels["triple"][..., 0] == 1).all()
        assert (labels["pair"][..., 0] == 1).all()


def test_chunks_hold_the_triples_of_a_batch_sorted_by_relation():
    for own, (inputs, labels) in zip(stream(12), stream(12, mode="shared", chunk=5), strict=True):
        assert inputs["chunks"].shape == (2, 5, 3)
        assert inputs["negatives"].shape == (2, 4)
        assert labels["triple"].shape == labels["pair"].shape == (2, 5, 5)
        assert (labels["triple"][..., 0] == 1).all()
        assert (np.diff(inputs["chunks"][..., 1].ravel()) >= 0).all()
        assert sorted(triples([(inputs,)])) == sorted(triples([own]))


def test_chunks_by_side_hold_the_same_as_chunks():
    shared, by_side = (stream(6, mode=mode, chunk=5) for mode in ("shared", "shared-by-side"))
    for (both, of_both), (inputs, labels) in zip(shared, by_side, strict=True):
        assert labels["triple"].shape == labels["pair"].shape == (2, 5, 2, 3)
        negatives = np.concatenate([inputs["head_negatives"], inputs["tail_negatives"]], 1)
        np.testing.assert_array_equal(negatives, both["negatives"])
        np.testing.assert_array_equal(inputs["chunks"], both["chunks"])
        for name, x in labels.items():
            assert (x[..., 0] == 1).all()
            np.testing.assert_array_equal(x[..., 1:].reshape(2, 5, 4), of_both[name][..., 1:])


def query_stream(count, batch_size=10, **options):
    return list(query_batches(GRAPH, batch_size, **options).take(count).as_numpy_iterator())


def expected_queries(graph=GRAPH):
    """For each (side, anchor, relation) of training its answers, by plain loops."""
    found = {}
    for h, r, t in graph.train.tolist():
        found.setdefault((1, h, r), set()).add(t)
        found.setdefault((0, t, r), set()).add(h)
    return found


def queries(batches):
    columns = ("sides", "anchors", "relations", "answers")
    rows = [row for x, _, _ in batches for row in zip(*(x[name] for name in columns), strict=True)]
    return [(tuple(map(int, row[:3])), [int(e) for e in row[3] if e >= 0]) for row in rows]


def test_each_query_comes_once_an_epoch_with_all_its_answers():
    whole = queries(query_stream(1, QUERIES))
    assert len(whole) == QUERIES
    assert {key: set(answers) for key, answers in whole} == expected_queries()
    assert all(len(set(answers)) == len(answers) for _, answers in whole)


def test_a_query_of_many_answers_comes_in_parts():
    graph = random_graph(entities=30, relations=2, train=600)
    sizes = np.array([len(x) for x in expected_queries(graph).values()])
    count = (-(-sizes // ANSWERS_PER_QUERY)).sum()
    assert sizes.max() > 2 * ANSWERS_PER_QUERY
    batches = list(query_batches(graph, int(count), joint=False).take(1).as_numpy_iterator())
    found, weights = {}, {}
    for (key, answers), weight in zip(queries(batches), batches[0][0]["weights"], strict=True):
        assert len(answers) <= ANSWERS_PER_QUERY
        found.setdefault(key, []).extend(answers)
        weights[key] = weights.get(key, 0) + weight
    assert {key: sorted(answers) for key, answers in found.items()} == {
        key: sorted(answers) for key, answers in expected_queries(graph).items()
    }
    mean = sizes.sum() / count
    assert weights == pytest.approx({key: len(answers) / mean for key, answers in found.items()}, rel=1e-5)


def test_epochs_of_queries_are_other_shuffles():
    steps = QUERIES // 10
    both = query_stream(2 * steps)
    first, second = queries(both[:steps]), queries(both[steps:])
    assert len({key for key, _ in first}) == len({key for key, _ in second}) == 10 * steps
    assert [key for key, _ in first] != [key for key, _ in second]


def test_a_batch_of_queries():
    inputs, labels, weights = query_stream(1)[0]
    longest = inputs["answers"].shape[1]
    assert {name: (x.shape, x.dtype.name) for name, x in inputs.items()} == {
        "anchors": ((10,), "int32"),
        "relations": ((10,), "int32"),
        "sides": ((10,), "int32"),
        "answers": ((10, longest), "int32"),
        "weights": ((10,), "float32"),
    }
    assert (labels["pair"].shape, labels["pair"].dtype.name) == ((10, GRAPH.num_entities), "int8")
    np.testing.assert_array_equal(labels["triple"], inputs["answers"])
    assert list(weights) == ["triple", "pair"]
    assert list(query_stream(1, joint=False)[0][1]) == list(query_stream(1, joint=False)[0][2]) == ["triple"]


def test_heads_are_sought_before_tails():
    for inputs, _, _ in query_stream(8):
        assert (np.diff(inputs["sides"]) >= 0).all()
        assert set(inputs["sides"].tolist()) == {0, 1}


def test_queries_count_as_many_triples_as_they_have_answers():
    inputs, _, weights = query_stream(1, QUERIES)[0]
    numbers = (inputs["answers"] >= 0).sum(1)
    assert numbers.sum() == 2 * len(GRAPH.train)
    np.testing.assert_allclose(inputs["weights"], numbers / numbers.mean(), rtol=1e-6)
    assert inputs["weights"].mean() == pytest.approx(1)
    for name in ("triple", "pair"):
        np.testing.assert_array_equal(weights[name], inputs["weights"])


def test_pair_labels_are_those_of_the_relation_on_the_side_that_is_sought():
    seen = {(side, r, t[2 * side]) for t in GRAPH.train.tolist() for side, r in ((0, t[1]), (1, t[1]))}
    for inputs, labels, _ in query_stream(5):
        for side, relation, row in zip(inputs["sides"], inputs["relations"], labels["pair"], strict=True):
            assert set(np.flatnonzero(row)) == {e for s, r, e in seen if (s, r) == (side, relation)}
            assert set(row.tolist()) <= {0, 1}


def test_a_stream_of_queries_follows_from_the_seed_and_goes_on_at_any_step():
    assert all(map(equal, query_stream(9, first_step=4), query_stream(13)[4:]))
    assert not any(map(equal, query_stream(5), query_stream(5, seed=1)))


def test_more_queries_a_batch_than_there_are_is_refused():
    with pytest.raises(UsageError, match=f"{QUERIES} .*queries.* {QUERIES + 1}"):
        query_stream(1, QUERIES + 1)


def test_rare_answers_weigh_less_in_the_triple_head():
    inputs, labels, weights = query_stream(1, 2 * len(GRAPH.train), answers_per_query=1, rare_weight=0.25)[0]
    heads, _, tails = GRAPH.train.T
    degrees = np.array([np.sum((heads == x) | (tails == x)) for x in range(GRAPH.num_entities)])
    expected = (0.25 + 0.75 * degrees / max(degrees))[labels["triple"][:, 0]]
    np.testing.assert_allclose(weights["triple"], expected / expected.mean(), rtol=1e-5)
    for equal in (weights["pair"], inputs["weights"]):
        np.testing.assert_array_equal(equal, np.ones(len(equal)))
    for wrong in ({"rare_weight": 0.5}, {"rare_weight": 0.0, "answers_per_query": 1}):
        with pytest.raises(UsageError, match="rare_weight"):
            query_stream(1, **wrong)


def test_the_pair_head_can_look_at_some_entities_at_a_time():
    size, entities = 4, GRAPH.num_entities
    turns = entities // size
    found = []
    for (few, labels, _), (every, of_all, _) in zip(
        query_stream(2 * turns, pair_entities=size), query_stream(2 * turns), strict=True
    ):
        chosen = few.pop("pair_entities")
        assert (chosen.shape, chosen.dtype.name) == ((10, size), "int32")
        assert (chosen == chosen[0]).all()
        np.testing.assert_array_equal(labels["pair"], of_all["pair"][:, chosen[0]])
        assert few.keys() == every.keys()
        assert all(np.array_equal(few[name], every[name]) for name in few)
        found.append(chosen[0])
    for turn in (found[:turns], found[turns:]):
        assert len(set(np.concatenate(turn).tolist())) == turns * size
    assert not np.array_equal(found[:turns], found[turns:])


def test_the_pair_head_cannot_look_at_more_entities_than_there_are():
    inputs, labels, _ = query_stream(1, pair_entities=10**6)[0]
    assert "pair_entities" not in inputs
    assert labels["pair"].shape[1] == GRAPH.num_entities
