import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = SETTINGS["tool"]["setuptools"]
FOLDERS = {"jobi_tf": "jobi_tf", "cli": "jobi_tf/cli", "serving": "jobi_tf/serving"}


def packages() -> dict[str, Path]:
    """The packages on disk: folders with Python files, by their dotted name."""
    found = {}
    for folder, target in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            inside = path.parent.relative_to(ROOT / folder).as_posix()
            found[f"{target}/{inside}".removesuffix("/.").replace("/", ".")] = path.parent
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for path in (*FOLDERS, "pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, tree / path, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif (ROOT / path).exists():
            shutil.copy(ROOT / path, tree)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", out, tree]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_the_list_of_packages_is_that_on_disk():
    assert sorted(SETUPTOOLS["packages"]) == sorted(packages())
    assert all((folder / "__init__.py").exists() for folder in packages().values())


def test_the_wheel_has_one_top_level_name(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"jobi_tf"}


def test_the_description_has_absolute_links_to_files_of_the_repository(wheel):
    (metadata,) = (x for x in wheel.namelist() if x.endswith("METADATA"))
    targets = re.findall(r"\]\(([^)#]*)[^)]*\)", wheel.read(metadata).decode())
    assert all(x.startswith("https://") for x in targets)
    repository = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Source"]
    files = [x.split("/main/")[1] for x in targets if x.startswith(repository) and "/main/" in x]
    assert files
    assert all((ROOT / x).is_file() for x in files)


def test_the_wheel_holds_every_file(wheel):
    expected = set()
    for folder, target in FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                expected.add(f"{target}/{path.relative_to(ROOT / folder).as_posix()}")
    assert expected <= set(wheel.namelist())
    assert {"jobi_tf/py.typed", "jobi_tf/datasets/world/train.tsv"} <= expected


def test_the_version_is_that_of_pyproject():
    version = subprocess.run(
        [sys.executable, "-c", "import jobi_tf; print(jobi_tf.__version__)"], capture_output=True, text=True, check=True
    )
    assert version.stdout.strip() == SETTINGS["project"]["version"]


def test_importing_loads_nothing_heavy():
    code = (
        "import sys, jobi_tf; names = set(dir(jobi_tf)); "
        "heavy = {'tensorflow', 'keras', 'numpy', 'pydantic', 'yaml'} & set(sys.modules); "
        "assert not heavy, heavy; missing = set(jobi_tf.__all__) - names; assert not missing, missing"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there():
    import jobi_tf

    assert set(jobi_tf.__all__) >= {"JoBi", "LazyAdam", "evaluate", "load_graph", "load_run", "resume", "train"}
    for name in jobi_tf.__all__:
        assert getattr(jobi_tf, name).__name__ == name
    with pytest.raises(AttributeError, match=r"^No jobi_tf attribute Jobi$"):
        _ = jobi_tf.Jobi
