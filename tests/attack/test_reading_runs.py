"""Reading a run does not run somebody's code: it is asked for, and nothing runs before that is settled."""

import os
import py_compile
import shutil
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._cli.main import main
from pathgrad._cli.processes import Processes
from pathgrad._runs.checkpoint import load, read_header, save
from pathgrad._runs.rundir import RunDir
from pathgrad.experiments.density.experiment import DENSITY, DensityOptions
from pathgrad.experiments.options import FlowOptions, TrainOptions

from ..run_helpers import refused

# It leaves a trace when it is imported.
CODE = """
import os, pathlib
if "TRACE" in os.environ:
    pathlib.Path(os.environ["TRACE"]).touch()

def f(x):
    return -0.5 * ((x - {mean}) ** 2).sum()

def g(x):
    return -(x**2).sum()
"""
OPTIONS = DensityOptions(
    "dens.py:f",
    dim=2,
    flow=FlowOptions(width=4, depth=1, solver_steps=2),
    training=TrainOptions(steps=2, block=2, batch=4),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a density and a run of it."""
    folder, before = tmp_path_factory.mktemp("trained"), Path.cwd()
    os.chdir(folder)
    try:
        Path("dens.py").write_text(CODE.format(mean=1.0))
        pg.train(DENSITY, OPTIONS, out="run")
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def here(trained, tmp_path, monkeypatch):
    """A copy of it as the working directory; whether its code has run is seen from the file `trace`."""
    folder = Path(shutil.copytree(trained, tmp_path / "here"))
    config = folder / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(trained), str(folder)))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TRACE", str(tmp_path / "trace"))
    return folder


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "trace"


READERS = {
    "evaluate": ("evaluate", "RUN", "--samples", "8"),
    "sample": ("sample", "RUN", "--out", "draws.npz"),
    "resume": ("train", "density", "--out", "RUN", "--resume"),
}


def words(reader, run):
    return [str(run) if word == "RUN" else word for word in READERS[reader]]


def edit(run, old, new):
    config = Path(run) / "config.toml"
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))


def test_code_below_the_working_directory_needs_no_question(here, trace):
    run = pg.Run.open("run")
    assert run.notes == []
    problem: Any = run.problem()
    assert problem.target.log_prob(np.ones(2)) == 0
    assert trace.exists()


@pytest.mark.parametrize("reader", READERS)
def test_code_elsewhere_is_asked_for(here, trace, tmp_path, monkeypatch, capsys, reader):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    err = refused(capsys, *words(reader, here / "run"))
    assert "outside the working directory" in err
    assert "--trust" in err
    assert "--density" in err
    assert not trace.exists()
    assert os.listdir() == []


@pytest.mark.parametrize("reader", READERS)
def test_changed_code_is_asked_for(here, trace, capsys, reader):
    Path("dens.py").write_text(CODE.format(mean=2.0))
    before = (here / "run" / "metrics.jsonl").read_bytes()
    err = refused(capsys, *words(reader, "run"))
    assert "dens.py:f has changed since run was trained" in err
    assert not trace.exists()
    assert (here / "run" / "metrics.jsonl").read_bytes() == before
    run = pg.Run.open("run", trust=True)
    assert "has changed" in run.notes[0]


@pytest.mark.parametrize("reader", READERS)
def test_options_changed_by_hand_are_found(here, trace, capsys, reader):
    edit("run", "seed = 0", "seed = 1")
    assert "--seed is 1, trained with 0" in refused(capsys, *words(reader, "run"))
    assert not trace.exists()
    edit("run", "seed = 1", "seed = 0")
    edit("run", "steps = 2\n", "steps = 9\n")  # its length may change
    edit("run", "dens.py:f", "dens.py:g")
    assert "--density is g, trained with f" in refused(capsys, *words(reader, "run"))
    assert not trace.exists()


def test_code_named_again_may_be_anywhere(here, trace, tmp_path, monkeypatch):
    elsewhere = tmp_path / "moved.py"
    (here / "dens.py").rename(elsewhere)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    run = pg.Run.open(here / "run", density="../moved.py:f")
    assert run.notes == []
    run.problem()
    assert trace.exists()
    elsewhere.write_text(CODE.format(mean=3.0))
    assert "has changed" in pg.Run.open(here / "run", density="../moved.py:f").notes[0]


def test_naming_code_answers_for_the_code_alone(here, trace):
    edit("run", "seed = 0", "seed = 1")
    Path("other.py").write_text(CODE.format(mean=2.0))
    with pytest.raises(pg.UserError, match="`seed` is 1, trained with 0"):
        pg.Run.open("run", density="other.py:f").problem()
    edit("run", "seed = 1", "seed = 0")
    assert not trace.exists()
    run = pg.Run.open("run", density="other.py:g")
    changed, renamed = run.notes
    assert "has changed" in changed
    assert "is g, trained with f" in renamed
    assert run.named_again == f" --density {here}/other.py:g"


def test_printed_commands_say_again_what_was_trusted(here, tmp_path, monkeypatch, capsys):
    assert pg.Run.open("run", trust=True).named_again == ""
    words = ["--resume", "--trust", "--steps", "4", "--out"]
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    assert main(["train", "density", *words, str(here / "run")]) == 0
    assert f"Next: pathgrad evaluate {here}/run --trust" in capsys.readouterr().out


def test_a_run_remembers_that_its_code_changed(here):
    then = pg.Run.open("run").recorded
    Path("dens.py").write_text(CODE.format(mean=2.0))
    for steps in ("4", "6"):
        assert main(["train", "density", "--out", "run", "--resume", "--trust", "--steps", steps]) == 0
        run = pg.Run.open("run")
        assert run.recorded["before"] == [then["sources"]]
        assert "resumed with other code" in run.notes[0]


def test_resuming_with_the_code_on_the_command_line(here, tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    words = ["train", "density", f"{here}/dens.py:f", "--dim", "2", "--out", f"{here}/run", "--resume"]
    assert main(words) == 0


def test_a_run_directory_of_somebody_else_runs_nothing(tmp_path, monkeypatch, capsys, trace):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACE", str(trace))
    for experiment, more in (("fit", {}), ("density", {"dim": 2}), ("fit", {"numpyro": True})):
        run = RunDir.create(
            tmp_path / "run",
            {"experiment": experiment, "options": {"density": "run/evil.py:f", "training": {}} | more},
            overwrite=True,
        )
        (run.path / "evil.py").write_text(CODE.format(mean=0.0))
        (run.path / "checkpoints").mkdir(exist_ok=True)
        for name in ("step-000000100.ckpt", "step-000000100.safetensors"):
            (run.path / "checkpoints" / name).write_bytes(b"anything")
            for reader in READERS if experiment == "density" else ("evaluate", "sample"):
                refused(capsys, *words(reader, "run"))
            (run.path / "checkpoints" / name).unlink()
        (run.path / "evil.py").unlink()
    assert not trace.exists()


def test_code_in_the_run_directory_counts_as_foreign(here, trace, capsys):
    shutil.copy("dens.py", "run/dens.py")
    edit("run", f"{here}/dens.py", f"{here}/run/dens.py")
    assert "in the run directory itself" in refused(capsys, "evaluate", "run")
    Path("link.py").symlink_to("run/dens.py")
    edit("run", f"{here}/run/dens.py", f"{here}/link.py")
    assert "in the run directory itself" in refused(capsys, "evaluate", "run")
    assert not trace.exists()


def test_a_module_is_found_without_importing_its_package(here, trace, tmp_path, monkeypatch, capsys):
    for folder in (here, tmp_path / "lib"):
        (folder / "mine").mkdir(parents=True)
        (folder / "mine" / "__init__.py").write_text(CODE.format(mean=0.0))
        (folder / "mine" / "inner.py").write_text(CODE.format(mean=1.0))
    edit("run", f"{here}/dens.py:f", "mine.inner:f")
    assert pg.Source("density", "mine.inner:f").file == here / "mine" / "inner.py"
    assert pg.Run.open("run").notes == []  # the same source
    shutil.rmtree(here / "mine")
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    assert "outside the working directory" in refused(capsys, "evaluate", "run")
    for spec in ("os:system", "mine.nothing:f", "no_such_package.x:f"):
        edit("run", "mine.inner:f", spec)
        assert refused(capsys, "evaluate", "run")
        edit("run", spec, "mine.inner:f")
    assert not trace.exists()
    assert "mine" not in sys.modules


def test_a_configuration_of_somebody_else_is_not_repeated_unasked(here, trace, tmp_path, monkeypatch, capsys):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    err = refused(capsys, "train", "density", "--config", here / "run" / "config.toml", "--out", "new")
    assert "--trust" in err
    assert not trace.exists()
    assert os.listdir() == []


def test_code_beside_a_configuration_of_somebody_else_is_asked_for(here, trace, capsys):
    shutil.copytree("run", "theirs")
    shutil.copy("dens.py", "theirs/evil.py")
    edit("theirs", f"{here}/dens.py:f", "theirs/evil.py:f")
    err = refused(capsys, "train", "density", "--config", "theirs/config.toml", "--out", "new")
    assert "theirs/config.toml names code beside the configuration: " in err
    assert not trace.exists()
    edit("theirs", "theirs/evil.py:f", "dens.py:f")
    shutil.copy("theirs/config.toml", "mine.toml")  # the working directory itself is the reader's
    assert main(["train", "density", "--config", "mine.toml", "--out", "new", "--steps", "2"]) == 0


@pytest.mark.parametrize("reader", ["evaluate", "resume"])
def test_notes_are_told_only_after_processes_have_joined(here, monkeypatch, capsys, reader):
    def joined(*args):
        raise pg.UserError("All have joined.")

    def asked():
        raise AssertionError("JAX was asked before")

    Path("dens.py").write_text(CODE.format(mean=2.0))
    monkeypatch.setattr(Processes, "together", joined)
    monkeypatch.setattr(pg.devices, "is_first", asked)
    assert "All have joined" in refused(capsys, *words(reader, "run"), "--trust")


def test_code_that_is_gone_is_not_called_foreign(here, capsys):
    Path("dens.py").unlink()
    err = refused(capsys, "evaluate", "run")
    assert f"run names code that is not there or cannot be found: {here}/dens.py:f. Restore it" in err
    assert "--density" in err
    assert "--trust" not in err


def test_older_checkpoints_load_with_a_word(here):
    newest = pg.Run.open("run").directory.checkpoints.newest()
    assert newest is not None
    like = pg.Run.open("run").problem().training
    trainer = like.trainer(key=pg.run_keys(0)[1])
    state = load(newest, eqx.filter_eval_shape(trainer.init, like.model))
    meta = {"seconds": read_header(newest).meta["seconds"]}
    save(newest, state, step=2, meta=meta)
    Path("dens.py").write_text(CODE.format(mean=2.0))
    run = pg.Run.open("run")
    [note] = run.notes
    assert "older pathgrad" in note
    run.flow()


def test_compiled_code_beside_a_file_is_not_run(here, trace):
    source = Path("dens.py").read_text()
    Path("evil.py").write_text(source.replace("mean", "") + "\nopen('evil', 'w')\n")
    name = f"__pycache__/dens.{sys.implementation.cache_tag}.pyc"
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile("evil.py", cfile=name, invalidation_mode=mode)
    pg.Run.open("run").problem()
    assert trace.exists()
    assert not Path("evil").exists()
