"""The part of a graph in which every entity occurs often enough."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jobi_tf.data.ranges import ranges

FULL_ROUNDS = 40
"""Real graphs need fewer. A long chain (each day with its next) loses one link a round: later rounds are made cheap."""


@dataclass(frozen=True)
class Step:
    """How much there is after a step.

    Args:
        name: the step.
        entities: number of entities that occur.
        relations: number of relations that occur.
        triples: number of triples.
    """

    name: str
    entities: int
    relations: int
    triples: int

    def row(self) -> tuple[str, str, str, str]:
        """Returns the step for a table."""
        return self.name, f"{self.entities:,}", f"{self.relations:,}", f"{self.triples:,}"


def step(name: str, triples: np.ndarray, num_entities: int, num_relations: int) -> Step:
    """Counts what occurs in triples, int32 [N, 3]."""
    seen, used = np.zeros(num_entities, bool), np.zeros(num_relations, bool)
    seen[triples[:, 0]] = seen[triples[:, 2]] = used[triples[:, 1]] = True
    return Step(name, int(seen.sum()), int(used.sum()), len(triples))


def core(
    triples: np.ndarray, num_entities: int, num_relations: int, min_triples: int, say: Callable[[str], None]
) -> tuple[np.ndarray, list[Step]]:
    """Leaves out entities that occur in fewer than `min_triples` triples, with their triples, until none is left.

    A triple counts once for an entity, also where the entity is both its head and its tail. What stays does not depend
    on the order in which entities go.

    Args:
        triples: int32 [N, 3], distinct.
        num_entities: ids of heads and tails are below it.
        num_relations: ids of relations are below it.
        min_triples: the least number of triples of an entity.
        say: takes a line after each round.

    Returns:
        The triples that stay, int32 [n, 3] in their order, and what each round left.
    """
    counts, rounds = _triples_of_entities(triples, num_entities), list[Step]()
    while (rare := _rare(counts, min_triples)).any():
        if len(rounds) < FULL_ROUNDS:
            name = f"round {len(rounds) + 1}"
            gone = rare[triples[:, 0]] | rare[triples[:, 2]]
            counts -= _triples_of_entities(triples[gone], num_entities)
            triples = triples[~gone]
        else:
            stays, number = _peel(triples, counts, np.flatnonzero(rare), min_triples)
            name = f"rounds {FULL_ROUNDS + 1:,} to {FULL_ROUNDS + number:,}"
            triples = triples[stays]
        rounds.append(step(name, triples, num_entities, num_relations))
        _, entities, relations, left = rounds[-1].row()
        say(f"{name}: {entities} entities, {relations} relations, {left} triples are left")
    return triples, rounds


def _triples_of_entities(triples: np.ndarray, num_entities: int) -> np.ndarray:
    """Returns in how many triples each entity occurs: int64 [entities]."""
    head, tail = triples[:, 0], triples[:, 2]
    counts = np.bincount(head, minlength=num_entities)
    counts += np.bincount(tail, minlength=num_entities)
    counts -= np.bincount(head[head == tail], minlength=num_entities)
    return counts


def _rare(counts: np.ndarray, min_triples: int) -> np.ndarray:
    """Tells which entities occur, but not often enough: bool [entities]."""
    return (counts > 0) & (counts < min_triples)


def _peel(triples: np.ndarray, counts: np.ndarray, rare: np.ndarray, min_triples: int) -> tuple[np.ndarray, int]:
    """Makes all rounds that are left, each at the cost of the triples that it takes.

    Args:
        triples: int32 [N, 3].
        counts: in how many of them each entity occurs, int64 [entities]; brought up to date.
        rare: the entities that go first, int64 [n].
        min_triples: the least number of triples of an entity.

    Returns:
        Which triples stay, bool [N], and the number of rounds.
    """
    # Rows of the triples of each entity, one entity after the other; a loop stands there twice.
    ends = np.concatenate([triples[:, 0], triples[:, 2]])
    rows = np.argsort(ends, kind="stable")
    rows %= len(triples)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=len(counts)))])
    stays, number = np.ones(len(triples), bool), 0
    while len(rare):
        number += 1
        starts, length = offsets[rare], offsets[rare + 1] - offsets[rare]
        found = rows[ranges(starts, length)]
        gone = np.unique(found[stays[found]])
        stays[gone] = False
        head, tail = triples[gone, 0], triples[gone, 2]
        entities, lost = np.unique(np.concatenate([head, tail[head != tail]]), return_counts=True)
        counts[entities] -= lost
        rare = entities[_rare(counts[entities], min_triples)]
    return stays, number
