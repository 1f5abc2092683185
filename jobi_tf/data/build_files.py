"""Files of triples in, a folder with train, valid and test out."""

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import jobi_tf
from jobi_tf.data.build import Recipe, Report, build
from jobi_tf.errors import DataError, UsageError

_ROWS = 1 << 18


@dataclass(frozen=True)
class TripleText:
    """How text becomes triples. Formats are the business of `jobi_tf.datasets`, above this room: it gives these.

    Args:
        read: reads files into triples, int32 [N, 3], the names of entities, and the names of relations.
        is_header: whether these fields, in the first line of a file of the data set, would be read as a header.
        options: options of the reader that are not as by default, by their names on the command line.
    """

    read: Callable[[Sequence[Path]], tuple[np.ndarray, list[str], list[str]]]
    is_header: Callable[[list[str]], bool]
    options: Mapping[str, Any]


def build_files(
    files: Sequence[Path],
    folder: Path,
    recipe: Recipe,
    text: TripleText,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Builds a data set that `load_graph(folder)` reads: `train.txt`, `valid.txt`, `test.txt`, with TABs.

    Beside them are a `README.md` and `build.json`, which holds the recipe, the report, and digests of what was read and
    written. Equal files and recipes give equal folders. The folder appears complete or not at all.

    Args:
        files: where the triples are.
        folder: the folder to make.
        recipe: what stays, and the sizes of the splits.
        text: how the files are read.
        say: takes lines that tell how far it is.

    Raises:
        UsageError: the folder exists.
        DataError: a file cannot be used, nothing stays, or not enough to split.
    """
    if folder.exists():
        raise UsageError(f"expected a new folder for the data set, {folder} exists")
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        triples, entities, relations = text.read(files)
        say(f"{len(triples):,} triples are read, with {len(entities):,} entities and {len(relations):,} relations")
        splits, report = build(triples, len(entities), len(relations), recipe, say)
        del triples
        _refuse_tabs(splits, entities, relations)
        say("writing")
        for split, rows in splits.items():
            _write(beside / f"{split}.txt", rows, entities, relations, text.is_header)
        facts = _facts(files, sorted(beside.iterdir()), recipe, text, report)
        (beside / "build.json").write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        (beside / "README.md").write_text(_readme(folder.name, files, recipe, text, report), encoding="utf-8")
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return report


def _write(
    path: Path, triples: np.ndarray, entities: list[str], relations: list[str], is_header: Callable[[list[str]], bool]
) -> None:
    """Writes triples, int32 [N, 3], as text."""
    for turned in range(len(triples)):
        head, relation, tail = triples[turned]
        fields = [entities[head], relations[relation], entities[tail]]
        # A triple such as (h, r, t) would be taken for a header there, and U+FEFF for the mark of a file in UTF-8.
        if not is_header(fields) and not fields[0].startswith("\ufeff"):
            triples = np.roll(triples, -turned, 0) if turned else triples
            break
    else:
        raise DataError(f"expected a triple for {path.stem} that does not read as a header, got only {fields}")
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for start in range(0, len(triples), _ROWS):
            rows = triples[start : start + _ROWS].tolist()
            file.writelines(f"{entities[h]}\t{relations[r]}\t{entities[t]}\n" for h, r, t in rows)


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


def _facts(files: Sequence[Path], made: Sequence[Path], recipe: Recipe, text: TripleText, report: Report) -> dict:
    return {
        "jobi_tf": jobi_tf.__version__,
        "numpy": np.__version__,
        "recipe": asdict(recipe),
        "reader": dict(text.options),
        "report": report.as_dict(),
        "from": [_digest(path, str(path)) for path in files],
        "made": [_digest(path, path.name) for path in made],
    }


def _digest(path: Path, name: str) -> dict:
    with path.open("rb") as file:
        return {"file": name, "bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _readme(name: str, files: Sequence[Path], recipe: Recipe, text: TripleText, report: Report) -> str:
    options = {**{key.replace("_", "-"): value for key, value in asdict(recipe).items()}, **text.options}
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
