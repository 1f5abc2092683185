from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from jobi_tf.cli.main import cli


@pytest.fixture(scope="session")
def call() -> Callable[..., Result]:
    """Calls `jobi-tf` in this process."""

    def call(*arguments: object, status: int = 0) -> Result:
        result = CliRunner().invoke(cli, [str(x) for x in arguments], prog_name="jobi-tf")
        assert result.exit_code == status, result.output
        return result

    return call
