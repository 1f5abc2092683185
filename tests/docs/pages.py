"""The commands and examples in the pages of the documentation."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if "results" not in path.parts)]
BLOCK = re.compile(r"(?:^<!-- (slow|not run)(?::[^>]*)? -->\n)?^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Command(NamedTuple):
    """A command of a page, and when it is run: "", "slow" or "not run"."""

    page: str
    text: str
    when: str


def commands(page: Path) -> list[Command]:
    """The commands after `$` in the console blocks of a page; a line that ends with a backslash is continued."""
    found = []
    for when, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        lines = re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)
        found += [Command(page.relative_to(ROOT).as_posix(), line.replace("\\\n", " "), when) for line in lines]
    return found


def all_commands() -> list[Command]:
    """The commands of all pages."""
    return [command for page in PAGES for command in commands(page)]
