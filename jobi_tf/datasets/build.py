"""A data set made of any triples: no repeats, no rare entities, and splits whose names all occur in training."""

import hashlib
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import jobi_tf
from jobi_tf.data.graph import SPLITS
from jobi_tf.data.occurrences import triple_keys
from jobi_tf.data.ranges import ranges
from jobi_tf.datasets.reading import SUFFIXES, Columns, TripleReader
from jobi_tf.datasets.writing import require_new, write_triples
from jobi_tf.errors import DataError, UsageError
from jobi_tf.files import new_folder

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """What to make of the triples; FB1.9M was made of FB3M with `min_triples=5`.

    Args:
        min_triples: every entity that is kept occurs in at least this many of the triples that are kept. A triple
            counts once for an entity, also if it links the entity to itself. 1 keeps every entity.
        valid: number of validation triples, or if below 1 their share of all that are kept. None: a hundredth, at most
            5,000.
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
        if self.min_triples < 1:
            raise UsageError(f"expected min_triples of at least 1, got {self.min_triples}")
        if self.seed < 0:
            raise UsageError(f"expected a seed of at least 0, got {self.seed}")
        for split, size in (("valid", self.valid), ("test", self.test)):
            if size is not None and not (0 < size < 1 or (size >= 1 and isinstance(size, int))):
                raise UsageError(f"expected a number of {split} triples or a share between 0 and 1, got {size}")

    def sizes(self, triples: int) -> tuple[int, int]:
        """Returns the numbers of valid and of test triples, at least one each, for a number of triples."""
        default = min(5000, triples // 100)
        valid, test = (
            default if size is None else size if isinstance(size, int) else round(size * triples)
            for size in (self.valid, self.test)
        )
        return max(1, valid), max(1, test)


@dataclass(frozen=True)
class Step:
    """The numbers of entities, relations and triples after a step."""

    name: str
    entities: int
    relations: int
    triples: int

    @classmethod
    def count(cls, name: str, triples: np.ndarray, num_entities: int, num_relations: int) -> "Step":
        """Counts what occurs in triples, int32 [N, 3]."""
        entities, relations = np.zeros(num_entities, bool), np.zeros(num_relations, bool)
        entities[triples[:, 0]] = entities[triples[:, 2]] = relations[triples[:, 1]] = True
        return cls(name, int(entities.sum()), int(relations.sum()), len(triples))

    def __str__(self) -> str:
        return f"{self.name}: {self.entities:,} entities, {self.relations:,} relations, {self.triples:,} triples"


@dataclass(frozen=True)
class Report:
    """What was read, what was left out, and what was kept.

    Args:
        steps: `read`; `without repeats`; a round each in which rare entities were left out; and `kept`.
        splits: number of triples of each split.
    """

    steps: tuple[Step, ...]
    splits: dict[str, int]


def build(
    triples: np.ndarray,
    num_entities: int,
    num_relations: int,
    recipe: Recipe,
    progress: Progress = lambda line: None,
) -> tuple[dict[str, np.ndarray], Report]:
    """Leaves out repeats and rare entities, and splits what is kept.

    Args:
        triples: int32 [N, 3], possibly with repeats; they are not changed.
        num_entities: ids of heads and tails are below it.
        num_relations: ids of relations are below it.
        recipe: what to keep, and the sizes of the splits.
        progress: called with a line after each step.

    Returns:
        `train`, `valid` and `test`, each int32 [n, 3], with the ids and in the order of `triples`; and the report.

    Raises:
        DataError: nothing is kept, or not enough to split.

    Example:
        >>> ring = np.array([[i, 0, (i + 1) % 5] for i in range(5)] + [[0, 0, 2], [0, 0, 5]], np.int32)
        >>> splits, report = build(ring, 6, 1, Recipe(min_triples=2))
        >>> report.steps[-1].entities, report.splits
        (5, {'train': 4, 'valid': 1, 'test': 1})
    """
    if not len(triples):
        raise DataError("expected triples to build a data set of, got none")
    size = num_entities, num_relations
    read = Step.count("read", triples, *size)
    progress(str(read))
    triples = distinct(triples)
    unique = Step.count("without repeats", triples, *size)
    progress(str(unique))
    keeps, rounds = core(triples, *size, recipe.min_triples)
    triples = triples[keeps]
    if not len(triples):
        raise DataError(
            f"no entity is left when those in fewer than {recipe.min_triples} triples are left out repeatedly "
            f"({read.entities:,} were read): choose a lower min_triples"
        )
    kept = Step.count("kept", triples, *size)
    progress(f"{kept} after {len(rounds)} rounds")
    splits = hold_out(triples, num_entities, num_relations, *recipe.sizes(len(triples)), recipe.seed)
    steps = (read, unique, *rounds, kept)
    return splits, Report(steps, {split: len(rows) for split, rows in splits.items()})


def distinct(triples: np.ndarray) -> np.ndarray:
    """Returns the triples without those that occurred before, in the same order: int32 [n, 3]."""
    entities, relations = int(triples[:, ::2].max()) + 1, int(triples[:, 1].max()) + 1
    if entities * relations * entities < 2**63:
        head, relation, tail = triples[:, 0].astype(np.int64), triples[:, 1], triples[:, 2]
        order = np.argsort(triple_keys(head, relation, tail, entities, relations), kind="stable")
    else:  # several times slower
        order = np.lexsort(triples.T)
    ordered = triples[order]
    repeats = (ordered[1:] == ordered[:-1]).all(axis=1)
    new = np.ones(len(triples), bool)
    new[order[1:][repeats]] = False
    return triples[new]


def core(triples: np.ndarray, num_entities: int, num_relations: int, min_triples: int) -> tuple[np.ndarray, list[Step]]:
    """Leaves out entities that occur in fewer than `min_triples` triples, with these triples, until there is none.

    A triple counts once for an entity, also if the entity is both its head and its tail. The result does not depend on
    the order in which entities are left out. A round takes the time of the triples that it leaves out.

    Args:
        triples: int32 [N, 3], distinct.
        num_entities: ids of heads and tails are below it.
        num_relations: ids of relations are below it.
        min_triples: the least number of triples of an entity.

    Returns:
        Which triples are kept, bool [N]; and what was left after each round.
    """
    keeps = np.ones(len(triples), bool)
    head, relation, tail = triples.T
    # Rows of the triples of each entity, one entity after the other; a loop occurs there twice.
    ends = np.concatenate([head, tail])
    rows = np.argsort(ends, kind="stable")
    rows %= len(triples)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=num_entities))])
    counts = np.diff(offsets) - np.bincount(head[head == tail], minlength=num_entities)
    uses = np.bincount(relation, minlength=num_relations)
    left, rounds = len(triples), list[Step]()
    rare = np.flatnonzero((counts > 0) & (counts < min_triples))
    while len(rare):
        of_rare = rows[ranges(offsets[rare], offsets[rare + 1] - offsets[rare])]
        gone = np.unique(of_rare[keeps[of_rare]])
        keeps[gone] = False
        heads, tails = head[gone], tail[gone]
        entities, lost = np.unique(np.concatenate([heads, tails[heads != tails]]), return_counts=True)
        counts[entities] -= lost
        uses -= np.bincount(relation[gone], minlength=num_relations)
        left -= len(gone)
        entities_left, relations_left = int(np.count_nonzero(counts)), int(np.count_nonzero(uses))
        rounds.append(Step(f"round {len(rounds) + 1}", entities_left, relations_left, left))
        rare = entities[(counts[entities] > 0) & (counts[entities] < min_triples)]
    return keeps, rounds


def hold_out(
    triples: np.ndarray, num_entities: int, num_relations: int, valid: int, test: int, seed: int
) -> dict[str, np.ndarray]:
    """Splits triples at random so that every entity and relation of valid and test occurs in train.

    The triples are shuffled, and the first of them are held out, except those that are the last ones of their head,
    relation or tail. So no triple is preferred as long as each of its names has others.

    Args:
        triples: int32 [N, 3], distinct.
        num_entities: ids of heads and tails are below it.
        num_relations: ids of relations are below it.
        valid: number of validation triples.
        test: number of test triples.
        seed: seed of the shuffle.

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
    progress: Progress = lambda line: None,
) -> Report:
    """Builds a data set that `load_graph(folder)` reads: `train.txt`, `valid.txt` and `test.txt`, with tabs.

    Beside them is `build.json`, with the command, the recipe, the report and the digests of all files read and written.
    Equal files and recipes give equal folders. The folder appears complete or not at all.

    Args:
        files: files of triples: `.tsv`, `.txt` or `.csv`, also `.gz`.
        folder: the folder to make.
        recipe: what to keep, and the sizes of the splits.
        columns: names or positions of the head, relation and tail columns.
        header: whether the files have a header; None: if it looks like one.
        progress: called with a line after each step.

    Raises:
        UsageError: the folder exists, or a file does not exist or has another suffix.
        DataError: a file cannot be used, nothing is kept, or not enough to split.
    """
    reader = TripleReader(Columns(columns, header=header))
    for path in files:
        if not path.is_file() or not path.name.endswith(SUFFIXES):
            raise UsageError(f"expected a file whose name ends in {', '.join(SUFFIXES)}, got {path}")
    require_new(folder)
    with new_folder(folder) as beside:
        parts = []
        for path in files:
            progress(f"reading {path}")
            parts.append(reader.read_file(path).triples)
        triples = np.concatenate(parts)
        del parts
        splits, report = build(triples, len(reader.entities), len(reader.relations), recipe, progress)
        del triples
        progress("writing")
        entities, relations = list(reader.entities), list(reader.relations)
        for split, rows in splits.items():
            _require_no_tabs(rows, entities, relations)
            rows = _without_apparent_header(rows, split, entities, relations)
            write_triples(beside / f"{split}.txt", rows, entities, relations)
        facts = {
            "command": _command(files, recipe, columns, header),
            "jobi_tf": jobi_tf.__version__,
            "numpy": np.__version__,
            "recipe": asdict(recipe),
            "report": asdict(report),
            "from": [_digest(path, str(path)) for path in files],
            "made": [_digest(path, path.name) for path in sorted(beside.iterdir())],
        }
        (beside / "build.json").write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return report


def _require_no_tabs(triples: np.ndarray, entities: list[str], relations: list[str]) -> None:
    """Raises `DataError` if a name contains a tab, as names of CSV files may."""
    for names, used in ((entities, triples[:, [0, 2]]), (relations, triples[:, 1])):
        odd = [i for i, name in enumerate(names) if "\t" in name]
        if odd and (bad := np.intersect1d(odd, used)).size:
            raise DataError(f"expected names without tabs, which separate the fields, got {names[bad[0]]!r}")


def _without_apparent_header(triples: np.ndarray, split: str, entities: list[str], relations: list[str]) -> np.ndarray:
    """Returns triples, int32 [N, 3], rotated until the first of them cannot be read as anything else.

    A triple such as (h, r, t) would be taken for a header there, and U+FEFF for a byte order mark.
    """
    for shift, (head, relation, tail) in enumerate(triples):
        fields = [entities[head], relations[relation], entities[tail]]
        if not Columns().locate(fields, "")[0] and not fields[0].startswith("\ufeff"):
            return np.roll(triples, -shift, 0) if shift else triples
    raise DataError(f"expected a {split} triple that does not read as a header, got only such as {fields}")


def _digest(path: Path, name: str) -> dict:
    with path.open("rb") as file:
        return {"file": name, "bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _command(files: Sequence[Path], recipe: Recipe, columns: Sequence[str] | None, header: bool | None) -> str:
    """Returns the command that builds the same data set."""
    options = {"--from": files, "--columns": [] if columns is None else [",".join(columns)]}
    options |= {f"--{name.replace('_', '-')}": [value] for name, value in asdict(recipe).items() if value is not None}
    words = ["jobi-tf", "data", "build"] + ([] if header is None else ["--header" if header else "--no-header"])
    return shlex.join([*words, *(str(word) for name, values in options.items() for v in values for word in (name, v))])
