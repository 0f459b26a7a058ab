"""`pathgrad train phi4`, as it is typed."""

import json
import shutil

import pytest

import pathgrad as pg
from pathgrad._cli import training
from pathgrad._cli.main import main
from pathgrad._errors import UserError
from pathgrad.experiments import registry
from pathgrad.experiments.phi4.options import PRESETS, LatticeFlowOptions, Phi4Options
from pathgrad.experiments.phi4.problem import solver_steps

SMALL = [
    "--time-bond",
    "2",
    "--features",
    "5",
    "--channels",
    "3",
    "--steps",
    "80",
    "--block",
    "20",
    "--batch",
    "32",
]


def rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("phi4") / "L4"
    words = ["train", "phi4", "--size", "4", "--coupling", "6.975", "--out", str(out)]
    assert main([*words, *SMALL]) == 0
    return out


def test_training_improves_and_is_recorded(trained):
    first, *_, last = rows(trained)
    assert last["step"] == 80
    assert last["loss"] < first["loss"] - 0.5
    assert last["loss_err"] > 0
    assert "below_bound" not in last
    config = (trained / "config.toml").read_text()
    for word in ('experiment = "phi4"', "coupling = 6.975", "features = 5", "beta1 = 0.8"):
        assert word in config


def test_larger_lattice_from_a_smaller_one(trained, tmp_path):
    """The model is that of the smaller run unless something larger is asked for."""
    words = ["train", "phi4", "--size", "6", "--init-from", str(trained), "--steps", "2", "--block"]
    assert (
        main([*words, "2", "--batch", "16", "--channels", "4", "--out", str(tmp_path / "a")]) == 0
    )
    config = (tmp_path / "a" / "config.toml").read_text()
    assert "features = 5" in config
    assert "channels = 4" in config
    cold = ["train", "phi4", "--size", "6", *SMALL, "--steps", "2", "--block", "2", "--batch", "16"]
    assert main([*cold, "--out", str(tmp_path / "b")]) == 0
    assert rows(tmp_path / "a")[-1]["loss"] < rows(tmp_path / "b")[-1]["loss"] - 0.5


def test_killed_transfer_begins_with_what_it_was_given(trained, tmp_path):
    """Even before its first checkpoint, and with the smaller run gone."""
    source, out = tmp_path / "source", tmp_path / "run"
    shutil.copytree(trained, source)
    words = [
        "train",
        "phi4",
        "--size",
        "6",
        "--steps",
        "2",
        "--block",
        "1",
        "--batch",
        "16",
        "--out",
    ]
    assert main([*words, str(out), "--init-from", str(source)]) == 0
    config = (out / "config.toml").read_text()
    assert "init_from_step = 80" in config
    first = rows(out)
    for checkpoint in (out / "checkpoints").iterdir():
        if "step-000000000." not in checkpoint.name:
            checkpoint.unlink()
    (out / "metrics.jsonl").write_text("")
    shutil.rmtree(source)
    assert main(["train", "phi4", "--out", str(out), "--resume"]) == 0
    assert [r["loss"] for r in rows(out)] == [r["loss"] for r in first]


def test_same_lattice_goes_on_with_everything_but_the_training(trained, tmp_path):
    out = tmp_path / "again"
    words = ["train", "phi4", "--init_from", str(trained), "--steps", "1", "--block", "1"]
    assert main([*words, "--batch", "16", "--out", str(out)]) == 0
    config = (out / "config.toml").read_text()
    for word in ("size = 4", "coupling = 6.975", "features = 5"):
        assert word in config
    assert rows(out)[0]["loss"] < rows(trained)[0]["loss"] - 0.5


def test_what_cannot_be_grown_is_refused(trained, tmp_path, capsys):
    words = ["train", "phi4", "--init-from", str(trained), "--out", str(tmp_path / "c"), "--size"]
    assert main([*words, "6", "--channels", "2"]) == 2
    assert "not shrink" in capsys.readouterr().err
    assert main([*words, "2", "--coupling", "1"]) == 2
    assert "from size 4 to 2" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()
    words[3] = str(tmp_path / "nowhere")
    assert main([*words, "6"]) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--size", "7"], "give --coupling"),
        (["--time-kernels", "4"], "odd"),
        (["--time-kernels", "21", "--solver-steps", "8"], "at least 20"),
        (["--base-mass-squared", "-1"], "must be positive"),
        (["--coupling", "-1"], "no lower bound"),
        (["--base", "unit", "--base-mass-squared", "1"], "--base free"),
        (["--time-kernels", "1", "--solver-steps", "0"], "at least 1"),
        (["--beta2", "1"], "--beta2"),
    ],
)
def test_bad_options_are_one_line(words, said, tmp_path, capsys):
    assert main(["train", "phi4", *words, "--out", str(tmp_path / "d")]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_steps_resolve_the_fastest_time_kernel():
    assert solver_steps(LatticeFlowOptions(time_kernels=1)) == 6
    assert solver_steps(LatticeFlowOptions(time_kernels=3)) == 6
    assert solver_steps(LatticeFlowOptions(time_kernels=21)) == 40
    assert solver_steps(LatticeFlowOptions(time_kernels=21, solver_steps=20)) == 20


def test_paper_preset_is_the_published_one():
    options = PRESETS["paper"]
    flow, training_options = options.flow, options.training
    assert (flow.time_kernels, flow.time_bond, flow.features, flow.channels) == (21, 20, 50, 20)
    assert (flow.base, flow.solver_steps, flow.adjoint) == ("unit", 50, "backsolve")
    assert (training_options.batch, training_options.learning_rate) == (5000, 5e-4)
    assert (training_options.beta1, training_options.beta2, training_options.decay) == (
        0.9,
        0.999,
        "none",
    )
    assert registry.build("phi4", options).training.model.shape == (12, 12)


def test_a_known_log_z_is_the_bound_of_the_loss():
    """With its error, where it has one; the trainer marks rows below it, and the door tells of the first."""
    objective = registry.build("phi4", Phi4Options()).training.objective
    assert objective.lower_bound == (pytest.approx(-6.984948), 1e-6)
    assert registry.build("phi4", Phi4Options(12)).training.objective.lower_bound[1] > 0
    assert registry.build("phi4", Phi4Options(5, 4.0)).training.objective.lower_bound is None
    told = training._alarm(pg.Row(3, loss=-7.3, below_bound=0.315))
    assert "the loss -7.3000 is 0.3150 below -log Z = -6.9850" in told
    assert "--solver-steps" in told


def test_unknown_size_has_no_default_coupling():
    with pytest.raises(UserError, match="6, 8, 10, 12, 14, 20, 32, 64"):
        _ = Phi4Options(size=9).action_coupling
