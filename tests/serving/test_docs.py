"""What docs/tensorflow-serving.md offers to copy."""

import textwrap
from pathlib import Path

from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

PAGE = Path(__file__).parents[2] / "docs" / "tensorflow-serving.md"


def test_models_config():
    text = PAGE.read_text(encoding="utf-8")
    block = text[text.index("    model_config_list {") :].split("\n\n")[0]
    config = text_format.Parse(textwrap.dedent(block), ModelServerConfig()).model_config_list.config[0]
    assert (config.name, config.base_path) == ("world", "/models/world")
    assert set(config.version_labels.values()) <= set(config.model_version_policy.specific.versions)
