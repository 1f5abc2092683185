"""Files that hold a token."""

from pathlib import Path

from jobi_tf.errors import DataError


def read_token(path: Path) -> str:
    """Reads a token from the only line of a file.

    Raises:
        DataError: the file cannot be read, or holds something else.
    """
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"expected a file with a token at {path}: {getattr(error, 'strerror', error)}") from None
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise DataError(f"expected one line with a token of letters, digits and signs in {path}")
    return token
