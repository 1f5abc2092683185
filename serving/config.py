"""Reads the settings that TensorFlow Serving takes as `--model_config_file`."""

import sys
from pathlib import Path
from typing import Any

from jobi_tf.errors import DataError, MissingExtraError, UsageError

from .settings import ServedModel


def read_models_config(path: Path) -> tuple[ServedModel, ...]:
    """Reads a `ModelServerConfig` in text form.

    Raises:
        DataError: the file cannot be read, or says what cannot be served; the message names the file.
        MissingExtraError: the library that knows the form is not installed.
    """
    try:
        from google.protobuf import text_format
        from tensorflow_serving.config import model_server_config_pb2
    except ImportError as error:
        raise MissingExtraError(
            f"reading {path} needs tensorflow-serving-api: pip install 'jobi-tf[serving]'"
        ) from error
    try:
        config = text_format.Parse(path.read_bytes(), model_server_config_pb2.ModelServerConfig())
    except OSError as error:
        raise DataError(f"expected a file of models at {path}: {error.strerror}") from None
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise DataError(f"expected a ModelServerConfig in text form in {path}: {error}") from None
    if not config.model_config_list.config:
        raise DataError(f"expected a model_config_list with a config for each model in {path}, found none")
    try:
        models = tuple(_model(one) for one in config.model_config_list.config)
        names = [model.name for model in models]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"model {twice!r} is there twice")
    except UsageError as error:
        raise DataError(f"{path}: {error}") from None
    return models


def _model(config: Any) -> ServedModel:
    name, labels = config.name, dict(config.version_labels)
    if config.model_platform not in ("", "tensorflow"):
        raise UsageError(f"expected model_platform 'tensorflow' for {name!r}, got {config.model_platform!r}")
    if not config.base_path.startswith("/"):
        raise UsageError(f"expected the whole path of a folder as base_path of {name!r}, got {config.base_path!r}")
    latest, versions = _policy(name, config.model_version_policy)
    if versions and (unserved := sorted(set(labels.values()) - set(versions))):
        raise UsageError(f"a label of {name!r} is for version {unserved[0]}, which is not among those to be served")
    return ServedModel(name, Path(config.base_path), latest, versions, labels)


def _policy(name: str, policy: Any) -> tuple[int | None, tuple[int, ...]]:
    """Returns how many of the newest versions are served, or which."""
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return sys.maxsize, ()
    if choice != "specific":
        return max(1, policy.latest.num_versions), ()
    if not policy.specific.versions:
        raise UsageError(f"expected versions in the policy 'specific' of {name!r}, got none")
    return None, tuple(sorted(set(policy.specific.versions)))
