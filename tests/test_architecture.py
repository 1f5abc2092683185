"""Imports only go down, as CONTRIBUTING describes."""

import ast
from pathlib import Path

import pytest

import jobi_tf

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"jobi_tf": ROOT / "jobi_tf", "jobi_tf.cli": ROOT / "cli", "jobi_tf.serving": ROOT / "serving"}

# What each room may import from the package, besides itself.
BASE = {"compiled", "console", "errors", "files", "serialization", "tables", "workers"}
BELOW: dict[str, set[str]] = {
    "compiled": set(),
    "console": set(),
    "errors": set(),
    "files": {"errors"},
    "serialization": set(),
    "tables": {"errors"},
    "workers": set(),
    "launch": {"errors"},
    "data": {"errors", "files", "tables"},
    "datasets": {"console", "errors", "files", "tables", "data"},
    "losses": {"errors", "compiled", "serialization"},
    "optimizers": {"errors", "compiled", "workers"},
    "models": {*BASE, "data", "losses", "optimizers"},
    "serving": {"errors", "data"},
}
BELOW["evaluation"] = {*BELOW["models"], "models"}
BELOW["export"] = {*BELOW["evaluation"], "evaluation"}
BELOW["training"] = {*BELOW["evaluation"], "evaluation", "datasets", "launch"}
BELOW["jobs"] = {*BELOW["training"], "training"}
BELOW["report"] = {*BELOW["jobs"], "jobs", "export"}
BELOW["tuning"] = {*BELOW["jobs"], "jobs"}
BELOW["reproduce"] = {*BELOW["report"], "report"}
BELOW["cli"] = {*BELOW["reproduce"], "reproduce", "tuning", "serving"}
BELOW["__main__"] = {"cli"}

HEAVY = {"tensorflow", "keras", "numpy", "tensorboard", "tensorflow_datasets", "grpc"}


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def room(module: str) -> str:
    return module.split(".")[1]


def imports(path: Path, module: str, only_at_import: bool = False) -> set[str]:
    """Full names of all that a file imports: of a `from` import, with the names taken."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found: set[str] = set()
    for node in at_import(tree) if only_at_import else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*origin, *(node.module or "").split(".")]).strip(".")
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def at_import(node: ast.AST):
    """All statements that run when a module is imported: not those in functions, nor for type checkers only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from at_import(child)


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"jobi_tf"}))
def test_imports_go_down(module):
    for name in imports(MODULES[module], module):
        if name.removeprefix("jobi_tf.") in jobi_tf.__all__:  # from jobi_tf import JoBi
            name = getattr(jobi_tf, name.removeprefix("jobi_tf.")).__module__
        if name.startswith("jobi_tf.") and room(name) != room(module):
            assert room(name) in BELOW[room(module)], f"{module} must not import {name}"


@pytest.mark.parametrize("module", [m for m in sorted(MODULES) if m.startswith(("jobi_tf.data.", "jobi_tf.datasets."))])
def test_data_knows_no_keras(module):
    assert not {name for name in imports(MODULES[module], module) if "keras" in name.split(".")}
    assert "tf.keras" not in MODULES[module].read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [m for m in sorted(MODULES) if m.startswith("jobi_tf.cli.")])
def test_commands_import_nothing_heavy_before_they_run(module):
    names = imports(MODULES[module], module, only_at_import=True)
    assert not {name for name in names if name.split(".")[0] in HEAVY}


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").rglob("*.py")), ids=lambda path: path.stem)
def test_benchmarks_use_public_names_only(path):
    names = {name for name in imports(path, "benchmarks.module") if name.split(".")[0] == "jobi_tf"}
    assert names <= {"jobi_tf", "jobi_tf.export.export_run"}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    used = {x.attr for x in ast.walk(tree) if isinstance(x, ast.Attribute) and ast.unparse(x.value) == "jobi_tf"}
    assert used <= set(jobi_tf.__all__)
