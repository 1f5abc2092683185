import numpy as np
import pytest

import jobi_tf
from jobi_tf.data.occurrences import HEAD, TAIL, KnownAnswers, Occurrences
from jobi_tf.errors import JobiError, UsageError
from jobi_tf.evaluation.answers import best_answers
from tests.graphs import random_graph
from tests.models.oracles import oracle_scores

from .oracle import triple_set

GRAPH = random_graph(entities=12, relations=2, train=120, valid=10, test=10)
EVERY = triple_set(*GRAPH.splits.values())
KNOWN = KnownAnswers.of_graph(GRAPH, ["train", "valid", "test"])
COLUMN = {HEAD: 0, TAIL: 2}


@pytest.fixture(scope="module")
def model():
    return jobi_tf.JoBi(12, 2, 8)


FEW = GRAPH.train[:9]


def expected(model, triple, side, k, new_only, typed):
    """The k best (entity, score, known), by sorting every candidate."""
    candidates = np.repeat(triple[None], 12, 0)
    candidates[:, COLUMN[side]] = np.arange(12)
    marks = [tuple(x) in EVERY for x in candidates.tolist()]
    scores = oracle_scores(model, candidates)
    seen = {row[COLUMN[side]] for row in FEW.tolist() if row[1] == triple[1]} if typed else range(12)
    order = [e for e in np.argsort(-scores) if e in seen and not (new_only and marks[e])]
    return [(e, scores[e], marks[e]) for e in order[:k]]


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("new_only", [False, True])
@pytest.mark.parametrize("side", [HEAD, TAIL])
@pytest.mark.parametrize("k", [1, 5, 12, 99])
def test_answers_equal_a_full_sort(model, side, k, new_only, typed):
    seen = Occurrences.from_triples(FEW, 12, 2) if typed else None
    found = best_answers(model, KNOWN, GRAPH.test, side, k, new_only, seen)
    assert found.entities.shape == found.scores.shape == found.known.shape == (10, min(k, 12))
    assert (found.entities.dtype, found.scores.dtype, found.known.dtype) == (np.int32, np.float32, bool)
    for row, triple in enumerate(GRAPH.test):
        best = expected(model, triple, side, k, new_only, typed)
        rest = min(k, 12) - len(best)
        assert found.entities[row].tolist() == [int(e) for e, _, _ in best] + [-1] * rest
        np.testing.assert_allclose(found.scores[row], [s for _, s, _ in best] + [-np.inf] * rest, atol=1e-5)
        assert found.known[row].tolist() == [m for _, _, m in best] + [False] * rest


def test_the_sought_column_is_not_read(model):
    other = GRAPH.test.copy()
    other[:, 2] = 11
    first, second = (best_answers(model, KNOWN, x, TAIL, 4, True) for x in (GRAPH.test, other))
    np.testing.assert_array_equal(first.entities, second.entities)


def test_no_queries_have_no_answers(model):
    found = best_answers(model, KNOWN, np.empty((0, 3), np.int32), TAIL, 4)
    assert found.entities.shape == found.scores.shape == found.known.shape == (0, 4)


def test_k_below_one_is_refused(model):
    with pytest.raises(UsageError, match=r"\bk\b.* 0"):
        best_answers(model, KNOWN, GRAPH.test, TAIL, 0)


def test_scores_that_are_not_finite_are_an_error():
    broken = jobi_tf.JoBi(12, 2, 8)
    broken.heads[0].relations.table.assign(np.full((2, 16), np.nan, np.float32))
    with pytest.raises(JobiError, match="finite"):
        best_answers(broken, KNOWN, GRAPH.test, TAIL, 3)
