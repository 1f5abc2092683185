"""Embeddings by name: those to begin with, of another run or of a file, and files of them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from jobi_tf.data.graph import Graph
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.errors import DataError, UsageError, damaged, needs
from jobi_tf.files import written_beside
from jobi_tf.models.jobi import JoBi
from jobi_tf.training.run import Run


def warm_start(model: JoBi, graph: Graph, run: Run) -> int:
    """Copies the embeddings and shared weights of a run into a model of a graph, by name; others stay as they are.

    Returns:
        The number of entities whose embeddings were copied.

    Raises:
        UsageError: the models differ in scorer, embedding size or reciprocal relations.
        DataError: the graphs have no entity in common.
    """
    for name in ("dim", "reciprocal", "scorer"):
        ours, theirs = (getattr(x, name) for x in (model, run.model))
        if name == "scorer":
            ours, theirs = ours.name, theirs.name
        if ours != theirs:
            raise UsageError(f"expected {name} {theirs} of {run.path} for a warm start, got {ours}")
    entities = _common(graph.entities, run.graph.entities)
    if not len(entities):
        raise DataError(f"expected entities of {run.path} in {graph.name} for a warm start, no name in common")
    _copy(model.entities.table, run.model.entities.table.numpy(), entities)
    relations = _common(graph.relations, run.graph.relations)
    sizes = np.array([graph.num_relations, run.graph.num_relations])
    for ours, theirs in zip(model.heads, run.model.heads, strict=False):
        table = theirs.relations.table.numpy()
        for inverse in range(1 + model.reciprocal):  # inverse relations follow
            _copy(ours.relations.table, table, relations + inverse * sizes)
        for name, weight in ours.shared.items():
            weight.assign(theirs.shared[name])
        if ours.net and theirs.net:
            ours.net.set_weights(theirs.net.get_weights())
    return len(entities)


def use_entity_vectors(model: JoBi, graph: Graph, path: Path) -> int:
    """Copies pretrained vectors into the entity table of a model of a graph, by name; others stay as they are.

    The file is .npz with `names`, str [N], and `vectors`, float [N, width]; or word2vec text, a line `name numbers…`
    for each entity, optionally after a line `N width`. In names of such a file spaces may be underscores.

    Returns:
        The number of entities whose vectors were copied.

    Raises:
        DataError: the file cannot be read, has another width than the model's or a name twice, or none of its names is
            an entity.
    """
    width = model.entities.table.shape[1]
    names, vectors = read_vectors(path, width)
    if vectors.shape != (len(names), width):
        expected = f"the shape {[len(names), width]} for {model.scorer.name} with dim {model.dim}"
        raise DataError(f"{path}: expected vectors of {expected}, got {list(vectors.shape)}")
    if not np.isfinite(vectors).all():
        raise DataError(f"{path}: expected finite numbers, got NaN or infinity")
    rows = {name: row for row, name in enumerate(names)}
    if len(rows) < len(names):
        raise DataError(f"{path}: expected each name once, got {_most_common(names)!r} several times")
    found = [rows.get(name, rows.get(name.replace(" ", "_"))) for name in graph.entities.names]
    pairs = [(i, row) for i, row in enumerate(found) if row is not None]
    if not pairs:
        raise DataError(f"{path}: expected vectors of entities of {graph.name}, none of {len(names):,} names is one")
    _copy(model.entities.table, vectors, np.array(pairs))
    return len(pairs)


def _common(ours: Vocabulary, theirs: Vocabulary) -> np.ndarray:
    """Returns the ids of the common names in both vocabularies, int64 [N, 2]."""
    pairs = [(i, theirs.id(name)) for i, name in enumerate(ours.names) if name in theirs]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _copy(table: keras.Variable, values: np.ndarray, pairs: np.ndarray) -> None:
    """Copies values into a table, given pairs of the row there and of the row of the values, int [N, 2]."""
    changed = table.numpy()
    changed[pairs[:, 0]] = values[pairs[:, 1]]
    table.assign(changed)


def read_vectors(path: Path, width: int) -> tuple[list[str], np.ndarray]:
    """Reads names and vectors, float32 [N, width], of .npz or word2vec text, or raises a `DataError`."""
    if path.suffix == ".parquet":
        raise DataError(f"expected vectors in an .npz file or as word2vec text, got {path}")
    if path.suffix != ".npz":
        return _word2vec(path, width)
    with damaged("an .npz file with names and vectors", path), np.load(path) as file:
        if missing := [name for name in ("names", "vectors") if name not in file]:
            raise DataError(f"expected arrays `names` and `vectors` in {path}, got no `{missing[0]}`")
        try:
            names = [str(x) for x in file["names"]]
        except ValueError:  # an array of objects, which NumPy does not read
            raise DataError(f"expected names as text in {path}, np.array(names, str), got objects") from None
        vectors = file["vectors"]
        if np.iscomplexobj(vectors):
            raise DataError(f"expected real vectors in {path}, such as real parts then imaginary ones, got complex")
        return names, np.asarray(vectors, np.float32)


def write_vectors(path: Path, names: Sequence[str], vectors: np.ndarray) -> None:
    """Writes names and vectors, float32 [N, width], in the format that the suffix of the file stands for.

    The formats are `.npz` with the arrays `names` and `vectors`; `.txt`, word2vec text with underscores for spaces; or
    `.parquet` with the columns `name` and `vector`.

    Raises:
        UsageError: the suffix is another one, or two names differ only in spaces and underscores in word2vec text.
        MissingExtraError: pandas or pyarrow, which write Parquet, are not installed.
    """
    if path.suffix not in (".npz", ".txt", ".parquet"):
        raise UsageError(f"expected a file that ends in .npz, .txt or .parquet, got {path}")
    if path.suffix == ".txt":
        names = [name.replace(" ", "_") for name in names]
        if len(set(names)) < len(names):
            reason = "word2vec text has underscores for spaces: write .npz"
            raise UsageError(f"{path} would have {_most_common(names)!r} twice, as {reason}")
    with written_beside(path) as beside:
        if path.suffix == ".npz":
            np.savez_compressed(beside, names=np.array(names), vectors=vectors)
        elif path.suffix == ".txt":
            with beside.open("w", encoding="utf-8") as file:
                file.write(f"{len(names)} {vectors.shape[1]}\n")
                for name, vector in zip(names, vectors, strict=True):
                    file.write(f"{name} {' '.join(f'{x:.9g}' for x in vector)}\n")
        else:
            with needs("Parquet needs pandas and pyarrow", "parquet"):
                import pandas as pd

                pd.DataFrame({"name": names, "vector": list(vectors)}).to_parquet(beside)


def _most_common(names: Sequence[str]) -> str:
    return Counter(names).most_common(1)[0][0]


def _word2vec(path: Path, width: int) -> tuple[list[str], np.ndarray]:
    """Reads lines of a name and numbers, separated by spaces; names may hold spaces too."""
    names: list[str] = []
    rows: list[np.ndarray] = []
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                name, *numbers = line.decode().rstrip().rsplit(" ", width)
                if number == 1 and width > 1 and len(header := line.split()) == 2:  # how many vectors, and their width
                    if int(header[1]) != width:
                        raise DataError(f"{path}:1: expected vectors of {width} numbers, got {int(header[1])}")
                    continue
                if len(numbers) != width:
                    raise DataError(f"{path}:{number}: expected a name and {width} numbers, got {len(numbers)} numbers")
                names.append(name)
                rows.append(np.array(numbers, np.float32))
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path}: expected a file of vectors: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{path}:{number}: expected a name and numbers in UTF-8: {error}") from None
    return names, np.array(rows, np.float32).reshape(-1, width)
