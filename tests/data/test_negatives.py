import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import binom, chisquare

from jobi_tf.data import negatives as negatives_module
from jobi_tf.data.negatives import Membership, NegativeSampler
from jobi_tf.data.occurrences import Occurrences
from jobi_tf.errors import UsageError
from tests.graphs import random_triples

ENTITIES, RELATIONS = 40, 5
TRIPLES = random_triples(ENTITIES, RELATIONS, 150)
SEED = tf.constant([3, 14], tf.int64)


def sampler(negatives, p, triples=TRIPLES, entities=ENTITIES, relations=RELATIONS, filtered=False):
    occurrences = Occurrences.from_triples(triples, entities, relations)
    return NegativeSampler(occurrences, negatives, p, triples if filtered else None)


def draw(batch, negatives=50, p=0.3, seed=SEED, **options):
    """Returns candidates, whether each replaces the head, triple labels and pair labels, all [B, n]."""
    result = sampler(negatives, p, **options).draw(tf.constant(batch), seed)
    candidates, head_corruptions, triple_labels, pair_labels = (x.numpy() for x in result)
    return candidates, np.arange(negatives) < head_corruptions[:, None], triple_labels, pair_labels


def fits(counts, shares):
    """Whether counts follow shares, by a chi-square test over the cells that can occur."""
    assert counts[shares == 0].sum() == 0
    cells = shares > 0
    return chisquare(counts[cells], shares[cells] / shares.sum() * counts.sum()).pvalue > 1e-3


def seen(relation, column, triples=TRIPLES):
    return sorted({int(t[column]) for t in triples if t[1] == relation})


def test_the_side_is_a_fair_coin_for_each_negative():
    _, replaces_head, _, _ = draw(np.repeat(TRIPLES, 100, 0), negatives=9)
    counts = np.bincount(replaces_head.sum(1), minlength=10)
    assert fits(counts, binom.pmf(np.arange(10), 9, 0.5))


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("column", [0, 2])
@pytest.mark.parametrize("relation", [0, 3])
def test_draws_are_uniform_over_all_or_over_distinct_seen_entities(p, column, relation):
    triple = TRIPLES[TRIPLES[:, 1] == relation][:1]
    candidates, replaces_head, _, _ = draw(np.repeat(triple, 2000, 0), p=p)
    counts = np.bincount(candidates[replaces_head == (column == 0)], minlength=ENTITIES)
    shares = np.full(ENTITIES, (1 - p) / ENTITIES)
    shares[seen(relation, column)] += p / len(seen(relation, column))
    assert counts.sum() > 40_000
    assert fits(counts, shares)


def test_one_draw_says_nothing_of_the_next():
    candidates, _, _, _ = draw(np.repeat(TRIPLES, 20, 0), negatives=2, p=0.0)
    pairs = np.bincount(candidates[:, 0] // 4 * 10 + candidates[:, 1] // 4, minlength=100)
    assert fits(pairs, np.ones(100))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_labels_equal_brute_force(p):
    candidates, replaces_head, labels, pair_labels = draw(TRIPLES, p=p, filtered=True)
    heads, tails = ({(int(t[1]), int(t[column])) for t in TRIPLES} for column in (0, 2))
    train = set(map(tuple, TRIPLES.tolist()))
    for i, j in np.ndindex(candidates.shape):
        (head, relation, tail), new = TRIPLES[i].tolist(), int(candidates[i, j])
        assert labels[i, j] == -(((new, relation, tail) if replaces_head[i, j] else (head, relation, new)) in train)
        assert pair_labels[i, j] == ((relation, new) in (heads if replaces_head[i, j] else tails))
    assert (labels < 0).any()
    assert pair_labels.all() if p == 1 else set(pair_labels.flat) == {0, 1}


def test_filtering_changes_neither_draws_nor_pair_labels():
    for i, (a, b) in enumerate(zip(draw(TRIPLES), draw(TRIPLES, filtered=True), strict=True)):
        assert np.array_equal(a, b) == (i != 2)


@pytest.mark.parametrize("seed", range(15))
def test_properties_on_tiny_graphs(seed):
    rng = np.random.default_rng(seed)
    entities, relations, count, negatives = rng.integers(1, (6, 4, 9, 6), endpoint=True)
    triples = random_triples(entities, relations, count, seed)
    candidates, replaces_head, labels, pair_labels = draw(
        triples, int(negatives), rng.choice([0.0, 0.4, 1.0]), tf.constant([seed, 1], tf.int64),
        triples=triples, entities=int(entities), relations=int(relations), filtered=True,
    )  # fmt: skip
    assert candidates.shape == replaces_head.shape == labels.shape == pair_labels.shape == (count, negatives)
    assert candidates.dtype == np.int32
    assert ((candidates >= 0) & (candidates < entities)).all()
    assert set(labels.flat) <= {0, -1}
    # A negative that leaves the triple as it was is a training triple, and its pair occurs.
    own = candidates == np.where(replaces_head, triples[:, :1], triples[:, 2:])
    assert (labels[own] == -1).all()
    assert (pair_labels[own] == 1).all()


def test_the_seed_decides_the_draws():
    first, second = draw(TRIPLES), draw(TRIPLES)
    other = draw(TRIPLES, seed=tf.constant([3, 15], tf.int64))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (first[0] != other[0]).mean() > 0.5
    assert (first[1] != other[1]).any()


def test_sizes_of_the_largest_graph():
    entities, relations = 1_892_241, 3_247
    rng = np.random.default_rng(0)
    triples = rng.integers((entities, relations, entities), size=(100_000, 3)).astype(np.int32)
    triples[-2:] = [[entities - 1, relations - 1, entities - 1], [0, relations - 1, entities - 1]]
    batch = triples[-100:]
    candidates, replaces_head, labels, pair_labels = draw(
        batch, 20, 0.5, triples=triples, entities=entities, relations=relations, filtered=True
    )
    train = set(map(tuple, triples.tolist()))
    heads, tails = ({(int(t[1]), int(t[column])) for t in triples} for column in (0, 2))
    assert candidates.max() > 2**20  # 32 random bits reach all of the 1.9 million
    for i, j in np.ndindex(candidates.shape):
        (head, relation, tail), new = batch[i].tolist(), int(candidates[i, j])
        assert labels[i, j] == -(((new, relation, tail) if replaces_head[i, j] else (head, relation, new)) in train)
        assert pair_labels[i, j] == ((relation, new) in (heads if replaces_head[i, j] else tails))
    assert (labels < 0).any()


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_probabilities_outside_are_refused(p):
    with pytest.raises(UsageError, match=rf"\bp\b.* {p}"):
        sampler(5, p)


def test_no_negatives_are_refused():
    with pytest.raises(UsageError, match=r"negative.* 0"):
        sampler(0, 0.3)


def draw_shared(chunks, negatives=7, p=0.3, seed=SEED, by_side=False, **options):
    """Returns candidates [C, n], triple labels and pair labels [C, c, n], of chunks of triples [C, c, 3]."""
    found = sampler(negatives, p, **options).draw(tf.constant(chunks), seed, shared=True, by_side=by_side)
    return [x.numpy() for x in (found.entities, found.triple_labels, found.pair_labels)]


def chunks_of(size):
    return TRIPLES[: len(TRIPLES) // size * size].reshape(-1, size, 3)


@pytest.mark.parametrize("p", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("column", [0, 2])
def test_shared_draws_are_uniform_over_all_or_over_those_seen_with_a_relation_of_the_chunk(p, column):
    chunk = np.stack([TRIPLES[TRIPLES[:, 1] == relation][0] for relation in (0, 0, 3)])
    candidates, _, _ = draw_shared(np.repeat(chunk[None], 3000, 0), negatives=21, p=p)
    half = candidates[:, :10] if column == 0 else candidates[:, 10:]
    shares = np.full(ENTITIES, (1 - p) / ENTITIES)
    for triple in chunk:
        shares[seen(triple[1], column)] += p / 3 / len(seen(triple[1], column))
    assert fits(np.bincount(half.ravel(), minlength=ENTITIES), shares)


@pytest.mark.parametrize("filtered", [False, True])
def test_shared_labels_equal_brute_force(filtered):
    chunks = chunks_of(3)
    candidates, triple_labels, pair_labels = draw_shared(chunks, filtered=filtered)
    known = set(map(tuple, TRIPLES.tolist()))
    for chunk, triple in np.ndindex(chunks.shape[:2]):
        h, r, t = chunks[chunk, triple].tolist()
        for i, candidate in enumerate(candidates[chunk].tolist()):
            column, corrupted = (0, (candidate, r, t)) if i < 3 else (2, (h, r, candidate))
            assert pair_labels[chunk, triple, i] == (candidate in seen(r, column))
            assert triple_labels[chunk, triple, i] == (-1 if filtered and corrupted in known else 0)
    assert pair_labels.any()
    assert not pair_labels.all()
    assert (triple_labels < 0).any() == filtered


@pytest.mark.parametrize("filtered", [False, True])
def test_draws_by_side_and_their_labels_equal_brute_force(filtered):
    triples = np.tile(TRIPLES, (40, 1))
    draws = sampler(6, 0.4, filtered=filtered).draw(tf.constant(triples), SEED, by_side=True)
    candidates, _, triple_labels, pair_labels = (x.numpy() for x in draws)
    assert candidates.shape == triple_labels.shape == pair_labels.shape == (len(triples), 2, 3)
    known = set(map(tuple, TRIPLES.tolist()))
    for row, side, i in np.ndindex(candidates[: len(TRIPLES)].shape):
        (h, r, t), new = triples[row].tolist(), int(candidates[row, side, i])
        corrupted = (h, r, new) if side else (new, r, t)
        assert pair_labels[row, side, i] == (new in seen(r, 2 * side))
        assert triple_labels[row, side, i] == (-1 if filtered and corrupted in known else 0)
    for column in (0, 2):
        drawn = candidates[triples[:, 1] == 0, column // 2]
        shares = np.full(ENTITIES, 0.6 / ENTITIES)
        shares[seen(0, column)] += 0.4 / len(seen(0, column))
        assert fits(np.bincount(drawn.ravel(), minlength=ENTITIES), shares)


def test_shared_draws_by_side_are_the_shared_draws():
    shared = draw_shared(chunks_of(3), negatives=6, filtered=True)
    by_side = draw_shared(chunks_of(3), negatives=6, filtered=True, by_side=True)
    for one, two in zip(shared, by_side, strict=True):
        assert two.shape == (*one.shape[:-1], 2, 3)
        np.testing.assert_array_equal(two.reshape(one.shape), one)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("missing", [1, RELATIONS - 1])
def test_for_a_relation_that_training_never_saw_all_entities_are_drawn(missing, shared):
    train = TRIPLES[TRIPLES[:, 1] != missing]
    triples = np.repeat([[0, missing, 1]], 3000, 0).astype(np.int32)
    occurrences = Occurrences.from_triples(train, ENTITIES, RELATIONS)
    batch = tf.constant(triples.reshape(-1, 3, 3) if shared else triples)
    found = NegativeSampler(occurrences, 10, 1.0).draw(batch, SEED, shared=shared)
    assert fits(np.bincount(found.entities.numpy().ravel(), minlength=ENTITIES), np.ones(ENTITIES))
    assert not found.pair_labels.numpy().any()


def test_graphs_whose_triples_have_no_key_of_64_bits_cannot_be_filtered():
    occurrences = Occurrences.from_triples(TRIPLES, 2**30, 2**10)
    with pytest.raises(UsageError, match="2\\^63"):
        NegativeSampler(occurrences, 5, 0.3, TRIPLES)


@pytest.mark.parametrize("size", [1, 64, 2**10])
def test_membership_is_exact_with_a_bit_for_each_key_or_for_each_hash(size, monkeypatch):
    keys = np.unique(np.random.default_rng(0).integers(2**40, size=30)) if size > 64 else np.arange(0, size, 3)
    asked = np.concatenate([keys, keys + 1, np.random.default_rng(1).integers(keys.max() + 2, size=500)])
    for largest in (2**6, 2**8):  # so few bits that hashes collide
        monkeypatch.setattr(negatives_module, "LARGEST_BITMAP", largest)

        def look(keys_asked, certain):
            return Membership(keys, int(keys.max()) + 2)(keys_asked, certain)

        for call in (look, tf.function(look)):  # also made inside a graph, as workers of parameter servers do
            for certain in (np.zeros(len(asked), bool), np.isin(asked, keys[::2])):
                found = call(tf.constant(asked.reshape(-1, 1), tf.int64), tf.constant(certain[:, None])).numpy()
                assert found.shape == (len(asked), 1)
                assert (found[:, 0] == np.isin(asked, keys)).all()


def test_membership_of_nothing():
    keys, certain = tf.constant([0, 5], tf.int64), tf.constant([False, False])
    assert not Membership(np.empty(0, np.int64), 2**40)(keys, certain).numpy().any()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_pair_labels_are_right_with_a_bit_for_each_hash(p, shared, monkeypatch):
    monkeypatch.setattr(negatives_module, "LARGEST_BITMAP", 2**6)
    triples = tf.constant(TRIPLES.reshape(-1, 5, 3) if shared else TRIPLES)
    drawn = sampler(20, p).draw(triples, SEED, shared=shared)
    entities, replaces_head = drawn.entities.numpy(), np.arange(20) < drawn.head_counts.numpy()[:, None]
    for place, label in np.ndenumerate(drawn.pair_labels.numpy()):
        at, relation = (place[0], place[-1]), TRIPLES.reshape(*triples.shape)[place[:-1]][1]
        assert label == (entities[at] in seen(relation, 0 if replaces_head[at] else 2))
