import numpy as np
import pytest

from jobi_tf.data.negatives import NegativeSampler
from jobi_tf.data.occurrences import KnownAnswers, Occurrences
from jobi_tf.data.pipeline import MOST_ANSWERS, default_batch_size, query_batches, steps_per_epoch, training_batches
from jobi_tf.errors import UsageError
from tests.graphs import random_graph

GRAPH = random_graph(train=60)


def stream(count, batch_size=10, seed=0, first_step=0, joint=True, train=GRAPH.train, **form):
    occurrences = Occurrences.from_triples(train, GRAPH.num_entities, GRAPH.num_relations)
    sampler = NegativeSampler(occurrences, 4, 0.5)
    batches = training_batches(train, sampler, batch_size, joint, seed, first_step, **form)
    return list(batches.take(count).as_numpy_iterator())


def triples(batches):
    return [tuple(map(int, row)) for x, _ in batches for row in zip(x["head"], x["relation"], x["tail"], strict=True)]


def equal(a, b):
    (inputs, labels), (other_inputs, other_labels) = a, b
    return all(
        np.array_equal(x[name], y[name]) for x, y in ((inputs, other_inputs), (labels, other_labels)) for name in x
    )


def test_an_epoch_is_a_permutation_and_the_next_is_another():
    batches = stream(12)
    first, second = triples(batches[:6]), triples(batches[6:])
    assert set(first) == set(second) == set(map(tuple, GRAPH.train.tolist()))
    assert len(first) == len(second) == 60
    assert first != second


def test_where_the_batch_does_not_divide_an_epoch_leaves_some_out_each_time_others():
    epochs = [triples(x) for x in np.array_split(np.array(stream(24, 7), object), 3)]
    assert all(len(set(x)) == 56 for x in epochs)
    assert len({frozenset(x) for x in epochs}) == 3


def test_one_triple_and_one_batch():
    assert triples(stream(3, 1, train=GRAPH.train[:1])) == [tuple(GRAPH.train[0].tolist())] * 3


def test_negatives_differ_between_epochs():
    batches = stream(2, 60)
    assert not np.array_equal(np.sort(batches[0][0]["candidates"], 0), np.sort(batches[1][0]["candidates"], 0))


def test_the_seed_decides_the_stream():
    assert all(map(equal, stream(8), stream(8)))
    assert not any(map(equal, stream(8), stream(8, seed=1)))
    assert all(map(equal, stream(2, seed=2**62 - 1), stream(2, seed=2**62 - 1)))


def test_the_first_step_skips_the_ones_before():
    assert all(map(equal, stream(5, first_step=9), stream(14)[9:]))


@pytest.mark.parametrize("joint", [True, False])
def test_what_a_batch_holds(joint):
    inputs, labels = stream(1, joint=joint)[0]
    assert {name: (x.shape, x.dtype.name) for name, x in inputs.items()} == {
        "head": ((10,), "int32"),
        "relation": ((10,), "int32"),
        "tail": ((10,), "int32"),
        "candidates": ((10, 4), "int32"),
        "head_corruptions": ((10,), "int32"),
    }
    assert {name: (x.shape, x.dtype.name) for name, x in labels.items()} == dict.fromkeys(
        ["triple", "pair"] if joint else ["triple"], ((10, 5), "int8")
    )
    for x in labels.values():
        assert (x[:, 0] == 1).all()
    assert not labels["triple"][:, 1:].any()


def test_labels_stand_beside_their_candidates():
    heads, tails = ({(int(t[1]), int(t[column])) for t in GRAPH.train} for column in (0, 2))
    for inputs, labels in stream(6):
        for row, corruptions in enumerate(inputs["head_corruptions"]):
            for place, entity in enumerate(inputs["candidates"][row]):
                seen = (int(inputs["relation"][row]), int(entity)) in (heads if place < corruptions else tails)
                assert labels["pair"][row, 1 + place] == seen


@pytest.mark.parametrize("batch_size", [0, 61])
def test_a_batch_size_out_of_range_is_refused(batch_size):
    with pytest.raises(UsageError, match=f"from 1 to the 60 training triples, got {batch_size}"):
        stream(1, batch_size)


@pytest.mark.parametrize(("triples", "size"), [(3, 3), (5216, 52), (20_000, 200), (272_115, 1000), (10**7, 1000)])
def test_default_batch_size(triples, size):
    assert default_batch_size(triples) == size
    assert steps_per_epoch(triples, size) >= 1


def test_batches_by_side_hold_the_same_triples():
    for own, (inputs, labels) in zip(stream(6), stream(6, by_side=True), strict=True):
        assert triples([(inputs, None)]) == triples([own])
        assert inputs["candidates"].shape == (10, 2, 2)
        assert labels["triple"].shape == labels["pair"].shape == (10, 2, 3)
        assert (labels["triple"][..., 0] == 1).all()
        assert (labels["pair"][..., 0] == 1).all()


def test_chunks_hold_the_same_triples_as_batches_do_by_relation():
    for own, (inputs, labels) in zip(stream(12), stream(12, chunk=5), strict=True):
        assert inputs["head"].shape == inputs["relation"].shape == inputs["tail"].shape == (2, 5)
        assert inputs["candidates"].shape == (2, 4)
        assert labels["triple"].shape == labels["pair"].shape == (2, 5, 5)
        assert (labels["triple"][..., 0] == 1).all()
        assert (labels["pair"][..., 0] == 1).all()
        flat = {name: inputs[name].reshape(-1) for name in ("head", "relation", "tail")}
        assert (np.diff(flat["relation"]) >= 0).all()
        assert sorted(triples([(flat, None)])) == sorted(triples([own]))


def test_chunks_by_side_hold_the_same_as_chunks():
    for (both, of_both), (inputs, labels) in zip(stream(6, chunk=5), stream(6, chunk=5, by_side=True), strict=True):
        assert labels["triple"].shape == labels["pair"].shape == (2, 5, 2, 3)
        np.testing.assert_array_equal(inputs["candidates"].reshape(2, 4), both["candidates"])
        for name in ("head", "relation", "tail"):
            np.testing.assert_array_equal(inputs[name], both[name])
        for name, x in labels.items():
            assert (x[..., 0] == 1).all()
            np.testing.assert_array_equal(x[..., 1:].reshape(2, 5, 4), of_both[name][..., 1:])


def test_a_stream_of_chunks_goes_on_at_any_step():
    for a, b in zip(stream(9, chunk=2)[4:], stream(5, chunk=2, first_step=4), strict=True):
        assert equal(a, b)


def test_a_batch_of_no_whole_number_of_chunks_is_refused():
    with pytest.raises(UsageError, match="a multiple of a chunk's 4 triples, got 10"):
        stream(1, chunk=4)


KNOWN = KnownAnswers.of_graph(GRAPH, ["train"])
SEEN = Occurrences.of_graph(GRAPH)
QUERIES = len(KNOWN.keys)


def query_stream(count, batch_size=10, seed=0, first_step=0, joint=True, pair_entities=None):
    batches = query_batches(KNOWN, SEEN if joint else None, batch_size, seed, first_step, pair_entities)
    return list(batches.take(count).as_numpy_iterator())


def expected_queries(graph=GRAPH):
    """For each (side, anchor, relation) of training its answers, by plain loops."""
    found = {}
    for h, r, t in graph.train.tolist():
        found.setdefault((1, h, r), set()).add(t)
        found.setdefault((0, t, r), set()).add(h)
    return found


def queries(batches):
    columns = ("side", "anchor", "relation", "answers")
    rows = [row for x, _, _ in batches for row in zip(*(x[name] for name in columns), strict=True)]
    return [(tuple(map(int, row[:3])), [int(e) for e in row[3] if e >= 0]) for row in rows]


def test_each_query_comes_once_an_epoch_with_all_its_answers():
    whole = queries(query_stream(1, QUERIES))
    assert len(whole) == QUERIES
    assert {key: set(answers) for key, answers in whole} == expected_queries()
    assert all(len(set(answers)) == len(answers) for _, answers in whole)


def test_a_query_of_many_answers_comes_in_parts():
    graph = random_graph(entities=30, relations=2, train=600)
    known = KnownAnswers.of_graph(graph, ["train"])
    sizes = np.diff(known.answers.offsets)
    count = (-(-sizes // MOST_ANSWERS)).sum()
    assert sizes.max() > 2 * MOST_ANSWERS
    batches = list(query_batches(known, None, int(count), 0).take(1).as_numpy_iterator())
    found, weights = {}, {}
    for (key, answers), weight in zip(queries(batches), batches[0][0]["weight"], strict=True):
        assert len(answers) <= MOST_ANSWERS
        found.setdefault(key, []).extend(answers)
        weights[key] = weights.get(key, 0) + weight
    assert {key: sorted(answers) for key, answers in found.items()} == {
        key: sorted(answers) for key, answers in expected_queries(graph).items()
    }
    mean = sizes.sum() / count
    assert weights == pytest.approx({key: len(answers) / mean for key, answers in found.items()}, rel=1e-5)


def test_epochs_of_queries_are_other_shuffles():
    steps = QUERIES // 10
    first, second = queries(query_stream(2 * steps)[:steps]), queries(query_stream(2 * steps)[steps:])
    assert len({key for key, _ in first}) == len({key for key, _ in second}) == 10 * steps
    assert [key for key, _ in first] != [key for key, _ in second]


def test_a_batch_of_queries():
    inputs, labels, weights = query_stream(1)[0]
    longest = inputs["answers"].shape[1]
    assert {name: (x.shape, x.dtype.name) for name, x in inputs.items()} == {
        "anchor": ((10,), "int32"),
        "relation": ((10,), "int32"),
        "side": ((10,), "int32"),
        "answers": ((10, longest), "int32"),
        "weight": ((10,), "float32"),
    }
    assert (labels["pair"].shape, labels["pair"].dtype.name) == ((10, GRAPH.num_entities), "int8")
    np.testing.assert_array_equal(labels["triple"], inputs["answers"])
    assert list(weights) == ["triple", "pair"]
    assert list(query_stream(1, joint=False)[0][1]) == list(query_stream(1, joint=False)[0][2]) == ["triple"]


def test_heads_are_sought_before_tails():
    for inputs, _, _ in query_stream(8):
        assert (np.diff(inputs["side"]) >= 0).all()
        assert set(inputs["side"].tolist()) == {0, 1}


def test_queries_count_as_many_triples_as_they_have_answers():
    inputs, _, weights = query_stream(1, QUERIES)[0]
    numbers = (inputs["answers"] >= 0).sum(1)
    assert numbers.sum() == 2 * len(GRAPH.train)
    np.testing.assert_allclose(inputs["weight"], numbers / numbers.mean(), rtol=1e-6)
    assert inputs["weight"].mean() == pytest.approx(1)
    for name in ("triple", "pair"):
        np.testing.assert_array_equal(weights[name], inputs["weight"])


def test_pair_labels_are_those_of_the_relation_on_the_side_that_is_sought():
    seen = {(side, r, t[2 * side]) for t in GRAPH.train.tolist() for side, r in ((0, t[1]), (1, t[1]))}
    for inputs, labels, _ in query_stream(5):
        for side, relation, row in zip(inputs["side"], inputs["relation"], labels["pair"], strict=True):
            assert set(np.flatnonzero(row)) == {e for s, r, e in seen if (s, r) == (side, relation)}
            assert set(row.tolist()) <= {0, 1}


def test_a_stream_of_queries_follows_from_the_seed_and_goes_on_at_any_step():
    def same(a, b):
        return all(np.array_equal(x[name], y[name]) for x, y in zip(a, b, strict=True) for name in x)

    assert all(map(same, query_stream(9, first_step=4), query_stream(13)[4:]))
    assert not any(map(same, query_stream(5), query_stream(5, seed=1)))


def test_more_queries_a_batch_than_there_are_is_refused():
    with pytest.raises(UsageError, match=f"from 1 to the {QUERIES} training queries, got {QUERIES + 1}"):
        query_stream(1, QUERIES + 1)


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
