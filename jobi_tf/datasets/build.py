"""A data set made of any triples: no repeats, no rare entities, and splits whose names all occur in training."""

import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

import jobi_tf
from jobi_tf.data.graph import SPLITS
from jobi_tf.data.occurrences import distinct_triples, entity_degrees
from jobi_tf.datasets.reading import SUFFIXES, Columns, TripleReader
from jobi_tf.datasets.writing import write_triples
from jobi_tf.errors import DataError, UsageError, check_at_least
from jobi_tf.files import check_new, new_folder


@dataclass(frozen=True)
class Recipe:
    """How to build a data set; FB1.9M was built from FB3M with `min_triples=5`.

    Args:
        min_triples: every kept entity occurs in at least this many kept triples. A triple counts once for an entity,
            even if it links the entity to itself. 1 keeps every entity.
        valid: number of validation triples or, if below 1, their share of the kept triples. None: 0.01, at most 5,000
            triples.
        test: the same for the test triples.
        seed: seed of the random split.

    Raises:
        UsageError: a value is out of range.
    """

    min_triples: int = 5
    valid: int | float | None = None
    test: int | float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least(1, min_triples=self.min_triples)
        check_at_least(0, seed=self.seed)
        for split, size in (("valid", self.valid), ("test", self.test)):
            if size is not None and not (0 < size < 1 or (size >= 1 and isinstance(size, int))):
                raise UsageError(f"expected a number of {split} triples or a share between 0 and 1, got {size}")

    def sizes(self, triples: int) -> tuple[int, int]:
        """Returns the numbers of valid and of test triples, at least one each, for a number of triples."""
        default = min(5000, triples // 100)
        given = (default if size is None else size for size in (self.valid, self.test))
        valid, test = (max(1, size if isinstance(size, int) else round(size * triples)) for size in given)
        return valid, test


class Step(NamedTuple):
    """The numbers of entities, relations and triples after a step."""

    name: str
    entities: int
    relations: int
    triples: int

    def __str__(self) -> str:
        return f"{self.name}: {self.entities:,} entities, {self.relations:,} relations, {self.triples:,} triples"


def build(
    triples: np.ndarray,
    num_entities: int,
    num_relations: int,
    recipe: Recipe,
    progress: Callable[[str], None] = lambda line: None,
) -> tuple[dict[str, np.ndarray], list[Step]]:
    """Removes repeated triples and rare entities, and splits the remaining triples.

    Args:
        triples: int32 [N, 3], possibly with repeats; not modified.
        num_entities: upper bound of the ids of entities.
        num_relations: upper bound of the ids of relations.
        recipe: what to keep, and the sizes of the splits.
        progress: called with a line after each step.

    Returns:
        `train`, `valid` and `test`, each int32 [n, 3], with the ids and in the order of `triples`; and the steps:
        `read`, `without repeats`, each round that removed rare entities, and `kept`.

    Raises:
        DataError: an id is out of range, or no triples are kept, or too few to split.

    Example:
        >>> ring = np.array([[i, 0, (i + 1) % 5] for i in range(5)] + [[0, 0, 2], [0, 0, 5]], np.int32)
        >>> splits, steps = build(ring, 6, 1, Recipe(min_triples=2))
        >>> steps[-1].entities, len(splits["train"])
        (5, 4)
    """
    if not len(triples):
        raise DataError("expected triples to build a data set of, got none")
    triples, sizes = np.asarray(triples), [num_entities, num_relations, num_entities]
    if triples.ndim != 2 or triples.shape[1] != 3 or (triples < 0).any() or (triples >= sizes).any():
        raise DataError(f"expected triples of ids from 0 to below {sizes}, int32 [N, 3], got {triples}")
    steps: list[Step] = []

    def count(name: str, triples: np.ndarray) -> None:
        entities, relations = np.zeros(num_entities, bool), np.zeros(num_relations, bool)
        entities[triples[:, 0]] = entities[triples[:, 2]] = relations[triples[:, 1]] = True
        steps.append(Step(name, int(entities.sum()), int(relations.sum()), len(triples)))
        progress(str(steps[-1]))

    count("read", triples)
    triples = triples[np.sort(distinct_triples(triples)[0])]
    count("without repeats", triples)
    for left in core(triples, num_entities, recipe.min_triples):
        triples = left
        count(f"round {len(steps) - 1}", triples)
    if not len(triples):
        raise DataError(
            f"no entity is left when those in fewer than {recipe.min_triples} triples are left out repeatedly "
            f"({steps[0].entities:,} were read): choose a lower min_triples"
        )
    count("kept", triples)
    return hold_out(triples, num_entities, num_relations, *recipe.sizes(len(triples)), recipe.seed), steps


def core(triples: np.ndarray, num_entities: int, min_triples: int) -> Iterator[np.ndarray]:
    """Leaves out entities that occur in fewer than `min_triples` of the distinct triples, and yields what is left.

    After each round these are triples int32 [n, 3], until there is no such entity.
    """
    while True:
        enough = entity_degrees(triples, num_entities) >= min_triples
        kept = enough[triples[:, 0]] & enough[triples[:, 2]]
        if kept.all():
            return
        triples = triples[kept]
        yield triples


def hold_out(
    triples: np.ndarray, num_entities: int, num_relations: int, valid: int, test: int, seed: int
) -> dict[str, np.ndarray]:
    """Splits triples at random so that every entity and relation of valid and test occurs in train.

    The triples are shuffled, and the first of them are held out, except those that are the last ones of their head,
    relation or tail. So no triple is preferred as long as each of its names has others. Arguments and results are those
    of `build`; `valid` and `test` are numbers of triples.
    """
    place = np.random.default_rng(seed).permutation(np.arange(len(triples), dtype=np.int32))
    head, relation, tail = triples.T
    last_of_entity, last_of_relation = np.zeros(num_entities, np.int32), np.zeros(num_relations, np.int32)
    np.maximum.at(last_of_entity, head, place)
    np.maximum.at(last_of_entity, tail, place)
    np.maximum.at(last_of_relation, relation, place)
    free = (place != last_of_entity[head]) & (place != last_of_entity[tail]) & (place != last_of_relation[relation])
    rows = np.flatnonzero(free)
    if len(rows) < valid + test:
        raise DataError(
            f"expected {valid:,} valid and {test:,} test triples whose names also occur in train, but only "
            f"{len(rows):,} of {len(triples):,} triples can be held out"
        )
    rows = rows[np.argsort(place[rows])[: valid + test]]
    split = np.zeros(len(triples), np.int8)
    split[rows[:valid]], split[rows[valid:]] = SPLITS.index("valid"), SPLITS.index("test")
    return {name: triples[split == i] for i, name in enumerate(SPLITS)}


def build_files(
    files: Sequence[Path],
    folder: Path,
    recipe: Recipe,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> tuple[dict[str, int], list[Step]]:
    """Builds a data set that `load_graph(folder)` reads: `train.txt`, `valid.txt` and `test.txt`, with tabs.

    Beside them is `build.json`, with the command, the recipe, the report and the digests of all files read and written.
    Equal files and recipes give equal folders. The folder appears complete or not at all.

    The files, columns and header are as in `load_graph`. Returns the number of triples of each split, and the steps.
    """
    reader = TripleReader(Columns(columns, header=header), tabs=True)  # `write_triples` refuses those that are kept
    for path in files:
        if not path.is_file() or not path.name.endswith(SUFFIXES):
            raise UsageError(f"expected a file whose name ends in {', '.join(SUFFIXES)}, got {path}")
    check_new(folder)
    with new_folder(folder) as beside:
        parts = []
        for path in files:
            progress(f"reading {path}")
            parts.append(reader.read_file(path).triples)
        triples = np.concatenate(parts)
        del parts
        splits, steps = build(triples, len(reader.entities), len(reader.relations), recipe, progress)
        del triples
        progress("writing")
        entities, relations = list(reader.entities), list(reader.relations)
        for split, rows in splits.items():
            write_triples(beside / f"{split}.txt", rows, entities, relations)
        sizes = {split: len(rows) for split, rows in splits.items()}
        facts = {
            "command": _command(files, recipe, columns, header),
            "jobi_tf": jobi_tf.__version__,
            "numpy": np.__version__,
            "recipe": asdict(recipe),
            "report": {"steps": [step._asdict() for step in steps], "splits": sizes},
            "from": [_digest(path, str(path)) for path in files],
            "made": [_digest(path, path.name) for path in sorted(beside.iterdir())],
        }
        (beside / "build.json").write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return sizes, steps


def _digest(path: Path, name: str) -> dict:
    with path.open("rb") as file:
        return {"file": name, "bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _command(files: Sequence[Path], recipe: Recipe, columns: Sequence[str] | None, header: bool | None) -> str:
    """Returns the command that builds the same data set."""
    words = ["jobi-tf", "data", "build", *(f"--from={path}" for path in files)]
    words += [] if columns is None else [f"--columns={','.join(columns)}"]
    words += [] if header is None else ["--header" if header else "--no-header"]
    given = {name: value for name, value in asdict(recipe).items() if value is not None}
    return shlex.join([*words, *(f"--{name.replace('_', '-')}={value}" for name, value in given.items())])
