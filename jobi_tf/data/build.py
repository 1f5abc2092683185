"""A data set out of any triples: no repeats, no rare entities, and splits whose names all occur in training."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from jobi_tf.data.build_core import Step, core, step
from jobi_tf.data.graph import SPLITS
from jobi_tf.data.occurrences import triple_keys
from jobi_tf.errors import DataError, UsageError

_LARGEST_KEY = 2**63 - 1


@dataclass(frozen=True)
class Recipe:
    """What to make of the triples; FB1.9M was made of FB3M by `min_triples = 5`.

    Args:
        min_triples: every entity that stays occurs in at least so many of the triples that stay. A triple counts once
            for an entity, also where it links the entity to itself. 1 leaves every entity.
        valid: number of validation triples, or their share of all that stay where it is below 1. None: a hundredth, at
            most 5,000.
        test: the same for the test triples.
        seed: which of the random splits.

    Raises:
        UsageError: a value cannot work.
    """

    min_triples: int = 5
    valid: int | float | None = None
    test: int | float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.min_triples < 1:
            raise UsageError(f"expected to keep entities of at least 1 triple, got {self.min_triples}")
        if self.seed < 0:
            raise UsageError(f"expected a seed of at least 0, got {self.seed}")
        for split, size in (("valid", self.valid), ("test", self.test)):
            if size is not None and not (0 < size < 1 or (size >= 1 and isinstance(size, int))):
                raise UsageError(f"expected a number of {split} triples, or a share between 0 and 1, got {size}")

    def sizes(self, triples: int) -> tuple[int, int]:
        """Returns how many of so many triples go to valid and to test: at least one each."""
        default = min(5000, triples // 100)
        wanted = [
            default if size is None else size if isinstance(size, int) else round(size * triples)
            for size in (self.valid, self.test)
        ]
        return max(1, wanted[0]), max(1, wanted[1])


@dataclass(frozen=True)
class Report:
    """What was left out on the way.

    Args:
        read: entities, relations and triples as they were read.
        repeats: how many triples had been read before.
        rounds: what each round left; empty where no entity was rare.
        kept: what stayed.
        splits: number of triples of each split.
    """

    read: Step
    repeats: int
    rounds: tuple[Step, ...]
    kept: Step
    splits: dict[str, int]

    def as_dict(self) -> dict:
        """Returns everything as plain values, for JSON."""
        return asdict(self)

    def lines(self, rows: int = 20) -> list[tuple[str, str, str, str]]:
        """Returns a table for people, of step, entities, relations and triples; the rounds are cut after `rows`."""
        more = len(self.rounds) - rows
        cut = [("…", "", "", f"({more} more)")] if more > 0 else []
        left = [getattr(self.read, kind) - getattr(self.kept, kind) for kind in ("entities", "relations", "triples")]
        return [
            self.read.row(),
            ("without repeats", *self.read.row()[1:3], f"{self.read.triples - self.repeats:,}"),
            *(entry.row() for entry in self.rounds[:rows]),
            *cut,
            self.kept.row(),
            Step("left out", *left).row(),
            *((f"in {split}", "", "", f"{count:,}") for split, count in self.splits.items()),
        ]


def build(
    triples: np.ndarray,
    num_entities: int,
    num_relations: int,
    recipe: Recipe,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[dict[str, np.ndarray], Report]:
    """Leaves out repeats and rare entities, and splits what stays.

    Args:
        triples: int32 [N, 3], repeats allowed.
        num_entities: ids of heads and tails are below it.
        num_relations: ids of relations are below it.
        recipe: what stays, and the sizes of the splits.
        say: takes lines that tell how far it is.

    Returns:
        `train`, `valid` and `test`, each int32 [n, 3], with the ids and in the order of `triples`; and the report.

    Raises:
        DataError: nothing stays, or not enough to split.

    Example:
        >>> ring = np.array([[i, 0, (i + 1) % 5] for i in range(5)] + [[0, 0, 2], [0, 0, 5]], np.int32)
        >>> splits, report = build(ring, 6, 1, Recipe(min_triples=2))
        >>> report.kept.entities, report.splits
        (5, {'train': 4, 'valid': 1, 'test': 1})
    """
    if not len(triples):
        raise DataError("expected triples to build a data set of, got none")
    read = step("read", triples, num_entities, num_relations)
    triples = distinct(triples, num_entities, num_relations)
    repeats = read.triples - len(triples)
    say(f"{repeats:,} triples are repeats, {len(triples):,} are left")
    triples, rounds = core(triples, num_entities, num_relations, recipe.min_triples, say)
    if not len(triples):
        raise DataError(
            f"expected entities that occur in at least {recipe.min_triples} triples each when rarer ones are left out "
            f"again and again, got none of {read.entities:,}: ask for fewer triples"
        )
    kept = step("kept", triples, num_entities, num_relations)
    splits = hold_out(triples, num_entities, num_relations, *recipe.sizes(len(triples)), recipe.seed)
    sizes = {split: len(rows) for split, rows in splits.items()}
    return splits, Report(read, repeats, tuple(rounds), kept, sizes)


def distinct(triples: np.ndarray, num_entities: int, num_relations: int) -> np.ndarray:
    """Returns the triples without those that occurred before, in the same order: int32 [n, 3]."""
    keys = _keys(triples, num_entities, num_relations)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    repeats = order[1:][keys[1:] == keys[:-1]]
    if not len(repeats):
        return triples
    new = np.ones(len(triples), bool)
    new[repeats] = False
    return triples[new]


def hold_out(
    triples: np.ndarray, num_entities: int, num_relations: int, valid: int, test: int, seed: int
) -> dict[str, np.ndarray]:
    """Splits triples at random so that every entity and relation of valid and test occurs in train.

    The triples are put in a random order, and the first of them are held out, but for those that are the last one in
    that order of their head, relation or tail. So no triple is favoured while each name has others.

    Args:
        triples: int32 [N, 3], distinct.
        num_entities: ids of heads and tails are below it.
        num_relations: ids of relations are below it.
        valid: number of validation triples.
        test: number of test triples.
        seed: which of the random splits.

    Returns:
        `train`, `valid` and `test`, each int32 [n, 3], in the order of `triples`.

    Raises:
        DataError: too few triples can be held out.
    """
    place = np.random.default_rng(seed).permutation(np.arange(len(triples), dtype=np.int32))
    head, relation, tail = triples.T
    last_of_entity, last_of_relation = np.zeros(num_entities, np.int32), np.zeros(num_relations, np.int32)
    np.maximum.at(last_of_entity, head, place)
    np.maximum.at(last_of_entity, tail, place)
    np.maximum.at(last_of_relation, relation, place)
    free = place != last_of_entity[head]
    free &= place != last_of_entity[tail]
    free &= place != last_of_relation[relation]
    rows = np.flatnonzero(free)
    if len(rows) < valid + test:
        raise DataError(
            f"expected {valid:,} valid and {test:,} test triples whose entities and relations also occur in train, got "
            f"only {len(rows):,} of {len(triples):,} triples that can be held out"
        )
    rows = rows[np.argsort(place[rows])[: valid + test]]
    split = np.zeros(len(triples), np.int8)
    split[rows[:valid]], split[rows[valid:]] = SPLITS.index("valid"), SPLITS.index("test")
    return {name: triples[split == i] for i, name in enumerate(SPLITS)}


def _keys(triples: np.ndarray, num_entities: int, num_relations: int) -> np.ndarray:
    """Returns one number a triple, equal for equal triples: int64 [N]."""
    head, relation, tail = triples[:, 0].astype(np.int64), triples[:, 1], triples[:, 2]
    if num_entities * num_entities * num_relations <= _LARGEST_KEY:
        return triple_keys(head, relation, tail, num_entities, num_relations)
    # A number of each (head, relation) that occurs is at most N: that leaves enough bits for the tail.
    pairs = np.unique(head * num_relations + relation, return_inverse=True)[1]
    return pairs * num_entities + tail
