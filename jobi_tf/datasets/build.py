"""A data set out of any files of triples: a folder with train, valid and test."""

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import jobi_tf
from jobi_tf.data.build import Recipe, Report, build
from jobi_tf.datasets.layout import Layout
from jobi_tf.datasets.local import SUFFIXES
from jobi_tf.datasets.text import Names, Text, open_file
from jobi_tf.datasets.writing import refuse_existing, write_triples
from jobi_tf.errors import DataError, UsageError
from jobi_tf.files import new_folder


def build_files(
    files: Sequence[Path],
    folder: Path,
    recipe: Recipe,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Builds a data set that `load_graph(folder)` reads: `train.txt`, `valid.txt`, `test.txt`, with TABs.

    Beside them are a `README.md` and `build.json`, which holds the recipe, the report, and digests of what was read and
    written. Equal files and recipes give equal folders. The folder appears complete or not at all.

    Args:
        files: where the triples are: `.tsv`, `.txt` or `.csv`, also `.gz`.
        folder: the folder to make.
        recipe: what stays, and the sizes of the splits.
        columns: names or positions of the head, relation and tail columns.
        header: whether files have a header; None: where it looks like one.
        say: takes lines that tell how far it is.

    Raises:
        UsageError: the folder exists, or a file cannot be one of triples.
        DataError: a file cannot be used, nothing stays, or not enough to split.
    """
    layout = Layout.of(columns, header)
    _check(files)
    options = {"columns": None if columns is None else ",".join(columns), "header": header}
    refuse_existing(folder)
    with new_folder(folder) as beside:
        triples, entities, relations = _read(files, layout, say)
        say(f"{len(triples):,} triples are read, with {len(entities):,} entities and {len(relations):,} relations")
        splits, report = build(triples, len(entities), len(relations), recipe, say)
        del triples
        _refuse_tabs(splits, entities, relations)
        say("writing")
        for split, rows in splits.items():
            write_triples(beside / f"{split}.txt", _headless(rows, split, entities, relations), entities, relations)
        facts = _facts(files, sorted(beside.iterdir()), recipe, options, report)
        (beside / "build.json").write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        (beside / "README.md").write_text(_readme(folder.name, files, recipe, options, report), encoding="utf-8")
    return report


def _check(files: Sequence[Path]) -> None:
    for path in files:
        if not path.exists():
            raise UsageError(f"expected a file of triples at {path}, found nothing there")
        if not path.is_file():
            raise DataError(f"expected a file of triples, got {path}, which is not a file")
        if not path.name.endswith(SUFFIXES):
            raise UsageError(f"expected a file whose name ends in {', '.join(SUFFIXES)}, got {path}")


def _read(files: Sequence[Path], layout: Layout, say: Callable[[str], None]) -> tuple[np.ndarray, list[str], list[str]]:
    """Reads triples, int32 [N, 3], the names of their entities, and of their relations."""
    entities, relations, parts = Names(), Names(), []
    for path in files:
        say(f"reading {path}")
        separator = "," if path.name.endswith((".csv", ".csv.gz")) else "\t"
        with open_file(path) as stream:
            parts.append(Text(str(path), separator, layout).read(stream, entities, relations)[0])
    return parts[0] if len(parts) == 1 else np.concatenate(parts), list(entities), list(relations)


def _headless(triples: np.ndarray, split: str, entities: list[str], relations: list[str]) -> np.ndarray:
    """Returns triples, int32 [N, 3], turned until the first of them reads as none but a triple.

    A triple such as (h, r, t) would be taken for a header there, and U+FEFF for the mark of a file in UTF-8.
    """
    for turned, (head, relation, tail) in enumerate(triples):
        fields = [entities[head], relations[relation], entities[tail]]
        if not Layout().resolve(fields, "")[0] and not fields[0].startswith("\ufeff"):
            return np.roll(triples, -turned, 0) if turned else triples
    raise DataError(f"expected a triple for {split} that does not read as a header, got only {fields}")


def _refuse_tabs(splits: Mapping[str, np.ndarray], entities: list[str], relations: list[str]) -> None:
    """Names of CSV may hold TABs; those that stay must not.

    Raises:
        DataError: one does.
    """
    for kind, names, columns in (("entity", entities, [0, 2]), ("relation", relations, [1])):
        # Few names have one, if any: only these are looked up.
        odd = [i for i, name in enumerate(names) if "\t" in name]
        for triples in splits.values() if odd else ():
            used = np.isin(odd, triples[:, columns])
            if used.any():
                name = names[odd[int(used.argmax())]]
                raise DataError(f"expected names without TABs, which separate the fields, got the {kind} {name!r}")


def _facts(
    files: Sequence[Path], made: Sequence[Path], recipe: Recipe, options: Mapping[str, Any], report: Report
) -> dict:
    return {
        "jobi_tf": jobi_tf.__version__,
        "numpy": np.__version__,
        "recipe": asdict(recipe),
        "reader": dict(options),
        "report": report.as_dict(),
        "from": [_digest(path, str(path)) for path in files],
        "made": [_digest(path, path.name) for path in made],
    }


def _digest(path: Path, name: str) -> dict:
    with path.open("rb") as file:
        return {"file": name, "bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _readme(name: str, files: Sequence[Path], recipe: Recipe, options: Mapping[str, Any], report: Report) -> str:
    options = {**{key.replace("_", "-"): value for key, value in asdict(recipe).items()}, **options}
    command = ["jobi-tf", "data", "build"]
    for path in files:
        command += ["--from", str(path)]
    for option, value in options.items():
        if isinstance(value, bool):
            command.append(f"--{option}" if value else f"--no-{option}")
        elif value is not None:
            command += [f"--{option}", str(value)]
    table = "".join(f"| {' | '.join(row)} |\n" for row in report.lines())
    return (
        f"# {name}\n\n"
        "Triples with TABs between head, relation and tail. No triple occurs twice; every entity occurs in\n"
        f"{recipe.min_triples} or more of them over the three files; every entity and relation of valid and test\n"
        "occurs in train.\n\n"
        f"| | entities | relations | triples |\n|---|---|---|---|\n{table}\n"
        f"Made by\n\n    {shlex.join(command)}\n\n"
        "`build.json` has the digests of the files, all counts, and the versions of the programs.\n"
    )
