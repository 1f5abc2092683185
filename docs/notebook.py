"""Runs examples/tutorial.py and writes it with its outputs as docs/tutorial.ipynb; called by `make notebook`."""

import os
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Runs the cells in an empty folder."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    notebook = jupytext.read(ROOT / "examples" / "tutorial.py")
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, resources={"metadata": {"path": folder}}, record_timing=False).execute()
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    nbformat.write(notebook, ROOT / "docs" / "tutorial.ipynb")


if __name__ == "__main__":
    main()
