"""The layers of the package, held by walking its imports."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pathgrad

from .run_helpers import make_evaluation, make_run, rows_of

SOURCE = Path(pathgrad.__file__).parent

# A module may import from its own layer, and from those that `MAY_IMPORT` gives it.
LAYERS = (
    {"_words", "devices"},
    {"_ingredients", "_named"},
    {"_solve"},
    {"_flow"},
    {"_gradients", "_numbers", "metrics"},
    {"_train", "_modes"},
    {"_default"},
    {"_runs"},
    {"_show"},
    {"experiments", "targets", "_bench", "_data"},
    {"_cli", "__main__"},
)
MAY_IMPORT = (
    (),
    (0,),
    (0,),
    (0, 1, 2),
    (0, 1, 2, 3),
    (0, 1, 3, 4),
    (0, 1, 2, 3, 4, 5),
    (0, 4, 5),
    (0, 4, 5, 7),
    (0, 4, 6, 7, 8),  # and what is public: experiments are the proof that this is enough
    (0, 4, 5, 7, 8, 9),
)
EVERY_LAYER = {"__init__"}  # the public door
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
        assert words[0] != "benchmarks", "which is not shipped"
        if words[0] != "pathgrad":
            assert words[0] != "diffrax" or path.name == "adaptive.py", "only Adaptive calls Diffrax"
            continue
        if len(words) == 1 or words[1] not in set().union(*LAYERS):
            # The public door: for those who build on the library.
            assert layer(mine) >= layer("experiments"), f"{path.name} uses the public door"
            continue
        allowed = (layer(mine), *MAY_IMPORT[layer(mine)])
        assert layer(words[1]) in allowed, f"{path.name} imports {name}"
        if mine == "_bench":
            allowed = ("_bench", "experiments", "_words", "_runs")
            assert words[1] in allowed, f"{path.name} imports {name}"
    if mine == "metrics":
        assert not [n for n in imports(path) if n.startswith("pathgrad")]


def test_pictures_and_pages_leave_options_to_the_command_line():
    """They mark the name of an argument by `named`; style sheets have dashes of their own."""
    for path in FILES:
        if part(path) != "_show" or path.name in ("document.py", "svg.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.search(r"--[a-z]", node.value), f"{path}:{node.lineno}"


def public_names() -> list[str]:
    """All that the public door opens. The stub, which checkers read, has no list of it."""
    return vars(pathgrad)["__all__"]


def test_public_names_are_documented():
    public = public_names()
    assert len(public) > 40
    undocumented = [n for n in public if not (getattr(pathgrad, n).__doc__ or "").strip()]
    assert undocumented == []
    assert set(dir(pathgrad)) >= set(public)
    with pytest.raises(AttributeError, match="attribute nonsense"):
        _ = pathgrad.nonsense  # pyright: ignore[reportAttributeAccessIssue]


def without_jax(code):
    code = f"import sys, pathgrad as pg; {code}; sys.exit('jax' in sys.modules)"
    return subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_reading_and_drawing_runs_does_without_jax(tmp_path):
    """Which takes over a second to import: so `--help`, `compare`, `plot` and `report` answer quickly."""
    made = make_run(tmp_path / "run", rows_of([0.5, 0.9]))
    make_evaluation(made, step=20)
    assert without_jax("None")
    assert without_jax("[pg.find_experiment(n).defaults() for n in ('toy', 'fit', 'density', 'phi4', 'vae')]")
    read = f"run = pg.Run.open({str(made.path)!r}); groups = pg.group_runs([run]); pg.compare_groups(groups)"
    assert without_jax(f"{read}; run.rows, run.evaluation, run.arrays, run.status, run.numbers")
    drawn = "from pathgrad._show import figure, page; figure.training_figure(groups)"
    assert without_jax(f"{read}; {drawn}; page.make_page(groups)")


def test_imports_stand_at_the_top():
    """But for what an experiment builds and draws, and few others: each is heavy, and needed by some only."""
    late = [
        f"{path.relative_to(SOURCE)}: {node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(n, ast.Import | ast.ImportFrom) for n in ast.walk(node))
    ]
    allowed = r"experiments/\w+/experiment.py: (build|panels|begin|decided)"
    others = [n for n in late if not re.fullmatch(allowed, n)]
    assert sorted(others) == [
        "_runs/machine.py: check_devices",
        "_runs/run.py: _work",
        "_runs/rundir.py: checkpoints",
        "_train/progress.py: _bar",
    ]


def test_files_and_functions_fit_their_budgets():
    for path in FILES:
        text = path.read_text()
        assert text.count("\n") <= 350, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 60, f"{path}: {node.name}"
