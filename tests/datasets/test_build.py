from collections import Counter

import numpy as np
import pytest

from jobi_tf.data.occurrences import distinct_triples
from jobi_tf.datasets.build import Recipe, build, core, hold_out
from jobi_tf.errors import DataError, UsageError

ENTITIES, RELATIONS = 60, 7


def draw(seed: int, count: int | None = None) -> np.ndarray:
    """Triples with hubs, rare entities, loops and repeats."""
    random = np.random.default_rng(seed)
    count = random.integers(1, 400) if count is None else count
    ends = (ENTITIES * random.random((count, 2)) ** 2).astype(np.int32)
    relations = random.integers(0, RELATIONS, count, np.int32)
    return np.stack([ends[:, 0], relations, ends[:, 1]], 1)


def distinct(triples: np.ndarray) -> np.ndarray:
    return triples[np.sort(distinct_triples(triples)[0])]


def naive_core(triples: list[tuple], least: int) -> tuple[list[tuple], list[list[tuple]]]:
    rounds = []
    while True:
        counts = Counter(entity for head, _, tail in triples for entity in {head, tail})
        left = [t for t in triples if counts[t[0]] >= least and counts[t[2]] >= least]
        if len(left) == len(triples):
            return left, rounds
        triples = left
        rounds.append(left)


def rows(triples: np.ndarray) -> list[tuple]:
    return [tuple(row) for row in triples.tolist()]


def chain(length: int) -> np.ndarray:
    """A clique of 4, and a tail of so many links, each entity after the next."""
    links = [(a, 0, b) for a in range(4) for b in range(a)] + [(3 + i, 1, 4 + i) for i in range(length)]
    return np.array(links, np.int32)


def test_core_as_the_naive_one():
    longest = 0
    for seed in range(150):
        triples, least = distinct(draw(seed)), 1 + seed % 9
        before = triples.copy()
        rounds = [rows(left) for left in core(triples, ENTITIES, least)]
        assert rounds == naive_core(rows(triples), least)[1]
        assert np.array_equal(triples, before)
        longest = max(longest, len(rounds))
    assert longest > 4


def test_a_chain_loses_a_link_each_round():
    rounds = list(core(chain(3000), 3004, 2))
    assert len(rounds) == 3000
    assert rows(rounds[-1]) == rows(chain(0))


def test_a_loop_counts_once():
    loops = np.array([[0, 0, 0], [1, 0, 1], [1, 1, 1], [2, 0, 0]], np.int32)
    rounds = [rows(left) for left in core(loops, 3, 2)]
    assert rounds == [[(0, 0, 0), (1, 0, 1), (1, 1, 1)], [(1, 0, 1), (1, 1, 1)]]  # 0 has two triples until 2 goes


def test_distinct_keeps_the_first():
    for seed in range(30):
        triples = draw(seed, 3000)
        assert rows(distinct(triples)) == list(dict.fromkeys(rows(triples)))
    large = np.array([[2**31 - 2, 2**30, 2**31 - 2], [0, 0, 0], [2**31 - 2, 2**30, 2**31 - 2]], np.int32)
    assert rows(distinct(large)) == rows(large[:2])


def naive_hold_out(triples: list[tuple], valid: int, test: int, seed: int) -> dict[str, list[tuple]]:
    place = np.random.default_rng(seed).permutation(np.arange(len(triples), dtype=np.int32))
    order = sorted(range(len(triples)), key=place.__getitem__)
    held = []
    for at, row in enumerate(order):
        head, relation, tail = triples[row]
        later = [triples[i] for i in order[at + 1 :]]
        entities = {entity for t in later for entity in (t[0], t[2])}
        if {head, tail} <= entities and relation in {t[1] for t in later}:
            held.append(row)
    chosen = {"valid": held[:valid], "test": held[valid : valid + test]}
    chosen["train"] = sorted(set(range(len(triples))) - {*chosen["valid"], *chosen["test"]})
    return {split: [triples[i] for i in sorted(chosen[split])] for split in ("train", "valid", "test")}


def test_hold_out_as_the_naive_one():
    for seed in range(25):
        triples = distinct(draw(seed, 150))
        splits = hold_out(triples, ENTITIES, RELATIONS, 9, 4, seed)
        assert {split: rows(part) for split, part in splits.items()} == naive_hold_out(rows(triples), 9, 4, seed)


def test_names_of_valid_and_test_occur_in_train():
    for seed in range(30):
        triples = draw(seed, 1000)
        recipe = Recipe(1 + seed % 6, valid=0.15, test=25, seed=seed)
        splits, steps = build(triples, ENTITIES, RELATIONS, recipe)
        train, valid, test = (set(rows(part)) for part in splits.values())
        assert [*splits] == ["train", "valid", "test"]
        entities = {entity for head, _, tail in train for entity in (head, tail)}
        relations = {relation for _, relation, _ in train}
        for head, relation, tail in valid | test:
            assert {head, tail} <= entities
            assert relation in relations
        stays = naive_core(list(dict.fromkeys(rows(triples))), recipe.min_triples)[0]
        assert train | valid | test == set(stays)
        assert len(train) + len(valid) + len(test) == len(stays)
        assert (len(valid), len(test)) == (round(0.15 * len(stays)), 25)
        read, unique, *_, kept = steps
        assert kept == ("kept", len(entities), len(relations), len(stays))
        assert (read.triples, unique.triples) == (len(triples), len(set(rows(triples))))
        assert all(part.dtype == np.int32 for part in splits.values())


def test_held_out_triples_are_a_fair_sample():
    """Each triple is held out about equally often where all names have many."""
    triples = np.array([(h, r, t) for h in range(10) for r in range(2) for t in range(10)], np.int32)
    times = Counter(row for seed in range(600) for row in rows(hold_out(triples, 10, 2, 10, 10, seed)["test"]))
    assert len(times) == 200
    assert max(times.values()) < 30 + 5 * 30**0.5
    assert min(times.values()) > 30 - 5 * 30**0.5


def test_equal_seeds_give_equal_splits():
    triples = draw(1, 1000)
    first, again, other = (build(triples, ENTITIES, RELATIONS, Recipe(seed=seed))[0] for seed in (3, 3, 4))
    assert all(np.array_equal(first[split], again[split]) for split in first)
    assert rows(first["test"]) != rows(other["test"])


@pytest.mark.parametrize(
    ("triples", "recipe", "words"),
    [
        ([], Recipe(), "got none"),
        (chain(9), Recipe(4), "fewer than 4 triples"),
        (chain(0), Recipe(3, valid=4, test=3), r"4 valid and 3 test .* [1-4] of 6 triples"),
        ([(0, 0, 13)], Recipe(1), "below"),
        ([(0, -1, 0)], Recipe(1), "below"),
        ([(0, 0, 0)], Recipe(1), "1 valid and 1 test .* 0 of 1 triples"),
    ],
)
def test_what_cannot_be_built(triples, recipe, words):
    with pytest.raises(DataError, match=words):
        build(np.array(triples, np.int32).reshape(-1, 3), 13, 2, recipe)


@pytest.mark.parametrize(
    "options", [{"min_triples": 0}, {"seed": -1}, {"valid": 0}, {"test": 1.5}, {"test": float("nan")}]
)
def test_recipes_out_of_range(options):
    (value,) = options.values()
    with pytest.raises(UsageError, match=f"got {value}"):
        Recipe(**options)


@pytest.mark.parametrize(
    ("recipe", "triples", "sizes"),
    [
        (Recipe(), 40, (1, 1)),
        (Recipe(), 20_000_000, (5000, 5000)),
        (Recipe(valid=7, test=0.1), 1234, (7, 123)),
        (Recipe(valid=0.001, test=1), 100, (1, 1)),
    ],
)
def test_sizes(recipe, triples, sizes):
    assert recipe.sizes(triples) == sizes
