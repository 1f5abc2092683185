"""Files of vectors with names: .npz, word2vec text, and Parquet."""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jobi_tf.errors import DataError, MissingExtraError, UsageError
from jobi_tf.files import written_beside


def read_vectors(path: Path, width: int) -> tuple[list[str], np.ndarray]:
    """Reads names and vectors, float32 [N, width], from an .npz file or word2vec text.

    Raises:
        DataError: the file cannot be read.
    """
    return _npz(path) if path.suffix == ".npz" else _word2vec(path, width)


def write_vectors(path: Path, names: Sequence[str], vectors: np.ndarray) -> None:
    """Writes names and vectors, float32 [N, width], in the format that the suffix of the file stands for.

    Args:
        path: `.npz` with the arrays `names` and `vectors`; `.txt`, word2vec text with underscores for spaces; or
            `.parquet` with the columns `name` and `vector`.
        names: N names.
        vectors: their vectors.

    Raises:
        UsageError: the suffix is another one.
        MissingExtraError: pandas or pyarrow, which write Parquet, are not installed.
    """
    if path.suffix not in (".npz", ".txt", ".parquet"):
        raise UsageError(f"expected a file that ends in .npz, .txt or .parquet, got {path}")
    with written_beside(path) as beside:
        if path.suffix == ".npz":
            np.savez_compressed(beside, names=np.array(names), vectors=vectors)
        elif path.suffix == ".txt":
            with beside.open("w", encoding="utf-8") as file:
                file.write(f"{len(names)} {vectors.shape[1]}\n")
                for name, vector in zip(names, vectors, strict=True):
                    file.write(f"{'_'.join(name.split(' '))} {' '.join(f'{x:.9g}' for x in vector)}\n")
        else:
            try:
                import pandas as pd

                pd.DataFrame({"name": names, "vector": list(vectors)}).to_parquet(beside)
            except ImportError:
                raise MissingExtraError("Parquet needs pandas and pyarrow: pip install 'jobi-tf[parquet]'") from None


def _npz(path: Path) -> tuple[list[str], np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return [str(x) for x in file["names"]], np.asarray(file["vectors"], np.float32)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: expected an .npz file with names and vectors: {error}") from None


def _word2vec(path: Path, width: int) -> tuple[list[str], np.ndarray]:
    """Reads lines of a name and numbers, separated by spaces; names may hold spaces too."""
    names: list[str] = []
    rows: list[list[float]] = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                name, *numbers = line.rstrip().rsplit(" ", width)
                if number == 1 and len(line.split()) == 2 and width > 1:
                    continue  # the header: how many vectors there are, and their width
                if len(numbers) != width:
                    raise DataError(f"{path}:{number}: expected a name and {width} numbers, got {len(numbers)} numbers")
                names.append(name)
                rows.append([float(x) for x in numbers])
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path}: expected a file of vectors: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{path}:{len(rows) + 1}: expected a name and numbers in UTF-8: {error}") from None
    return names, np.array(rows, np.float32).reshape(-1, width)
