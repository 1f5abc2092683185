"""Imports only go down, as docs and CONTRIBUTING promise."""

import ast
from pathlib import Path

import pytest

import jobi_tf

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "jobi_tf": ROOT / "jobi_tf",
    "jobi_tf.benchmarks": ROOT / "benchmarks",
    "jobi_tf.cli": ROOT / "cli",
    "jobi_tf.serving": ROOT / "serving",
}

# What each room may import from the package, besides itself.
BELOW = {
    "jobi_tf.compiled": set(),
    "jobi_tf.errors": set(),
    "jobi_tf.files": set(),
    "jobi_tf.data": {"errors", "files"},
    "jobi_tf.datasets": {"errors", "files", "data"},
    "jobi_tf.losses": {"errors", "compiled"},
    "jobi_tf.metrics": {"errors"},
    "jobi_tf.optimizers": {"errors"},
    "jobi_tf.models": {"errors", "files", "data", "losses", "metrics", "optimizers", "compiled"},
    "jobi_tf.serving": {"errors", "data"},
}
BELOW["jobi_tf.evaluation"] = {*BELOW["jobi_tf.models"], "models"}
BELOW["jobi_tf.export"] = {*BELOW["jobi_tf.evaluation"], "evaluation"}
BELOW["jobi_tf.training"] = {*BELOW["jobi_tf.evaluation"], "evaluation", "datasets"}
BELOW["jobi_tf.jobs"] = {*BELOW["jobi_tf.training"], "training"}
BELOW["jobi_tf.tuning"] = BELOW["jobi_tf.reproduce"] = {*BELOW["jobi_tf.jobs"], "jobs"}
BELOW["jobi_tf.report"] = BELOW["jobi_tf.jobs"]
BELOW["jobi_tf.benchmarks"] = {*BELOW["jobi_tf.tuning"], "tuning", "reproduce", "report", "export", "serving"}
BELOW["jobi_tf.cli"] = {*BELOW["jobi_tf.benchmarks"], "benchmarks"}

HEAVY = {"tensorflow", "keras", "numpy", "tensorboard", "tensorflow_datasets", "grpc"}
LONGEST = 350


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def room(module: str) -> str:
    return ".".join(module.split(".")[:2])


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


def test_every_room_has_its_place():
    assert {room(module) for module in MODULES} - {"jobi_tf"} <= BELOW.keys()
    assert "jobi_tf.models.jobi" in MODULES


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"jobi_tf"}))
def test_imports_go_down(module):
    for name in imports(MODULES[module], module):
        if name.removeprefix("jobi_tf.") in jobi_tf.__all__:  # from jobi_tf import JoBi
            name = getattr(jobi_tf, name.removeprefix("jobi_tf.")).__module__
        if name.startswith("jobi_tf.") and room(name) != room(module):
            assert name.split(".")[1] in BELOW[room(module)], f"{module} must not import {name}"


@pytest.mark.parametrize("module", [m for m in sorted(MODULES) if room(m) in ("jobi_tf.data", "jobi_tf.datasets")])
def test_data_knows_no_keras(module):
    assert not {name for name in imports(MODULES[module], module) if name.split(".")[0] == "keras" or ".keras" in name}
    assert "tf.keras" not in MODULES[module].read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [m for m in sorted(MODULES) if room(m) == "jobi_tf.cli"])
def test_commands_import_nothing_heavy_before_they_run(module):
    names = imports(MODULES[module], module, only_at_import=True)
    assert not {name for name in names if name.split(".")[0] in HEAVY}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_files_fit_in_a_head(module):
    assert len(MODULES[module].read_text(encoding="utf-8").splitlines()) <= LONGEST
