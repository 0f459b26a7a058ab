"""The layers of the package, held by walking its imports."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pathgrad._api

SOURCE = Path(pathgrad.__file__).parent

# A module may import from its own layer, and from those that `MAY_IMPORT` gives it.
LAYERS = (
    {"_errors", "_outcome", "_verdict", "devices", "_draw", "_tree"},
    {"_bases", "_target", "_fields", "_divergence"},
    {"_integrators"},
    {"_adjoints", "_transport", "_transforms", "_flow"},
    {"_estimators", "_objectives", "_check", "_evaluate", "metrics"},
    {"_train"},
    {"experiments", "_bench", "_plots", "_report"},
    {"_cli", "__main__"},
)
MAY_IMPORT = ((), (0,), (0,), (0, 1, 2), (0, 1, 3), (0, 1, 3, 4), (0, 5), (0, 5, 6))
EVERY_LAYER = {"_api", "__init__"}  # the public door
FILES = sorted(SOURCE.rglob("*.py"))


def part(path):
    """The first component of a module below the package: `_flow`, `_train`, ..."""
    inside = path.relative_to(SOURCE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def layer(name):
    return next(i for i, names in enumerate(LAYERS) if name in names)


def imports(path):
    """Yield the dotted names that a file imports, relative ones made absolute."""
    package = ["pathgrad", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            stem = package[: len(package) - node.level + 1] if node.level else []
            stem = [*stem, *(node.module.split(".") if node.module else [])]
            yield from (".".join([*stem, alias.name]) for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    mine = part(path)
    if mine in EVERY_LAYER:
        return
    for name in imports(path):
        words = name.split(".")
        if words[0] != "pathgrad":
            assert words[0] != "diffrax" or path.name == "adaptive.py", (
                "only Adaptive calls Diffrax"
            )
            continue
        if len(words) == 1 or words[1] not in set().union(*LAYERS):
            # The public door: for those who build on the library.
            assert layer(mine) >= layer("experiments"), f"{path.name} uses the public door"
            continue
        allowed = (layer(mine), *MAY_IMPORT[layer(mine)])
        assert layer(words[1]) in allowed, f"{path.name} imports {name}"
        if mine == "experiments":
            # What is wrong has words of its own; they need no JAX, which the public door does.
            allowed = ("experiments", "_errors", "_verdict")
            assert words[1] in allowed, f"{path.name} imports {name}, not public"
        if mine == "_bench":
            assert words[1] in ("_bench", "experiments", "_errors"), f"{path.name} imports {name}"
        if mine == "_plots":  # of numbers alone; a report reads run directories
            numbers = name.startswith("pathgrad._train.row.")
            assert numbers or words[1] in ("_plots", "_errors"), f"{path.name} imports {name}"
    if mine == "metrics":
        assert not [n for n in imports(path) if n.startswith("pathgrad")]


def test_pictures_and_pages_leave_options_to_the_command_line():
    """They mark the name of an argument by `named`; style sheets have dashes of their own."""
    for path in FILES:
        if part(path) not in ("_plots", "_report") or path.name == "document.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.search(r"--[a-z]", node.value), f"{path}:{node.lineno}"


def test_public_names_are_documented():
    # (`jaxtyping` is put there by the checks that tests run with.)
    public = [n for n in vars(pathgrad._api) if not n.startswith("_") and n != "jaxtyping"]
    assert len(public) > 40
    undocumented = [n for n in public if not (getattr(pathgrad._api, n).__doc__ or "").strip()]
    assert undocumented == []
    assert set(dir(pathgrad)) >= set(public)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = pathgrad.nonsense


def test_importing_the_package_does_not_import_jax():
    code = "import sys, pathgrad; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_files_and_functions_fit_their_budgets():
    for path in FILES:
        text = path.read_text()
        assert text.count("\n") <= 350, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 60, f"{path}: {node.name}"
