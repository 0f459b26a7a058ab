"""Values before words: nothing parses our prose, and the library names its own arguments, not options."""

import ast
import re
from pathlib import Path

import jax.random as jr
import pytest

import pathgrad as pg
from pathgrad._bench.options import MeasureOptions
from pathgrad._cli.main import main
from pathgrad._runs.rundir import RunDir
from pathgrad._words.errors import ArgumentError, UserError, as_options, in_python, named
from pathgrad._words.outcome import Outcome, Stop
from pathgrad.experiments.density.experiment import DensityOptions
from pathgrad.experiments.density.problem import build as build_density
from pathgrad.experiments.phi4.field import LatticeField
from pathgrad.experiments.phi4.ladder import ladder
from pathgrad.experiments.phi4.options import LatticeFlowOptions, Phi4Options
from pathgrad.experiments.vae.field import layer_sizes, update_size

from .helpers import has_marks

SOURCE = Path(pg.__file__).parent
FILES = {str(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*.py"))}

# Strings that look like options of ours and are not.
GIT = {"--always", "--dirty", "--abbrev=40", "--exclude=*", "--error-unmatch", "--no-optional-locks"}
ALLOWED = {
    "_runs/provenance.py": lambda text: text in GIT,
    "_show/page/document.py": lambda text: True,  # variables of CSS, and no message
    "_show/page/svg.py": lambda text: "var(--" in text,
    "_words/errors.py": lambda text: text == "--x",  # here a name is made into an option
}

OPTION = re.compile(r"(?<![\w-])--[a-z]")


def strings(path):
    """Yield the strings of a file, with `x` for what is filled in."""
    tree = ast.parse(path.read_text())
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {part for node in formatted for part in node.values}
    for node in formatted:
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.value


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("_cli/")])
def test_only_the_door_names_options(name):
    allowed = ALLOWED.get(name, lambda text: False)
    found = [text for text in strings(FILES[name]) if OPTION.search(text) and not allowed(text)]
    assert not found, "write `named('argument')`; a help text has the bare name"


# What takes texts apart, and what our prose is called where it is at hand. More than this a test cannot see.
CUTS = {
    "startswith", "endswith", "partition", "rpartition", "split", "replace", "removeprefix", "removesuffix",
    "match", "fullmatch", "search", "sub", "findall",
}  # fmt: skip
PROSE = re.compile(r"verdict|warning|sentence|message|\bexplain|\bbrief")


def cuts_of_prose(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            looked_at = [node.func.value, *node.args]
            if node.func.attr in CUTS and any(PROSE.search(ast.unparse(n)) for n in looked_at):
                yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize("name", FILES)
def test_nothing_takes_our_prose_apart(name):
    assert not list(cuts_of_prose(FILES[name]))


def test_the_walls_have_no_holes(tmp_path):
    """Both tests above find what they are for."""
    file = tmp_path / "bad.py"
    file.write_text('f"--{name} is odd"\n"Give --out."\n"--always"\n"a -- b"\n')
    found = {text for text in strings(file) if OPTION.search(text)}
    assert found == {"--x is odd", "Give --out.", "--always"}
    file.write_text('str(run.get("verdict")).partition(":")\nre.sub("a", "b", found.message)\n')
    assert [line for line, _ in cuts_of_prose(file)] == [1, 2]


def test_a_message_is_said_in_the_language_of_the_reader():
    error = ArgumentError(f"{named('time_kernels')} must be odd, or {named('size')} even.")
    assert isinstance(error, UserError)
    assert isinstance(error, ValueError)
    assert str(error) == "`time_kernels` must be odd, or `size` even."
    assert as_options(error.text) == "--time-kernels must be odd, or --size even."
    assert in_python(error.text) == str(error)


@pytest.mark.parametrize("text", ["{a} {} {0!r} %s", "$x^2$ \\1 \\g<0>", "`a_b` --a_b", "a\nb\\", ""])
def test_texts_of_users_pass_unchanged(text):
    assert str(UserError(text)) == as_options(text) == in_python(text) == text
    assert as_options(f"{named('out')} {text}") == f"--out {text}"


@pytest.mark.parametrize(
    "member",
    [*Outcome, *Stop, *pg.Reason, *pg.StartOutcome],
    ids=lambda member: f"{type(member).__name__}.{member.name}",
)
def test_members_speak_both_languages(member):
    for write in (in_python, as_options):
        assert not has_marks(write(member.text))
    assert "--" not in in_python(member.text)
    # What users read without asking for a language is Python's.
    assert not has_marks(getattr(member, "message", ""))


def lattice(**changed):
    sizes = {"time_kernels": 3, "time_bond": 1, "features": 2, "channels": 1} | changed
    return lambda: LatticeField.zero(6, **sizes, key=jr.key(0))


BENCH = ["bench", "cnf", "--dim", "2", "--width", "4"]
MISTAKES = {
    "time kernels": (
        lattice(time_kernels=2),
        ["train", "phi4", "--time-kernels", "2"],
        "{} must be odd (sines, cosines, a constant), got 2.",
        ["time_kernels"],
    ),
    "time bond": (
        lattice(time_bond=0),
        ["train", "phi4", "--time-bond", "0"],
        "{} must be at least 1, got 0.",
        ["time_bond"],
    ),
    "no coupling": (
        lambda: Phi4Options(size=7).action_coupling,
        ["train", "phi4", "--size", "7"],
        "There is no benchmark coupling for {} 7, only for 6, 8, 10, 12, 14, 20, 32, 64: give {}.",
        ["size", "coupling"],
    ),
    "no rung": (
        lambda: ladder(7, 0),
        ["train", "phi4", "--preset", "best", "--size", "7"],
        "{} of the preset `best` must be one of 6, 8, 12, 20, 32, got 7.",
        ["size"],
    ),
    "width": (
        lambda: pg.MLPField(2, width=0, key=jr.key(0)),
        ["train", "toy", "--width", "0"],
        "{} must be at least 1, got 0.",
        ["width"],
    ),
    "dim": (
        lambda: build_density(DensityOptions("a:b", 0)),
        ["train", "density", "a:b", "--dim", "0"],
        "{}, the number of coordinates of a point, must be given: at least 1, got 0.",
        ["dim"],
    ),
    "repetitions": (
        MeasureOptions(repetitions=-1).check,
        [*BENCH, "--repetitions", "-1"],
        "{} must be at least 0, got -1.",
        ["repetitions"],
    ),
    "no estimators": (
        MeasureOptions(estimators=("path", "path")).check,
        [*BENCH, "--estimators", "path", "path"],
        "{} takes one or more of path, total, two-copy, each once.",
        ["estimators"],
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_names_the_argument_or_the_option(case, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, words, text, names = MISTAKES[case]
    with pytest.raises(ArgumentError) as found:
        call()
    assert str(found.value) == text.format(*[f"`{name}`" for name in names])
    assert main(words) == 2
    options = [f"--{name.replace('_', '-')}" for name in names]
    assert capsys.readouterr().err == f"pathgrad: {text.format(*options)}\n"


def test_fields_of_autoencoders_name_their_arguments():
    for call, name in (
        (lambda: layer_sizes(0, 1, 1), "latent"),
        (lambda: layer_sizes(1, 1, 0), "depth"),
        (lambda: update_size([(1, 1)], 0), "rank"),
    ):
        with pytest.raises(ArgumentError, match=f"^`{name}` must be at least 1, got 0"):
            call()


def test_building_a_problem_keeps_the_names_marked():
    flow = LatticeFlowOptions(time_kernels=2, solver_steps=3)
    with pytest.raises(UserError) as found:
        pg.find_experiment("phi4").build(Phi4Options(flow=flow))
    assert as_options(found.value.text).startswith("--time-kernels must be odd")


def test_a_run_that_is_there(capsys, tmp_path):
    RunDir.create(tmp_path, {"experiment": "toy"})
    with pytest.raises(UserError, match="Choose another `out`"):
        RunDir.create(tmp_path, {})
    assert main(["train", "toy", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "Choose another --out, continue this one with --resume, or replace it with --overwrite." in said


def test_names_of_files_reach_the_reader_unchanged(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "run {x} $y \\1 a_b"
    assert main(["evaluate", name]) == 2
    said = capsys.readouterr().err
    assert f"pathgrad: {name} is not a run directory" in said
    assert not has_marks(said)
