"""Numbers of the versions of an export."""

from pathlib import Path

from jobi_tf.errors import UsageError

LAST = 2**63 - 1  # TensorFlow Serving counts versions in 64 bits


def choose_version(folder: Path, version: int | None) -> int:
    """Returns `version`, or without it the integer after the versions that are in `folder`.

    Raises:
        UsageError: `version` is there already or no positive number, or `folder` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"expected a folder for the versions, {folder} is a file")
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    present = {int(name) for name in names if name.isascii() and name.isdigit()}
    if version is None:
        version = max(present, default=0) + 1
    if not 1 <= version <= LAST:
        raise UsageError(f"expected a version from 1 to {LAST}, got {version}")
    if version in present:
        raise UsageError(
            f"expected a new version, {version} is in {folder} already; the next one is {max(present) + 1}"
        )
    return version
