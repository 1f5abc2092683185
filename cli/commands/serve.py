"""`jobi-tf serve`."""

import os
from pathlib import Path
from typing import Any

import click
import cloup

from jobi_tf.console import warn
from jobi_tf.errors import needs

from ..options import COUNT, FILE, FOLDER, PORT, POSITIVE, Command, token_option
from ..start import start_tensorflow


@cloup.command(cls=Command)
@cloup.argument("folder", metavar="DIR", type=FOLDER)
@cloup.option("--name", metavar="NAME", help="Name of the model in requests  [default: name of the folder]")
@cloup.option("--host", default="127.0.0.1", help="Address to listen on.")
@cloup.option("--rest-port", type=PORT, default=8501, help="Port of REST and the page; 0: any.")
@cloup.option("--grpc-port", type=PORT, default=8500, help="Port of gRPC; 0: any.")
@cloup.option("--max-body", type=COUNT, default=2**24, help="Largest size of a request, in bytes.")
@cloup.option("--max-rows", type=COUNT, default=8192, help="Largest number of rows of a request.")
@cloup.option("--max-requests", type=COUNT, default=256, help="Largest number of concurrent requests.")
@cloup.option("--timeout", type=POSITIVE, default=30.0, help="Seconds for a request to arrive, and to compute it.")
@cloup.option("--certificate", type=FILE, help="TLS certificate, with --key.")
@cloup.option("--key", type=FILE, help="Private key of the certificate.")
@token_option
def serve(folder: Path, name: str | None, **options: Any) -> None:
    """Serve an exported model over REST and gRPC, with a page to try it.

    DIR is a folder of versions, as written by `jobi-tf export`. The newest version is served, and replaced when a newer
    one appears. SIGTERM or Ctrl-C ends the server after the requests in flight.
    """
    from jobi_tf.serving.settings import ServerSettings

    settings = ServerSettings(folder, name or "", **options)
    if settings.token is None and not (settings.host in ("localhost", "::1") or settings.host.startswith("127.")):
        warn(f"whoever reaches {settings.host} can send requests: --token-file restricts them")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else it reports a port in use as well
    start_tensorflow(keras=False)
    with needs("serving needs gRPC, Starlette, uvicorn and others", "serving"):
        from jobi_tf.serving.server import serve
    serve(settings, click.echo)
