import numpy as np

from jobi_tf.data.occurrences import HEAD, TAIL, Csr, KnownAnswers, Occurrences, distinct_triples
from tests.graphs import random_graph, random_triples

TRIPLES = random_triples(12, 4, 60)
COLUMN = {HEAD: 0, TAIL: 2}


def test_seen_entities_are_distinct_and_ascending():
    occurrences = Occurrences.from_triples(TRIPLES, 12, 5)  # relation 4 never occurs
    for side, column in COLUMN.items():
        for relation in range(5):
            expected = sorted({int(t[column]) for t in TRIPLES if t[1] == relation})
            assert occurrences.of(side, relation).tolist() == expected
    assert occurrences.of(TAIL, 4).dtype == np.int32


def test_keys_are_row_and_entity_ascending():
    occurrences = Occurrences.from_triples(TRIPLES, 12, 5)
    rows = {(side * 5 + int(t[1])) * 12 + int(t[column]) for t in TRIPLES for side, column in COLUMN.items()}
    assert occurrences.keys().tolist() == sorted(rows)


def test_keys_of_the_largest_graph_do_not_overflow():
    entities, relations = 1_892_241, 3_247
    last = np.array([[entities - 1, relations - 1, entities - 1]], np.int32)
    keys = Occurrences.from_triples(last, entities, relations).keys()
    assert keys.tolist() == [relations * entities - 1, 2 * relations * entities - 1]


def test_lists_are_cut_into_even_parts():
    sizes = [0, 1, 8, 9, 0, 20, 0]
    csr = Csr(np.cumsum([0, *sizes]), np.arange(sum(sizes), dtype=np.int32))
    parts, lists = csr.in_parts(8)
    assert lists.tolist() == [1, 2, 3, 3, 5, 5, 5]
    assert np.diff(parts.offsets).tolist() == [1, 8, 4, 5, 6, 7, 7]
    for i in range(len(sizes)):
        assert [e for k in np.flatnonzero(lists == i) for e in parts[k].tolist()] == csr[i].tolist()


def test_csr_of_no_pairs_has_empty_lists():
    csr = Csr.from_pairs(np.empty(0, np.int32), np.empty(0, np.int32), 3, 7)
    assert [csr[i].tolist() for i in range(3)] == [[], [], []]


def test_lookup_equals_brute_force():
    known = KnownAnswers.from_triples(TRIPLES, 12, 4)
    queries = random_triples(12, 4, 40, seed=1)
    for side, column in COLUMN.items():
        rows, answers = known.lookup(side, queries)
        anchor = 2 - column
        expected = [
            (i, e)
            for i, q in enumerate(queries)
            for e in sorted({int(t[column]) for t in TRIPLES if t[1] == q[1] and t[anchor] == q[anchor]})
        ]
        assert list(zip(rows.tolist(), answers.tolist(), strict=True)) == expected


def test_lookup_reads_neither_the_sought_column_nor_changes_anything():
    known = KnownAnswers.from_triples(TRIPLES, 12, 4)
    keys, entities = known.keys.copy(), known.answers.entities.copy()
    queries = TRIPLES[:9].copy()
    queries[:, 2] = 11
    first, second = known.lookup(TAIL, queries), known.lookup(TAIL, TRIPLES[:9])
    assert [x.tolist() for x in first] == [x.tolist() for x in second]
    np.testing.assert_array_equal(known.keys, keys)
    np.testing.assert_array_equal(known.answers.entities, entities)


def test_nothing_known_finds_nothing():
    known = KnownAnswers.from_triples(np.empty((0, 3), np.int32), 12, 4)
    assert [len(x) for x in known.lookup(HEAD, TRIPLES)] == [0, 0]


def test_known_answers_of_a_graph_come_from_the_chosen_splits_only():
    graph = random_graph()
    only_valid = KnownAnswers.of_graph(graph, ["valid"])
    rows, answers = only_valid.lookup(TAIL, graph.test)
    valid = {tuple(t) for t in graph.valid.tolist()}
    assert all(
        (int(graph.test[r, 0]), int(graph.test[r, 1]), int(e)) in valid for r, e in zip(rows, answers, strict=True)
    )
    assert len(only_valid.answers.entities) == 2 * len(valid)


def test_answers_to_the_queries_of_some_triples_are_all_that_there_are():
    graph = random_graph()
    every = KnownAnswers.of_graph(graph, ["train", "valid", "test"])
    some = KnownAnswers.of_graph(graph, ["train", "valid", "test"], graph.test)
    assert len(some.keys) < len(every.keys)
    for side in (0, 1):
        for ours, theirs in zip(some.lookup(side, graph.test), every.lookup(side, graph.test), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert not len(KnownAnswers.of_graph(graph, ["train"], graph.test[:0]).keys)


def test_equal_triples_are_found_where_keys_do_not_fit_64_bits():
    last = [2**31 - 1, 2**30 - 1, 2**31 - 1]  # with these sizes the keys of the first two rows are equal modulo 2^64
    first, numbers = distinct_triples(np.array([[0, 0, 0], [8, 0, 0], last, [8, 0, 0]], np.int64))
    assert sorted(first) == [0, 1, 2]
    assert numbers[1] == numbers[3]
    assert len(set(numbers[:3])) == 3
