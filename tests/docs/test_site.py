"""The site, the notebook and the links between README and site."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import jobi_tf

from .pages import ROOT

DOCS = ROOT / "docs"
SITE = "https://jobi-tf.github.io/jobi-tf/"
RAW = "https://raw.githubusercontent.com/jobi-tf/jobi-tf/main/"


def test_every_public_name_has_an_entry():
    text = "\n".join(path.read_text("utf-8") for path in (DOCS / "reference").glob("*.md"))
    entries = re.findall(r"^::: jobi_tf\.(\w+)$", text, re.MULTILINE)
    assert sorted(set(jobi_tf.__all__) - set(entries)) == []


def test_absolute_links_of_the_tutorial_lead_to_pages_and_pictures():
    path = ROOT / "examples" / "tutorial.py"
    text = path.read_text("utf-8")
    pages = re.findall(re.escape(SITE) + r"([\w/]*)", text)
    assert pages
    for page in pages:
        name = page.strip("/") or "index"
        assert (DOCS / f"{name}.md").exists() or (DOCS / name / "index.md").exists(), page
    for picture in re.findall(re.escape(RAW) + r"([\w/.-]*)", text):
        assert (ROOT / picture).exists(), picture


def test_the_notebook_is_that_of_the_source():
    import jupytext

    source = jupytext.read(ROOT / "examples" / "tutorial.py")
    notebook = jupytext.read(DOCS / "tutorial.ipynb")
    assert [x.source for x in notebook.cells] == [x.source for x in source.cells]
    assert all(x.outputs for x in notebook.cells if x.cell_type == "code"), "run `make notebook`"
    assert not [y for x in notebook.cells for y in x.get("outputs", ()) if y.output_type == "error"]


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    program = [sys.executable, ROOT / "examples" / "tutorial.py"]
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "joint" / "model.keras").exists()


@pytest.mark.slow
def test_the_tutorial_runs_in_an_empty_environment(tmp_path):
    """As its first lines say: install, then run; from PyPI, so it needs a network."""
    python = tmp_path / "new" / "bin" / "python"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    for command in (
        [sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, tmp_path / "new"],
        [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, f"{ROOT}[pandas]"],
        [python, ROOT / "examples" / "tutorial.py"],
    ):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


class Links(HTMLParser):
    """The addresses and the anchors of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_has_no_broken_link(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    pages = {path: Links(path) for path in tmp_path.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 30
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                assert not link.endswith((".js", ".css")), f"{path} loads {link} from another server"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors | {"__top"}):
                broken.append((path.relative_to(tmp_path).as_posix(), link))
    assert broken == []
