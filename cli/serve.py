"""`jobi-tf serve`."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobi_tf.errors import JobiError, UsageError

from .command import Command
from .start import start_tensorflow
from .token import read_token

if TYPE_CHECKING:
    from jobi_tf.serving.settings import ServedModel, ServerSettings

KINDS = ("tf-serving", "compose", "k8s")
FILE = click.Path(path_type=Path)
PORT = click.IntRange(0, 65535)
COUNT = click.IntRange(min=1)
POSITIVE = click.FloatRange(min=0, min_open=True)
# Options whose names are not those of the settings.
_OPTIONS = {"token": "--token-file", "embedded": "--embedded or --tf-serving"}


@click.command(cls=Command)
@click.argument("folder", metavar="DIR", required=False, type=FILE)
@click.option("--name", help="What requests call the model  [default: the folder's name]")
@click.option("--label", "labels", multiple=True, metavar="LABEL=VERSION", help="Also serve a version, by a label.")
@click.option("--config", type=FILE, metavar="FILE", help="Serve the models of a models.config instead of DIR.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--rest-port", type=PORT, default=8501, show_default=True, help="Port of REST and the page; 0: any.")
@click.option("--grpc-port", type=PORT, default=8500, show_default=True, help="Port of gRPC; 0: any.")
@click.option("--no-rest", is_flag=True, help="No REST and no page.")
@click.option("--no-grpc", is_flag=True, help="No gRPC.")
@click.option("--max-body", type=COUNT, default=2**24, show_default=True, help="Bytes of a request.")
@click.option("--max-rows", type=COUNT, default=8192, show_default=True, help="Rows of a request.")
@click.option("--max-requests", type=COUNT, default=256, show_default=True, help="Requests at a time.")
@click.option("--timeout", type=POSITIVE, default=30.0, show_default=True, help="Seconds that a request may take.")
@click.option("--batch-rows", type=COUNT, default=256, show_default=True, help="Rows computed together.")
@click.option(
    "--batch-wait",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Seconds that a request waits for others to be computed with.",
)
@click.option("--poll", type=POSITIVE, default=1.0, show_default=True, help="Seconds between looks for versions.")
@click.option("--certificate", type=FILE, metavar="FILE", help="TLS certificate, with --key.")
@click.option("--key", type=FILE, metavar="FILE", help="Its private key.")
@click.option("--token-file", "token", type=FILE, metavar="FILE", help="Holds the token that requests must bring.")
@click.option(
    "--embedded/--tf-serving",
    "embedded",
    default=None,
    help="Choose the server  [default: TensorFlow Serving where it is installed]",
)
@click.option("--print", "kind", type=click.Choice(KINDS), help="Print files for TensorFlow Serving; serve nothing.")
@click.option("--write", "target", type=FILE, metavar="FOLDER", help="Write the files of --print into a folder.")
@click.pass_context
def serve(context: click.Context, folder: Path | None, kind: str | None, target: Path | None, **options: Any) -> None:
    """Serve exports by gRPC and REST, with a page to look at.

    DIR is what `jobi-tf export` wrote: a folder of versions, of which the newest is served, and replaced when a newer
    one is there. TensorFlow Serving is run where it is installed and can keep the options, else the server that comes
    with the extra jobi-tf[serving]. SIGTERM or Ctrl-C ends it when the requests in work are answered.
    """
    source = click.core.ParameterSource.COMMANDLINE
    given = {name for name in options if context.get_parameter_source(name) is source}
    _check(folder, kind, target, options, given)
    if kind is not None:
        assert folder is not None
        _print(kind, target, _model(folder, options), options, given)
        return
    settings = _settings(folder, options)
    if _by_tf_serving(settings, options["embedded"], given):
        from jobi_tf.serving import tf_serving

        tf_serving.run(settings, given, options["config"])
        return
    start_tensorflow()
    from jobi_tf.serving.server import serve as serve_embedded

    serve_embedded(settings, say=_say)


def _say(line: str) -> None:
    click.echo(line)


def _check(
    folder: Path | None, kind: str | None, target: Path | None, options: dict[str, Any], given: set[str]
) -> None:
    """Refuses options that have no meaning beside others."""
    if (folder is None) == (options["config"] is None):
        raise UsageError("expected DIR or --config, got " + ("both" if folder else "neither"))
    if options["config"] is not None and (own := given & {"name", "labels"}):
        raise UsageError(f"--config names its models: leave out --{min(own).removesuffix('s')}")
    for protocol in ("rest", "grpc"):
        if options[f"no_{protocol}"] and f"{protocol}_port" in given:
            raise UsageError(f"expected --no-{protocol} or --{protocol}-port, got both")
    if target is not None and kind is None:
        raise UsageError("--write is for the files of --print, which is missing")
    if kind is None:
        return
    if folder is None:
        raise UsageError("--print is for DIR, not for --config, which is such a file already")
    taken = {"name", "labels", "timeout", "batch_rows", "batch_wait"}
    taken |= set() if kind == "k8s" else {"rest_port", "grpc_port"}
    if others := sorted(given - taken):
        raise UsageError(f"{_option(others[0])} has no place in the files of --print {kind}")
    if 0 in (options["rest_port"], options["grpc_port"]):
        raise UsageError("expected ports to write into files, got 0")


def _option(setting: str) -> str:
    return _OPTIONS.get(setting, f"--{setting.replace('_', '-')}")


def _model(folder: Path, options: dict[str, Any]) -> "ServedModel":
    from jobi_tf.serving.render import exported_versions
    from jobi_tf.serving.settings import ServedModel

    exported_versions(folder)
    folder = folder.resolve()
    labels: dict[str, int] = {}
    for text in options["labels"]:
        label, _, version = text.partition("=")
        if not label or not version.isdecimal() or label in labels:
            raise UsageError(f"expected --label LABEL=VERSION, each label once, got {text!r}")
        labels[label] = int(version)
    return ServedModel(folder.name if options["name"] is None else options["name"], folder, labels=labels)


def _settings(folder: Path | None, options: dict[str, Any]) -> "ServerSettings":
    from jobi_tf.serving.config import read_models_config
    from jobi_tf.serving.settings import ServerSettings

    models = read_models_config(options["config"]) if folder is None else (_model(folder, options),)
    same = (
        "host",
        "max_body",
        "max_rows",
        "max_requests",
        "timeout",
        "batch_rows",
        "batch_wait",
        "poll",
        "certificate",
        "key",
    )
    return ServerSettings(
        models,
        rest_port=None if options["no_rest"] else options["rest_port"],
        grpc_port=None if options["no_grpc"] else options["grpc_port"],
        token=None if options["token"] is None else read_token(options["token"]),
        **{name: options[name] for name in same},
    )


def _by_tf_serving(settings: "ServerSettings", embedded: bool | None, given: set[str]) -> bool:
    """Chooses the server: TensorFlow Serving if it is there and can keep what was asked for."""
    from jobi_tf.serving.tf_serving import PROGRAM, lacking

    if embedded:
        return False
    reason = lacking(settings, given)
    if embedded is False:
        if reason is not None:
            raise UsageError(f"--tf-serving cannot keep {_option(reason[0])}: it {reason[1]}")
        if shutil.which(PROGRAM) is None:
            raise JobiError(
                f"expected {PROGRAM} on the PATH, found none; without --tf-serving the embedded server runs"
            )
    elif shutil.which(PROGRAM) is None:
        return False
    elif reason is not None:
        click.echo(f"The embedded server, for {_option(reason[0])}: {PROGRAM} {reason[1]}.", err=True)
        return False
    if settings.host == "127.0.0.1":
        click.echo(f"{PROGRAM} listens on all addresses of this machine.", err=True)
    return True


def _print(kind: str, target: Path | None, model: "ServedModel", options: dict[str, Any], given: set[str]) -> None:
    from jobi_tf.serving.render import Batching, exported_versions, render, stable_and_canary

    if not model.labels:
        model = replace(model, labels=stable_and_canary(exported_versions(model.folder)))
    chosen = {"batch_rows": "max_rows", "batch_wait": "wait"}
    batching = {field: options[name] for name, field in chosen.items() if name in given}
    settings = {name: options[name] for name in ("rest_port", "grpc_port", "timeout")}
    files = render(kind, model, Batching(**batching) if batching else None, **settings)
    if target is None:
        for name, text in files.items():
            if len(files) > 1:
                click.echo(f"# ---- file: {name}")
            click.echo(text, nl=not text.endswith("\n"))
        return
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (target / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise JobiError(f"cannot write into {target}: {error.strerror or error}") from None
    click.echo(f"written to {target}: {', '.join(files)}", err=True)
