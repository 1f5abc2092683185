"""Archives of public data sets: found, recognised by digest, and read without unpacking them."""

import gzip
import hashlib
import os
import posixpath
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from jobi_tf.datasets import cache
from jobi_tf.datasets.catalogue import DataSet
from jobi_tf.errors import DataError, UsageError

_LARGEST_MEMBER = 1 << 30


def kept(dataset: DataSet) -> Path:
    """Returns where a downloaded archive is kept."""
    return cache.home() / "archives" / dataset.file


def find(dataset: DataSet, archive: Path | None = None) -> Path | None:
    """Returns the archive that is given, or lies in the folder `JOBI_TF_ARCHIVES`, or was downloaded; else None.

    Raises:
        UsageError: the given archive is not a file, or `JOBI_TF_ARCHIVES` is not a folder.
    """
    if archive is not None:
        if not archive.is_file():
            came = "a folder" if archive.is_dir() else "nothing"
            raise UsageError(f"expected the archive {dataset.file} at {archive}, found {came} there")
        return archive
    candidates = [kept(dataset)]
    if folder := os.environ.get("JOBI_TF_ARCHIVES"):
        if not Path(folder).expanduser().is_dir():
            raise UsageError(f"expected a folder of archives in JOBI_TF_ARCHIVES, got {folder!r}")
        candidates.insert(0, Path(folder).expanduser() / dataset.file)
    return next((path for path in candidates if path.is_file()), None)


def verify(dataset: DataSet, path: Path) -> None:
    """Checks that a file is the archive of the data set, by the digests that the catalogue knows.

    Raises:
        DataError: it is another file, or a damaged one.
    """
    if dataset.sha256 is None and dataset.blob is None:
        for _ in read_members(dataset, path):  # checks the digests of the members
            pass
        return
    kind, expected = ("sha256", dataset.sha256) if dataset.sha256 else ("git blob id", dataset.blob)
    digest = hashlib.sha256() if dataset.sha256 else _blob_digest(path.stat().st_size)
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError as problem:
        raise DataError(f"{path}: cannot be read: {problem.strerror}") from None
    if digest.hexdigest() != expected:
        raise DataError(
            f"{path}: expected {dataset.file} with {kind} {expected}, got {digest.hexdigest()}{_reason(path)}"
        )


def read_members(dataset: DataSet, path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Reads the three files of triples out of an archive; nothing is unpacked, other members are not read.

    Yields:
        Split, name of the file in messages, and content, for train, valid and test.

    Raises:
        DataError: the archive is damaged or unsafe, a file is missing in it, or has another digest than expected.
    """
    with _opened(path) as archive:
        by_name: dict[str, list[tarfile.TarInfo]] = {}
        for member in _safe_members(archive, path):
            by_name.setdefault(PurePosixPath(member.name).name, []).append(member)
        chosen = {}
        for split, name in dataset.members.items():
            found = by_name.get(name, [])
            if len(found) != 1:
                inside = ", ".join(sorted(member.name for member in archive.getmembers())[:6]) or "nothing"
                raise DataError(
                    f"{path}: expected one {name} in {dataset.file}, found {len(found)} (it holds {inside})"
                )
            chosen[split] = found[0]
        for split, member in chosen.items():
            yield split, f"{path.name}/{dataset.members[split]}", _content(dataset, split, archive, member, path)


def _content(dataset: DataSet, split: str, archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> bytes:
    file = archive.extractfile(member) if member.isreg() else None
    if file is None or member.size > _LARGEST_MEMBER:
        raise DataError(f"{path}: expected {member.name} to be a regular file below 1 GiB, got something else")
    content = file.read()
    expected = dataset.member_blobs.get(split)
    digest = _blob_digest(len(content))
    digest.update(content)
    if expected and digest.hexdigest() != expected:
        raise DataError(
            f"{path}: expected {member.name} of {dataset.title} with git blob id {expected}, got {digest.hexdigest()}"
        )
    return content


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, "r:gz") as archive:
            yield archive
    except (tarfile.TarError, EOFError, zlib.error) as problem:
        raise DataError(f"{path}: expected a tar.gz archive, got a truncated or corrupt one ({problem})") from None
    except OSError as problem:  # gzip.BadGzipFile is one
        raise DataError(f"{path}: expected a tar.gz archive, which cannot be read: {problem}") from None


def _safe_members(archive: tarfile.TarFile, path: Path) -> list[tarfile.TarInfo]:
    """Returns the members, or refuses the archive where one points outside: nobody packs such a thing in good faith."""
    for member in archive.getmembers():
        target = member.name
        if member.issym():
            target = posixpath.join(posixpath.dirname(member.name), member.linkname)
        elif member.islnk():
            target = member.linkname
        for name in (member.name, target):
            if name.startswith(("/", "\\")) or posixpath.normpath(name).split("/")[0] == ".." or name[1:3] == ":\\":
                raise DataError(f"{path}: refused, as its member {member.name!r} points outside the archive ({name})")
    return archive.getmembers()


def _reason(path: Path) -> str:
    """Returns what else is wrong with a file of a wrong digest, if it shows."""
    try:
        with gzip.open(path) as file:
            while file.read(1 << 20):
                pass
        with _opened(path) as archive:
            _safe_members(archive, path)
    except (EOFError, OSError, zlib.error) as problem:
        return f"; it is truncated or corrupt ({problem})"
    except DataError as problem:
        return "; " + str(problem).removeprefix(f"{path}: ")
    return ""


def _blob_digest(size: int) -> "hashlib._Hash":
    """Begins a git blob id, which is the sha1 of a header and the content."""
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
