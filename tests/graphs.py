"""Small graphs to test with."""

import random
from pathlib import Path

import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.vocabulary import Vocabulary


def random_triples(entities: int, relations: int, count: int, seed: int = 0) -> np.ndarray:
    """Triples drawn with repetition; low ids are far more frequent than high ones."""
    rng = np.random.default_rng(seed)
    draws = [(rng.random(count) ** 2 * size).astype(np.int32) for size in (entities, relations, entities)]
    return np.stack(draws, 1)


def random_graph(
    entities: int = 30, relations: int = 4, train: int = 200, valid: int = 20, test: int = 25, seed: int = 0
) -> Graph:
    """A graph of distinct triples."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(entities * relations * entities, train + valid + test, replace=False)
    triples = np.stack(np.unravel_index(codes, (entities, relations, entities)), 1).astype(np.int32)
    return named_graph(
        {"train": triples[:train], "valid": triples[train : train + valid], "test": triples[train + valid :]},
        entities,
        relations,
    )


def named_graph(splits: dict[str, np.ndarray], entities: int, relations: int) -> Graph:
    """Entity 3 is called `entity 3`, relation 1 `relation 1`."""
    return Graph(
        "tiny",
        Vocabulary([f"entity {i}" for i in range(entities)], "entity"),
        Vocabulary([f"relation {i}" for i in range(relations)], "relation"),
        splits,
    )


def huge_graph(train: list[list[int]]) -> Graph:
    """A graph in which h * R * E + r * E + t needs 65 bits: in 64 those of heads 0 and 2²¹ are the same."""
    names = Vocabulary(range(2**22), "entity"), Vocabulary(range(2**21), "relation")
    triples = np.array(train, np.int32)
    return Graph("huge", *names, {"train": triples, "valid": triples[:0], "test": triples[:0]})


def write_towns(folder: Path, *more_tests: tuple[str, str, str]) -> Path:
    """Makes a folder with 90 triples over 15 towns and 3 relations; `more_tests` stand for the last of test."""
    towns = [f"town {i}" for i in range(15)]
    rng = random.Random(0)
    rows = sorted(
        {(rng.choice(towns), rng.choice(("near", "north of", "twin of")), rng.choice(towns)) for _ in range(120)}
    )
    rng.shuffle(rows)
    parts = {"train": rows[:70], "valid": rows[70:80], "test": [*rows[80 : 90 - len(more_tests)], *more_tests]}
    folder.mkdir()
    for split, part in parts.items():
        (folder / f"{split}.tsv").write_text("".join("\t".join(row) + "\n" for row in part))
    return folder
