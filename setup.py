"""Makes the links of README.md absolute for the description on PyPI; everything else is in pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Source"]


def absolute(link: re.Match) -> str:
    """Returns a link or picture whose target is not relative to the repository."""
    picture, text, target = link.groups()
    return f"{picture}[{text}]({REPOSITORY}/{'raw' if picture else 'blob'}/main/{target})"


readme = (ROOT / "README.md").read_text("utf-8")
readme = re.sub(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)]+)\)", absolute, readme)
setup(long_description=readme, long_description_content_type="text/markdown")
