"""How far a run is, as its files and its lock say."""

import re
import shlex

import pytest

import pathgrad as pg
from pathgrad._words.errors import as_options

from .run_helpers import make_run, rows_of


def opened(path, rows, **how):
    make_run(path, rows, **how)
    return pg.Run.open(path)


def test_a_run_that_goes_on_is_not_disturbed(tmp_path):
    run = opened(tmp_path / "run", rows_of([0.2]), steps=50)
    with run.directory.locked():
        assert run.is_training
        assert run.status == ("running", "training now: step 10 of 50")
        assert run.is_training  # another look has not taken the lock away
    assert not run.is_training
    (run.path / "lock").unlink()
    assert not run.is_training
    assert not (run.path / "lock").exists()


def test_a_run_that_was_killed_says_how_to_go_on(tmp_path):
    run = opened(tmp_path / "run", rows_of([0.2]), steps=50)
    assert run.status.kind == "stopped"
    assert "resume" not in run.status.text  # there is nothing to go on from
    (run.path / "checkpoints").mkdir()
    (run.path / "checkpoints/step-10.npz").touch()
    run = pg.Run.open(run.path)
    assert "--" not in run.status.text  # it is the reader's door that speaks of options
    assert as_options(run.status.text).endswith(f"`pathgrad train phi4 --out {run.path} --resume`")
    assert opened(tmp_path / "empty", [], steps=5).status.kind == "empty"


def test_commands_can_be_pasted(tmp_path):
    path = tmp_path / "it's a $HOME ü" / "run"
    run = opened(path, rows_of([0.2]), steps=50)
    (path / "checkpoints").mkdir()
    (path / "checkpoints/step-10.npz").touch()
    [resume] = re.findall("`(.*)`", as_options(pg.Run.open(path).status.text))
    assert shlex.split(resume) == ["pathgrad", "train", "phi4", "--out", str(path), "--resume"]
    assert shlex.split(run.evaluate_command) == ["pathgrad", "evaluate", str(path)]


@pytest.mark.parametrize(
    ("training", "last", "ends"),
    [
        ({"steps": 10}, {}, "all its steps are done"),
        ({"steps": 99, "max_seconds": 1.0}, {}, "its 1.0 s of training are used up"),
        ({"epochs": 9, "max_seconds": 2.0}, {"more": {"planned_steps": 10}}, "planned for its 2.0 s"),
        ({"epochs": 9, "max_seconds": 2.0}, {"more": {"planned_steps": 11}}, None),
        ({"epochs": 5}, {"epoch": 5.0}, "all its epochs are done"),
        ({"epochs": 9, "patience": 2}, {"epoch": 5.0, "waiting": 3}, "no better validation"),
        ({"epochs": 9, "patience": 3}, {"epoch": 5.0, "waiting": 3}, None),
        ({"steps": 11}, {}, None),
    ],
)
def test_why_a_run_ended(tmp_path, training, last, ends):
    experiment = "vae" if "epochs" in training else "phi4"
    run = opened(tmp_path / "run", [pg.Row(10, 1.5, **last)], experiment=experiment, training=training)
    assert run.status.kind == ("ended" if ends else "stopped")
    assert ends is None or ends in run.status.text


@pytest.mark.parametrize(
    "config", ["experiment = ", 'experiment = "x"\noptions = 3\n', 'experiment = "x"\nprovenance = 1']
)
def test_a_broken_configuration_is_refused(tmp_path, config):
    run = opened(tmp_path / "run", rows_of([0.4]))
    (run.path / "config.toml").write_text(config)
    with pytest.raises(pg.UserError, match=r"config\.toml"):
        pg.Run.open(run.path)
