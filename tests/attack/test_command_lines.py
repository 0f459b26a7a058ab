"""Bad command lines: one line that says why, exit code 2, and nothing left behind."""

import contextlib
import functools
import random
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import pathgrad as pg
from pathgrad._bench import gradients
from pathgrad._cli import bench_targets, data
from pathgrad._cli.main import COMMANDS, GONE, main, training_commands
from pathgrad._default.pipeline import Pipeline
from pathgrad._runs import work
from pathgrad._runs.experiment import experiment_names
from pathgrad._runs.problem import Trained
from pathgrad._train.state import begin
from pathgrad._train.trainer import Trainer

from ..helpers import has_marks
from ..run_helpers import make_evaluation, make_run, rows_of

WHOLE, NUMBER, CHOICE = "must be a whole number, got 'x'", "must be a number, got 'x'", "invalid choice 'x'"
HOME = "no such home directory"
VOID = "would have no effect"

# For each option, a command line that it makes a bad one, and what is said. `?` stands for the option.
OPTIONS = {
    "--activation": ("train vae ? tanh", VOID),
    "--adjoint": ("train toy ? x", CHOICE),
    "--augment-until": ("train vae ? 2", "must be from 0 to 1, got 2.0"),
    "--average": ("train toy ? x", NUMBER),
    "--base": ("train phi4 ? full", "invalid choice 'full'"),
    "--base-mass-squared": ("train phi4 --base unit ? 1", "only applies to a free field"),
    "--batch": ("train toy ? 1000000000000", "this takes at least 24,000 GB"),
    "--beta1": ("train toy ? 1", "must be at least 0 and below 1"),
    "--beta2": ("train toy ? -1", "must be at least 0 and below 1"),
    "--block": ("train toy ? 0", "must be at least 1, got 0"),
    "--blocks": ("train vae ? x", WHOLE),
    "--centre": ("fit dens.py:f --dim 2 ? 1", VOID),
    "--channels": ("train vae ? 0", "must be at least 1, got 0"),
    "--checkpoint-seconds": ("train toy ? x", NUMBER),
    "--clip": ("train toy ? 0.5", "must be 0 or greater than 1"),
    "--cnfs": ("train vae ? -1", "must be at least 0, got -1"),
    "--config": ("train toy ? none.toml", "none.toml cannot be read"),
    "--coordinates": ("fit dens.py:f --dim 2 ? own", VOID),
    "--coordinator": ("train toy ? here", "--coordinator HOST:PORT, such as"),
    "--coupling": ("train phi4 ? -1", "has no lower bound"),
    "--cpu-devices": ("train toy ? 0", "must be at least 1, got 0"),
    "--cut": ("fit dens.py:f --dim 2 ? 3", VOID),
    "--data": ("train vae ? ~nosuchuser/images", HOME),
    "--dataset": ("train vae ? x", "There is no data set 'x'"),
    "--decay": ("train toy ? x", CHOICE),
    "--defended": ("fit dens.py:f --dim 2 ?", VOID),
    "--density": ("fit ? dens.py:none --dim 2", "has no function 'none'. It has: f"),
    "--depth": ("train toy ? 0", "must be at least 1, got 0"),
    "--dim": ("train toy --target banana ? 3", "dim"),
    "--directions": ("fit dens.py:f --dim 2 ? 3", VOID),
    "--divergence": ("train toy ? x", CHOICE),
    "--draws": ("evaluate good ? none.csv", "none.csv cannot be read"),
    "--draws-per-parameter": ("train toy ? 4", VOID),
    "--dreams": ("train vae ? x", "'x'"),
    "--dtype": ("bench cnf ? x", CHOICE),
    "--end-time": ("train vae ? nan", "must be finite and not zero"),
    "--epochs": ("train vae ? 0", "must be at least 1, got 0"),
    "--estimator": ("train toy ? x", CHOICE),
    "--estimators": ("bench cnf ? path path", "each once"),
    "--features": ("train phi4 ? 0", "must be at least 2, got 0"),
    "--field": ("train vae ? x", CHOICE),
    "--figure": ("plot good --out x.png ? x", "There is no --figure x for toy"),
    "--fine-channels": ("train vae ? x", WHOLE),
    "--first": ("fit dens.py:f --dim 2 ? 0", "must be at least 1, got 0"),
    "--flips": ("train vae ? yes", "Unrecognized options: yes"),
    "--flow": ("fit dens.py:f --dim 2 ? x", CHOICE),
    "--hidden": ("train vae ? -1", "must be at least 0, got -1"),
    "--init-from": ("train phi4 ? good", "must be a run of phi4, not of 'toy'"),
    "--json": ("bench cnf ? yes", "Unrecognized options: yes"),
    "--kl-warmup": ("train vae ? -1", "must be at least 0, got -1"),
    "--latent": ("train vae ? 1000000000", "this takes at least"),
    "--learning-rate": ("train toy ? nan", "must be a positive number, got nan"),
    "--likelihood": ("train vae ? x", CHOICE),
    "--look-draws": ("fit dens.py:f --dim 2 ? 0", "must be at least 1, got 0"),
    "--markdown": ("compare none ?", "none is not a run directory"),
    "--mass-squared": ("train phi4 --coupling 0 ? -4", "has no lower bound"),
    "--max-seconds": ("fit dens.py:f --dim 2 ? -1", "must be a positive number"),
    "--n": ("sample good --out x.npz ? 0", "must be at least 1, got 0"),
    "--networks": ("train vae ? x", CHOICE),
    "--newton-steps": ("train toy ? -1", "must be at least 0"),
    "--nll-images": ("evaluate good ? 5", "Unrecognized options: --nll-images"),
    "--no-defence": ("fit dens.py:f --dim 2 ? yes", "Unrecognized options: yes"),
    "--no-mode-search": ("evaluate good ? yes", "Unrecognized options: yes"),
    "--no-warm-start": ("fit dens.py:f --dim 2 ? yes", "Unrecognized options: yes"),
    "--noise": ("train vae ? rademacher", VOID),
    "--numpyro": ("fit dens.py:f --dim 2 ?", "leave --dim out"),
    "--open": ("report none ?", "none is not a run directory"),
    "--optimizer": ("train toy ? x", CHOICE),
    "--out": ("train toy ? file.txt", "Not a directory"),
    "--overwrite": ("train toy --resume --out good ?", VOID),
    "--patience": ("train vae ? -1", "must be at least 0, got -1"),
    "--plot": ("compare good ? x.doc", "--plot must end in .png or .svg or .pdf"),
    "--precision": ("fit dens.py:f --dim 2 ? x", CHOICE),
    "--preset": ("train toy --resume --out good ? accurate", VOID),
    "--probes": ("train toy ? 3", VOID),
    "--process-id": ("train toy --coordinator a:1 --processes 2 ? 2", "must be from 0 to 1, got 2"),
    "--processes": ("train toy --coordinator a:1 --process-id 0 ? 0", "must be at least 1, got 0"),
    "--rank": ("train vae ? 3", VOID),
    "--rate-hold": ("train vae ? 2", "must be from 0 to 1, got 2.0"),
    "--rate-warmup": ("train vae ? -1", "must be at least 0, got -1"),
    "--refine": ("evaluate good ? 100000000", "must be at most 1000"),
    "--repetitions": ("bench cnf ? -1", "must be at least 0, got -1"),
    "--resume": ("train toy ?", "--resume needs --out"),
    "--rounds": ("fit dens.py:f --dim 2 ? 0", "must be at least 1, got 0"),
    "--samples": ("evaluate good ? 1000000000000", "this takes at least 16,000 GB"),
    "--seed": ("train toy ? -1", "must be from 0 to 4294967295, got -1"),
    "--seeds": ("bench targets ? 0", "must be at least 1, got 0"),
    "--shifts": ("train vae ? 2", "must be from 0 to 1, got 2.0"),
    "--size": ("train phi4 ? 0", "must be at least 1, got 0"),
    "--solver": ("train toy ? x", CHOICE),
    "--solver-steps": ("train toy ? 1000000000", "must be at most 100000"),
    "--split-seed": ("train vae ? x", WHOLE),
    "--steps": ("bench toy ? 3", VOID),
    "--target": ("train toy ? x", CHOICE),
    "--time-bond": ("train phi4 ? 0", "at least 1"),
    "--time-kernels": ("train phi4 ? 2", "must be odd"),
    "--title": ("report none ? x", "none is not a run directory"),
    "--tolerance": ("train toy --solver tsit5 ? 0", "must be between 0 and 1, got 0.0"),
    "--trust": ("evaluate good ? yes", "Unrecognized options: yes"),
    "--validate": ("train vae ? 0", "must be at least 1, got 0"),
    "--warmup-epochs": ("train vae ? -1", "must be at least 0, got -1"),
    "--width": ("train toy ? x", WHOLE),
}

# Without an option, or with files that are not what they should be.
OTHERS = {
    "train toy --checkpoint-seconds nan": "must be a number of seconds, zero or more",
    "train vae --cnfs 0 --width 8": "--width would have no effect: --cnfs is 0",
    "train vae --preset tiny --channels 8": "--channels would have no effect: --networks is mlp",
    "train vae --networks published --hidden 8": "--hidden would have no effect: --networks is published",
    "train vae --shifts 0 --augment-until 0.5": "--augment-until would have no effect: --shifts is 0",
    "train toy --checkpoint-seconds -1": "must be a number of seconds, zero or more",
    "evalute good": "Did you mean 'evaluate'?",
    "train": "`train` needs a second word",
    "data lost": "there is no `data lost`",
    "bench all": "no longer part of pathgrad",
    "compare": "at least one run",
    "compare ''": "One of the arguments is empty",
    "evaluate file.txt": "it is a file",
    "evaluate empty": "it has no config.toml",
    "evaluate good extra": "Unrecognized options: extra",
    "sample good": "--out",
    "sample good --out none/x.npz": "There is no directory",
    "sample good --out here.npz": "already exists",
    "sample good --out x.txt": "must end in .npz or .nc",
    "plot good --out empty.png": "is a directory",
    "report none": "none is not a run directory",
    "train toy --out good": "already holds a run",
    "train toy --out full": "is not empty and is not a run directory",
    "train toy --config types.toml": "width = 'a' is not a whole number",
    "train toy --config number.toml": "options = 3 is not a table",
    "train toy --config deep.toml": "deep.toml cannot be read",
    "train phi4 --size 100000 --coupling 1": "--size 100000: this takes at least",
    "train density dens.py:f": "--dim",
    "train density ends.py:f --dim 2": "ended with sys.exit(7)",
    "train density dens.py:ends --dim 2": "sys.exit(3)",
    "train density ~nosuchuser/dens.py:f --dim 2": HOME,
    "fit dens.py:f --dim 2 --data data.json": "give --numpyro",
    "fit dens.py --dim 2": "does not name a function",
    "fit dens.py:f --dim 2 --width 3": "`pathgrad fit` chooses flow and training itself",
    "fit no_such_module:f --dim 2": "no_such_module",
    "fit dens.py:model --numpyro --data none.json": "cannot be read",
    "fit dens.py:model --numpyro --data deep.json": "are not JSON",
    "evaluate good --draws nan.csv": "are not finite",
    "evaluate good --draws flat.npy": "must be at least",
    "evaluate good --draws data.json": "must end with .npy",
    "fit dens.py:model --numpyro --data words.json": "'y' in",
    "fit dens.py:f --dim 2 --look-draws 1000000000000": "--look-draws 1000000000000: this takes at least",
    "fit dens.py:f --dim 2 --rounds 100000": "--rounds must be at most 40",
    "fit dens.py:f --dim 2 --first 9999999999": "--first must be at most",
    "fit dens.py:f --dim 2 --batch 0": "--batch must be at least 1",
    "evaluate good --draws huge.npy": "does not hold an array of numbers: Unable to allocate",
    "evaluate good --draws file.nc": "cannot be read",
    "bench targets none": "There is no target 'none'",
    "bench toy --estimator path": "use --estimators",
    "data list --data ~nosuchuser/x": HOME,
    "data verify none": "There is no data set 'none'",
    "data download none": "There is no data set 'none'",
    "demo --out full": "holds other files",
    "demo --out file.txt": "is a file",
    "demo --steps 0 --out new": "must be at least 1, got 0",
}

DENSITIES = """
import sys
import jax.numpy as jnp

def f(x):
    return -0.5 * jnp.sum(x**2)

def ends(x):
    sys.exit(3)

def model(y):
    raise KeyError("y")
"""


class Accepted(BaseException):
    """The command line was understood, and the work would begin."""


def accept(*args, **kwargs):
    raise Accepted


def untrained(shell: pg.Training) -> Trained:
    """Return a model as if it had been trained and read from a checkpoint."""
    return Trained(shell.model, begin(shell.model, None))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a run and odd files; commands stop where their work begins."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATHGRAD_DATA", str(tmp_path / "empty"))
    monkeypatch.setattr(work, "trained", lambda run: untrained(run.problem().shell()))
    monkeypatch.setattr(pg, "weighted_chunks", accept)
    monkeypatch.setattr(pg.devices, "join", accept)
    monkeypatch.setattr(Trainer, "prepare", accept)
    monkeypatch.setattr(Pipeline, "choose", accept)
    monkeypatch.setattr(gradients, "measure", accept)
    monkeypatch.setattr(bench_targets, "run_jobs", accept)
    monkeypatch.setattr(data, "download", accept)
    fill(tmp_path)
    return tmp_path


def fill(folder: Path) -> None:
    """Write the files that command lines name."""
    run = make_run(folder / "good", rows_of([0.2, 0.9]), experiment="toy", size=None, target="ring")
    make_evaluation(run, step=20, arrays=False)
    (folder / "empty").mkdir()
    (folder / "empty.png").mkdir()
    (folder / "full").mkdir()
    files = {
        "full/mine.txt": "mine", "file.txt": "text", "here.npz": "here", "dens.py": DENSITIES,
        "ends.py": "import sys\nsys.exit(7)\n", "data.json": '{"y": [1.0]}', "deep.json": "[" * 99_999,
        "deep.toml": f"a = {'[' * 9_999}", "types.toml": 'experiment = "toy"\n[options.flow]\nwidth = "a"\n',
        "number.toml": 'experiment = "toy"\noptions = 3\n', "nan.csv": "0,0\n" * 99 + "nan,1\n",
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "words.json").write_text('{"y": ["a", "b"]}')
    (folder / "file.nc").write_text("text")
    np.save(folder / "flat.npy", np.zeros(9))
    huge = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000, 2), }"
    (folder / "huge.npy").write_bytes(huge.ljust(127) + b"\n")


def outcome(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    """Return the exit code, or `Accepted`, and what was said on standard error."""
    capsys.readouterr()
    try:
        code: object = main(words)
    except Accepted:
        code = Accepted
    except SystemExit as stop:
        code = stop.code
    return code, capsys.readouterr().err


def contents(folder: Path) -> dict[str, int]:
    """Return all files and folders, and how long they are."""
    return {str(path): path.stat().st_size for path in folder.rglob("*") if "__pycache__" not in str(path)}


def assert_refused(line: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(folder)
    code, err = outcome(shlex.split(line), capsys)
    assert code == 2, err
    assert said in err
    assert err.startswith("pathgrad: ")
    assert len(err.splitlines()) == 1
    assert not has_marks(err)
    assert contents(folder) == before


@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_has_a_bad_value(option, folder, capsys):
    line, said = OPTIONS[option]
    assert_refused(line.replace("?", option), said, folder, capsys)


@pytest.mark.parametrize("line", OTHERS)
def test_other_bad_lines(line, folder, capsys):
    assert_refused(line, OTHERS[line], folder, capsys)


@functools.cache
def every_command() -> list[str]:
    return [*training_commands(), *COMMANDS, *(f"bench {name}" for name in experiment_names())]


def options_of(command: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return the options in the help of a command, and their kinds."""
    with contextlib.suppress(SystemExit):
        main([*command.split(), "--help"])
    # At the beginning of a line, with a frame or without: what explanations name is indented further.
    found = re.findall(r"^[│ ] (--[a-z][a-z0-9-]*) ?([^ ]*)", capsys.readouterr().out, re.MULTILINE)
    return dict(found)


def test_every_command_and_option_has_a_row(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    found = {option for command in every_command() for option in options_of(command, capsys)}
    assert found == set(OPTIONS)
    lines = [line for line, _ in OPTIONS.values()] + list(OTHERS)
    without = {c for c in every_command() if not any(f"{line} ".startswith(f"{c} ") for line in lines)}
    # They are measured as `bench toy` is.
    assert without <= {f"bench {name}" for name in experiment_names()}
    assert all(gone in lines for gone in GONE)


# Command lines that would be accepted, each to be spoilt.
GOOD = {
    "train toy": "", "train density": "dens.py:f --dim 2", "train phi4": "", "train vae": "--preset tiny",
    "fit": "dens.py:f --dim 2", "evaluate": "good", "sample": "good --out s.npz", "compare": "good",
    "report": "good --out r.html", "plot": "good --out p.png", "data list": "", "data verify": "",
    "data download": "mnist", "demo": "--out d", "bench targets": "banana", "bench cnf": "",
    "bench toy": "", "bench density": "dens.py:f --dim 2", "bench phi4": "", "bench vae": "--preset tiny",
    "bench fit": "dens.py:f --dim 2",
}  # fmt: skip
NUMBERS = ["x", "", "-1", "0", "1.5", "nan", "inf", "-inf", "1e400", "9" * 12, "9" * 30, "--", "0x10", "１"]
WORDS = [
    "x", "", "None", "good", "file.txt", "empty", "none/x", "~nosuchuser/x", "a\nb", "[red]x", "%s{}", "💥",
    "\udcff", "y" * 5000, "../..", "/", "/dev/null", "-", "x.png", ".png", "dens.py:none",
]  # fmt: skip


def spoilt(rng: random.Random, options: dict[str, dict[str, str]]) -> list[str]:
    """Return a command line with one to three faults, most likely."""
    command = rng.choice(list(GOOD))
    words, known = shlex.split(GOOD[command]), list(options[command].items())
    foreign = sorted({name for others in options.values() for name in others})
    for _ in range(rng.choice((1, 1, 2, 3))):
        place, (name, kind) = rng.randrange(len(words) + 1), rng.choice(known)
        value = rng.choice(NUMBERS if "INT" in kind or "FLOAT" in kind else WORDS)
        match rng.randrange(8):
            case 0:
                words[place:place] = [rng.choice(WORDS)]
            case 1:
                words.append(rng.choice(foreign))
            case 2:
                cut = rng.randrange(3, len(name) + 1)
                words += [name[:cut] + rng.choice("xyz_") + name[cut:], value]
            case 3 if words:
                del words[rng.randrange(len(words))]
            case 4:
                words.append(f"{name}={value}")
            case _:
                words += [name, value]
    return [*command.split(), *words]


def attack(seed: int, wanted: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    """Try lines until so many were refused; return how many were, and how many were accepted."""
    rng, before = random.Random(seed), contents(folder)
    options = {command: options_of(command, capsys) for command in GOOD}
    counts = {"refused": 0, "accepted": 0}
    while counts["refused"] < wanted:
        words = spoilt(rng, options)
        code, err = outcome(words, capsys)
        if code == 2:
            counts["refused"] += 1
            assert err.startswith("pathgrad: "), (words, err)
            assert len(err.splitlines()) == 1, (words, err)
            assert not has_marks(err), words
            assert contents(folder) == before, words
        else:
            counts["accepted"] += 1
            assert code in (Accepted, 0) or (code == 1 and words[0] == "data"), (words, code, err)
            for path in map(Path, contents(folder).keys() - before.keys()):
                assert words[0] in ("compare", "report", "plot"), (words, path)
                path.unlink()
            fill_again(folder)
    return counts


def fill_again(folder: Path) -> None:
    """Restore what an accepted command may have replaced."""
    (folder / "file.txt").write_text("text")


def test_spoilt_lines(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    attack(0, 60, folder, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_many_spoilt_lines(seed, folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    counts = attack(seed, 500, folder, capsys)
    with capsys.disabled():
        print(counts)
