"""Archives of public data sets: found or downloaded, verified by digests and counts, and read without unpacking."""

import hashlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from jobi_tf.console import Bar
from jobi_tf.data.graph import Graph
from jobi_tf.datasets import cache
from jobi_tf.datasets.catalogue import DataSet
from jobi_tf.datasets.reading import TripleReader
from jobi_tf.errors import DataError, JobiError, UsageError

_TIMEOUT = 30.0  # seconds without an answer, or between two parts of it
_DOWNLOADS = "archives"  # in the cache
_LARGEST_MEMBER = 1 << 30  # bytes


def find(dataset: DataSet, archive: Path | None = None) -> Path | None:
    """Returns the given archive, else the one in the folder `JOBI_TF_ARCHIVES`, else a downloaded one, else None."""
    if archive is not None:
        if not archive.is_file():
            raise UsageError(f"expected the archive {dataset.file} at {archive}, which is not a file")
        return archive
    folders = [cache.home() / _DOWNLOADS]
    if given := os.environ.get("JOBI_TF_ARCHIVES"):
        folders.insert(0, Path(os.path.expanduser(given)))
        if not folders[0].is_dir():
            raise UsageError(f"expected a folder of archives in JOBI_TF_ARCHIVES, got {given!r}")
    return next((path for folder in folders if (path := folder / dataset.file).is_file()), None)


def download(dataset: DataSet) -> Graph:
    """Downloads the archive of a data set and reads it; the cache keeps it only if its digests and counts are right."""
    import pooch
    import requests

    folder = cache.home() / _DOWNLOADS
    cache.make_folder(folder)
    pooch.get_logger().setLevel("WARNING")
    try:
        with Bar(0, "bytes", dataset.file) as bar:
            bar.print(f"downloading {dataset.url}")
            path = pooch.retrieve(
                dataset.url,
                known_hash=None,  # `read_archive` verifies all that is known
                fname=dataset.file,
                path=folder,
                downloader=pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16, timeout=_TIMEOUT),
            )
        return read_archive(dataset, Path(path))
    except requests.RequestException as error:
        raise JobiError(f"cannot download {dataset.url}: {_reason(error)}; {_advice(dataset)}") from None
    except OSError as error:
        raise cache.failure("write in", folder, error) from None
    except ValueError as error:  # of `read_archive`
        (folder / dataset.file).unlink(missing_ok=True)
        raise DataError(f"{dataset.url} is not the expected archive: {error}; {_advice(dataset)}") from None


def _reason(error: Any) -> str:
    """Returns why a request failed, without the chain of connection objects that requests puts before it."""
    if error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    detail = re.split(r"\"|',", str(error).split(": ")[-1])[0].lstrip("('")
    return f"{type(error).__name__}: {detail}"


def _advice(dataset: DataSet) -> str:
    prepare = f"`jobi-tf data prepare {dataset.name} --archive PATH`"
    folder = "the folder that the environment variable JOBI_TF_ARCHIVES names"
    return f"fetch {dataset.file} by other means, and run {prepare} once, or put it into {folder}"


def _verify_digest(dataset: DataSet, name: str, file: BinaryIO, where: str) -> None:
    algorithm, _, expected = dataset.digests[name].partition(":")
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    # The id that git gives to a file is the SHA-1 of a header and the content.
    new = {"sha256": hashlib.sha256, "git": lambda: hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)}
    digest = hashlib.file_digest(file, new[algorithm]).hexdigest()  # type: ignore[arg-type]
    if digest != expected:
        got = f"{digest}: it is damaged, or another file"
        raise DataError(f"{where}: expected {name} of {dataset.title} with {algorithm} {expected}, got {got}")


def read_archive(dataset: DataSet, path: Path) -> Graph:
    """Reads the archive of a public data set; raises a `DataError` unless digests and counts are the expected ones."""
    if dataset.file in dataset.digests:
        try:
            with path.open("rb") as file:
                _verify_digest(dataset, dataset.file, file, str(path))
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    reader = TripleReader()
    parts = {split: reader.read(io.BytesIO(content), where) for split, where, content in _members(dataset, path)}
    counts = {
        "entities": (dataset.entities, len(reader.entities)),
        "relations": (dataset.relations, len(reader.relations)),
        **{f"{split} triples": (dataset.triples[split], len(rows.triples)) for split, rows in parts.items()},
    }
    wrong = [f"{count:,} {kind} (got {found:,})" for kind, (count, found) in counts.items() if count != found]
    if wrong:
        raise DataError(f"{path}: expected {dataset.title} with {', '.join(wrong)}")
    return reader.graph(dataset.name, parts)


def _members(dataset: DataSet, path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Reads the files of triples in an archive into memory; nothing is written, and other members are not read.

    Yields split, name of the file in messages, and content.
    """
    try:
        with tarfile.open(path, "r:gz") as archive:
            members = archive.getmembers()
            for split, name in dataset.members.items():
                found = [member for member in members if PurePosixPath(member.name).name == name]
                if len(found) != 1 or not found[0].isreg() or found[0].size > _LARGEST_MEMBER:
                    inside = ", ".join(member.name for member in members[:6]) or "nothing"
                    raise DataError(
                        f"{path}: expected one regular file {name} of less than 1 GiB, found {len(found)} of that name"
                        f" (the archive holds {inside})"
                    )
                file = archive.extractfile(found[0])
                assert file is not None
                content = file.read()
                if name in dataset.digests:
                    _verify_digest(dataset, name, io.BytesIO(content), f"{path}: {found[0].name}")
                yield split, f"{path.name}/{name}", content
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:  # a damaged gzip file raises an OSError
        raise DataError(f"{path}: expected a tar.gz archive, got one that is truncated or corrupt ({error})") from None
