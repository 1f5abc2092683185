"""Downloading archives."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from jobi_tf.datasets import archives, cache
from jobi_tf.datasets.catalogue import DataSet
from jobi_tf.errors import DataError, JobiError
from jobi_tf.files import written_beside

_TIMEOUT = 30.0


def download(dataset: DataSet) -> Path:
    """Downloads the archive of a data set into the cache; it is kept there only if its digests fit.

    Returns:
        The archive.

    Raises:
        JobiError: the network or the disk failed, or something else came than the archive.
    """
    target = archives.kept(dataset)
    cache.make_folder(target.parent)
    cache.sweep(target.parent, target.name)
    with written_beside(target) as beside:
        try:
            with beside.open("wb") as file:
                for chunk in _chunks(dataset):
                    file.write(chunk)
        except OSError as problem:
            raise JobiError(
                f"cannot write {target}: {problem.strerror}; JOBI_TF_HOME can name another cache folder"
            ) from None
        try:
            archives.verify(dataset, beside)
        except DataError as problem:
            reason = str(problem).removeprefix(f"{beside}: ")
            raise DataError(f"{dataset.url}: {reason}; {_advice(dataset)}") from None
    return target


def _chunks(dataset: DataSet) -> Iterator[bytes]:
    """Yields the archive from the network, and shows the progress on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    request = urllib.request.Request(dataset.url, headers={"User-Agent": "jobi-tf"})
    try:
        with (
            urllib.request.urlopen(request, timeout=_TIMEOUT) as response,
            Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        ):
            expected = int(response.headers.get("Content-Length") or 0)
            if not console.is_terminal:
                console.print(f"downloading {dataset.url}", markup=False, soft_wrap=True)
            task = progress.add_task(f"downloading {dataset.file}", total=expected or None)
            received = 0
            while chunk := response.read(1 << 16):
                received += len(chunk)
                progress.update(task, completed=received)
                yield chunk
            if received < expected:
                raise TimeoutError(f"the connection ended after {received:,} of {expected:,} bytes")
    except urllib.error.HTTPError as problem:
        reason = f"the server answered {problem.code} {problem.reason}"
    except urllib.error.URLError as problem:
        reason = str(getattr(problem.reason, "strerror", None) or problem.reason)
    except (OSError, http.client.HTTPException) as problem:
        reason = str(problem) or type(problem).__name__
    else:
        return
    raise JobiError(f"cannot download {dataset.url}: {reason}; {_advice(dataset)}")


def _advice(dataset: DataSet) -> str:
    return (
        f"fetch {dataset.file} by other means and give it as --archive PATH, "
        f"or put it in a folder named by JOBI_TF_ARCHIVES"
    )
