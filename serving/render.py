"""Files for TensorFlow Serving: its own settings, Docker, Compose, Kubernetes and Prometheus."""

import csv
import io
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from urllib.parse import quote

from jobi_tf.errors import DataError, UsageError

from .client import ROWS
from .settings import MIB, ServedModel

IMAGE = "tensorflow/serving:2.21.0"
KINDS = ("tf-serving", "compose", "k8s")
IN_CONTAINER = "/models"
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Batching:
    """Computing requests of several clients together.

    Args:
        max_rows: rows at a time, and of a request, at most; not fewer than the client of this library sends.
        wait: seconds that a request waits at most for others.
    """

    max_rows: int = ROWS
    wait: float = 0.001

    def __post_init__(self) -> None:
        if self.max_rows < ROWS:
            raise UsageError(
                f"expected at least {ROWS} rows at a time, as TensorFlow Serving turns away requests of more and the "
                f"client sends so many, got {self.max_rows}"
            )


def exported_versions(folder: Path) -> list[int]:
    """Returns the versions in a folder of exports, oldest first.

    Raises:
        DataError: there is none.
    """
    if not folder.is_dir():
        raise DataError(f"expected a folder of exported versions at {folder}: {_make('no such folder')}")
    if (folder / "saved_model.pb").is_file():
        raise DataError(f"expected a folder of exported versions, got one version: give its parent, {folder.parent}")
    found = [
        path
        for path in folder.iterdir()
        if path.name.isascii() and path.name.isdigit() and (path / "saved_model.pb").is_file()
    ]
    if not found:
        raise DataError(f"expected folders of exported versions (1, 2, …) in {folder}: {_make('found none')}")
    return sorted(int(path.name) for path in found)


def _make(found: str) -> str:
    return f"{found}; `jobi-tf export RUN DIR` makes one"


def stable_and_canary(versions: Sequence[int]) -> dict[str, int]:
    """Labels the newest version `canary`, and the one before it, if there is one, `stable`."""
    return {"stable": versions[-2:][0], "canary": versions[-1]}


def pinned(model: ServedModel) -> ServedModel:
    """Returns a model as TensorFlow Serving can serve it: with labels, its versions are those there are now.

    Raises:
        DataError: the folder holds no exported version, or not one that is named.
    """
    there = exported_versions(model.folder)
    versions = {*model.versions, *model.labels.values(), *(there[-model.latest :] if model.latest else ())}
    if missing := sorted(versions - {*there}):
        raise DataError(f"expected version {missing[0]} in {model.folder}, found {', '.join(map(str, there))}")
    if not model.labels:
        return model
    return ServedModel(model.name, model.folder, None, tuple(sorted(versions)), model.labels)


def models_config(models: Sequence[ServedModel]) -> str:
    """Returns a `ModelServerConfig` in text form."""
    return "model_config_list {\n" + "".join(map(_model_config, models)) + "}\n"


def _model_config(model: ServedModel) -> str:
    if model.latest is None:
        policy = "specific { " + "".join(f"versions: {version} " for version in model.versions) + "}"
    else:
        policy = f"latest {{ num_versions: {model.latest} }}"
    labels = "".join(
        f"    version_labels {{ key: {_quoted(label)} value: {version} }}\n" for label, version in model.labels.items()
    )
    return (
        "  config {\n"
        f"    name: {_quoted(model.name)}\n"
        f"    base_path: {_quoted(str(model.folder))}\n"
        '    model_platform: "tensorflow"\n'
        f"    model_version_policy {{ {policy} }}\n"
        f"{labels}"
        "  }\n"
    )


def batching_config(batching: Batching) -> str:
    """Returns `BatchingParameters` in text form."""
    wait = round(batching.wait * 1e6)
    return _fill("batching.conf", max_rows=batching.max_rows, wait_micros=wait, threads=os.cpu_count() or 1)


def monitoring_config() -> str:
    """Returns a `MonitoringConfig` in text form."""
    return _fill("prometheus.config")


def render(
    kind: str,
    model: ServedModel,
    batching: Batching | None = None,
    grpc_port: int = 8500,
    rest_port: int = 8501,
    timeout: float = 30.0,
) -> dict[str, str]:
    """Renders files for one model.

    Args:
        kind: `tf-serving` for a server that is installed, and a docker command; `compose`; `k8s`.
        model: what is served: its name, folder, versions and labels.
        batching: how requests are put together; None computes each by itself.
        grpc_port: port of this machine for gRPC; not for `k8s`, where the service has 8500.
        rest_port: likewise for REST, 8501.
        timeout: seconds that a request by REST may take.

    Returns:
        The content of each file by its name.

    Raises:
        UsageError: there is no such kind.
        DataError: the folder holds no exported version, or not one that is named.
    """
    if kind not in KINDS:
        raise UsageError(f"expected {' or '.join(KINDS)}, got {kind!r}")
    folder = model.folder.resolve()
    model = pinned(replace(model, folder=folder))
    base_path = str(folder) if kind == "tf-serving" else f"{IN_CONTAINER}/{model.name}"
    config = models_config([replace(model, folder=Path(base_path))])
    settings = {
        "models.config": config,
        "batching.conf": batching_config(batching or Batching()),
        "prometheus.config": monitoring_config(),
    }
    place = "" if kind == "tf-serving" else "/config/"
    given = flags(f"{place}models.config", place, batching is not None, timeout)
    names = _names(model.name, grpc_port, rest_port)
    if kind == "k8s":
        return {"kubernetes.yaml": _kubernetes(model, base_path, settings, given, names)}
    scraped = "serving:8501" if kind == "compose" else f"127.0.0.1:{rest_port}"
    settings["prometheus.yml"] = _fill("prometheus.yml", label=names["label"], target=_quoted(scraped))
    if kind == "compose":
        paths = {"folder": _quoted(str(folder)).replace("$", "$$"), "base_path": _quoted(base_path).replace("$", "$$")}
        arguments = _listed(given, 6).replace("$", "$$")
        return {"compose.yaml": _fill("compose.yaml", **names, **paths, arguments=arguments), **settings}
    command = ["tensorflow_model_server", f"--port={grpc_port}", f"--rest_api_port={rest_port}", *given]
    settings["models.config"] = f"# {shlex.join(command)}\n{config}"
    mount = shlex.quote(_mount(folder, f"{IN_CONTAINER}/{model.name}"))
    return {**settings, "docker.sh": _fill("docker.sh", **{**names, "name": shlex.quote(model.name)}, mount=mount)}


def flags(config: str, folder: str, batching: bool, timeout: float) -> list[str]:
    """Returns the arguments of TensorFlow Serving but for its ports.

    Args:
        config: the file of models.
        folder: where the other files are, with a / at the end; empty for the working directory.
        batching: whether requests are put together.
        timeout: seconds that a request by REST may take.
    """
    batched = ["--enable_batching=true", f"--batching_parameters_file={folder}batching.conf"] if batching else []
    return [
        f"--model_config_file={config}",
        "--model_config_file_poll_wait_seconds=60",
        "--allow_version_labels_for_unavailable_models=true",  # labels are read before the versions are loaded
        "--enable_model_warmup=true",
        f"--monitoring_config_file={folder}prometheus.config",
        f"--rest_api_timeout_in_ms={round(timeout * 1000)}",
        *batched,
    ]


def _names(name: str, grpc_port: int, rest_port: int) -> dict[str, str]:
    path = f"/v1/models/{quote(name, safe='')}"
    return {
        "name": name,
        "label": re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "model",
        "image": IMAGE,
        "grpc_port": str(grpc_port),
        "rest_port": str(rest_port),
        "status_path": path,
        "metadata_path": f"{path}/metadata",
    }


def _kubernetes(
    model: ServedModel,
    base_path: str,
    settings: Mapping[str, str],
    arguments: Sequence[str],
    names: Mapping[str, str],
) -> str:
    versions = model.versions or exported_versions(model.folder)[-(model.latest or 1) :]
    files_of_all = (path for one in versions for path in (model.folder / str(one)).rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in files_of_all)
    files = "\n".join(
        f"  {name}: |\n" + "".join(f"    {line}\n" for line in text.splitlines()).rstrip("\n")
        for name, text in settings.items()
    )
    return _fill(
        "kubernetes.yaml",
        **names,
        versions=" and ".join(map(str, versions)),
        storage=64 + 4 * size // MIB,
        memory=512 + 2 * size // MIB,
        files=files,
        arguments=_listed(arguments, 12),
        base_path=_quoted(base_path),
    )


def _fill(template: str, **values: object) -> str:
    return Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)


def _quoted(text: str) -> str:
    """A string in double quotes, as YAML, JSON and protobuf's text form all read it."""
    return json.dumps(text, ensure_ascii=False)


def _listed(items: Sequence[str], indent: int) -> str:
    return "\n".join(f"{' ' * indent}- {_quoted(item)}" for item in items)


def _mount(source: Path, target: str) -> str:
    """The value of docker's `--mount`, a line of CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(["type=bind", f"source={source}", f"target={target}", "readonly"])
    return line.getvalue()
