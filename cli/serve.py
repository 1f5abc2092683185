"""`jobi-tf serve`."""

from pathlib import Path
from typing import Any

import click

from jobi_tf.errors import MissingExtraError

from .command import Command
from .start import start_tensorflow
from .token import read_token

FILE = click.Path(path_type=Path)
PORT = click.IntRange(0, 65535)
COUNT = click.IntRange(min=1)


@click.command(cls=Command)
@click.argument("folder", metavar="DIR", type=FILE)
@click.option("--name", default="", help="Name of the model in requests  [default: name of the folder]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--rest-port", type=PORT, default=8501, show_default=True, help="Port of REST and the page; 0: any.")
@click.option("--grpc-port", type=PORT, default=8500, show_default=True, help="Port of gRPC; 0: any.")
@click.option("--max-body", type=COUNT, default=2**24, show_default=True, help="Most bytes of a request.")
@click.option("--max-rows", type=COUNT, default=8192, show_default=True, help="Most rows of a request.")
@click.option("--max-requests", type=COUNT, default=256, show_default=True, help="Most requests at a time.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds for a request to arrive, and to be computed.",
)
@click.option("--certificate", type=FILE, metavar="FILE", help="TLS certificate, with --key.")
@click.option("--key", type=FILE, metavar="FILE", help="Private key of the certificate.")
@click.option("--token-file", type=FILE, metavar="FILE", help="File with the token that requests must carry.")
def serve(folder: Path, token_file: Path | None, **options: Any) -> None:
    """Serve an exported model by REST and gRPC, with a page to try it.

    DIR is a folder of versions, as `jobi-tf export` writes it. The newest version is served, and replaced as soon as
    there is a newer one. SIGTERM or Ctrl-C ends the server when the requests in flight are answered.
    """
    from jobi_tf.serving.settings import ServerSettings

    settings = ServerSettings(folder, token=None if token_file is None else read_token(token_file), **options)
    start_tensorflow()
    try:
        from jobi_tf.serving.server import serve
    except ImportError as error:
        raise MissingExtraError(f"serving needs {error.name}: pip install 'jobi-tf[serving]'") from error
    serve(settings, click.echo)
