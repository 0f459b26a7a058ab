"""Commands in the README and the documents are there, with the options they are given."""

import argparse
import contextlib
import importlib
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from pathgrad._cli import arguments
from pathgrad._cli.main import COMMANDS, find, main, training_commands

from .docs_helpers import DOCS, PAGES, README, ROOT, blocks
from .run_helpers import recorded_run

COMMANDS_PAGE = (DOCS / "commands.md").read_text()
TRAINING = {find(command.split())[0] for command in training_commands()}
EVERY = {*TRAINING, *COMMANDS}
# Of commands and of their families; in the text these stand for the command, and are not to be typed.
NAMES = {*EVERY, *(word for command in EVERY for word in command.split())}
# For each experiment, the record of a run that commands can start from.
RECORDED = {
    "train toy": "toy/runs/demo-path.json",
    "train phi4": "phi4/runs/L6-path-s0.json",
    "train vae": "vae/runs/small-mnist-path-s0.json",
}
# Made by the reader of `own-experiment.md`, and not installed here.
OWN = ["train", "well"]


def lines_of(page):
    """Yield the lines that one would type: those of shell blocks, and whole ones within the text."""
    for block in blocks(page):
        if block.language == "":
            yield from block.text.splitlines()
    named = re.findall(r"`((?:pathgrad|python -m) [^`\n]+)`", page.read_text())
    yield from (line for line in named if line.removeprefix("pathgrad ") not in NAMES)


LINES = sorted({line.strip() for page in [README, *PAGES] for line in lines_of(page)})
# Those in the text may leave words out.
OURS = [
    shlex.split(line, comments=True)[1:]
    for line in LINES
    if line.startswith("pathgrad ") and not re.search(r"\.\.\.|\b(COMMAND|EXPERIMENT)\b|--help", line)
]
OURS = [words for words in OURS if words[:2] != OWN]


# As in the shell, without where the output goes.
BENCHMARKS = [
    shlex.split(line.partition(">")[0])[2:] for line in LINES if line.startswith("python -m benchmarks.")
]


class ParsedError(Exception):
    """The options were understood; nothing more shall happen."""


@pytest.fixture
def only_parsed(monkeypatch, tmp_path):
    """Let commands read their options and stop, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    real = arguments.tyro.cli

    def stop(*given, **options):
        raise ParsedError(real(*given, **options))

    monkeypatch.setattr(arguments.tyro, "cli", stop)


def provide_run(name, words):
    """Make a run with the options of a recorded one wherever a command starts from a run."""
    wanted = [words[i + 1] for i, word in enumerate(words) if word == "--init-from"]
    wanted += [Path(words[i + 1]).parent for i, word in enumerate(words) if word == "--config"]
    if "--resume" in words:
        wanted.append(words[words.index("--out") + 1])
    if name == "evaluate":  # its options are those of the run
        wanted.append(words[1])
        name = "train vae" if "--nll-images" in words else "train phi4"
    for path in map(Path, wanted):
        recorded_run(path, RECORDED[name])


def test_the_documents_have_commands():
    measured = {"bench phi4", "bench vae", "bench density"}  # by the same section as `bench cnf`
    assert {find(words)[0] for words in OURS if words[0][0] != "-"} == EVERY | measured
    assert len(OURS) > 60


@pytest.mark.parametrize("words", OURS, ids=" ".join)
def test_commands_are_understood(words, only_parsed, capsys):
    if words == ["--version"]:
        assert main(words) == 0
        return
    provide_run(find(words)[0], words)
    with pytest.raises(ParsedError):
        main(words)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["train toy", "train phi4", "train vae", "bench cnf", "bench phi4"])
def test_options_can_all_be_left_out(command, only_parsed):
    with pytest.raises(ParsedError):
        main(command.split())


def test_scripts_that_are_named_are_there():
    scripts = {
        *(line.split()[0] for line in LINES if line.startswith("benchmarks/")),
        *(f"{line.split()[2].replace('.', '/')}.py" for line in LINES if line.startswith("python -m")),
    }
    assert len(scripts) >= 6
    assert [script for script in sorted(scripts) if not (ROOT / script).is_file()] == []
    targets = {line.split()[1] for line in LINES if line.startswith("make ")}
    known = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets
    assert targets <= known


@pytest.mark.parametrize("words", BENCHMARKS, ids=" ".join)
def test_options_of_scripts_are_understood(words, monkeypatch):
    module = importlib.import_module(words[0])
    if not hasattr(module, "argparse"):
        assert words[1:] == []  # it would run, whatever it is given
        return
    real = argparse.ArgumentParser.parse_args

    def stop(parser, *given):
        raise ParsedError(real(parser, *given))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(ParsedError):
        module.main()


def sections():
    """Split the page of commands into its parts, by command."""
    parts = re.split(r"^### pathgrad (.+)$", COMMANDS_PAGE, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_page_has_every_command_in_order():
    found = [find(command.split())[0] for command in sections()]
    assert found[len(TRAINING) :] == list(COMMANDS)
    assert set(found) == EVERY


@pytest.mark.parametrize("command", sections())
def test_options_on_the_page_exist(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    # One section for every experiment that can be measured.
    others = ["bench phi4", "bench vae"] if command.startswith("bench ") else []
    for each in [command, *others]:
        with contextlib.suppress(SystemExit):
            assert main([*each.split(), "--help"]) == 0
    # At the beginning of a line, with a frame or without: what explanations name is indented further.
    shown = re.findall(r"^[│ ] (--[a-z][a-z0-9-]*)", capsys.readouterr().out, re.MULTILINE)
    named = set(re.findall(r"--[a-z][a-z0-9-]*", sections()[command]))
    assert named - {*shown, "--help"} == set()


def test_files_of_a_run_are_as_the_page_says(tmp_path, monkeypatch, capsys):
    """Fit the density of the page with its own command, made small, and draw from it."""
    monkeypatch.chdir(tmp_path)
    page = DOCS / "own-density.md"
    [density] = [b for b in blocks(page) if b.options.strip() == 'title="my_model.py"']
    Path("my_model.py").write_text(density.text)
    lines = [line for line in lines_of(page) if line.startswith("pathgrad ")]
    fit = next(shlex.split(line)[1:] for line in lines if " fit " in line)
    draw = next(shlex.split(line)[1:] for line in lines if " sample " in line)
    tiny = "--flow tied --batch 8 --first 4 --rounds 1 --look-draws 100 --max-seconds 9999"
    assert main([*fit, *shlex.split(tiny)]) == 0
    assert main(draw) == 0
    with np.load("draws.npz") as arrays:
        assert arrays["x"].shape == (10000, 5)
    written = {path.name for path in Path("runs/mine").iterdir() if path.name[0] != "."}
    table = (DOCS / "run-files.md").read_text().partition("## The run directory")[2].partition("\n## ")[0]
    told = {name.rstrip("/") for name in re.findall(r"`([\w.]+\.\w+|checkpoints/|lock)`", table)}
    assert written <= told
    assert {"config.toml", "metrics.jsonl", "checkpoints"} <= written
    assert main(["data", "list", "--data", "images"]) == 0
    assert "folder: images" in capsys.readouterr().out
