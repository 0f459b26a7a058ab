"""`--optimizer gauss-newton` and `--preset best`, as they are typed."""

import json
import re
import shutil
import signal
import types

import jax
import numpy as np
import pytest

from pathgrad._cli import training
from pathgrad._cli.loading import load_run
from pathgrad._cli.main import main
from pathgrad._train.rundir import RunDir
from pathgrad.experiments.phi4 import options as phi4
from pathgrad.experiments.phi4.options import ladder
from pathgrad.experiments.registry import read_options

TOY = ["train", "toy", "--optimizer", "gauss-newton", "--width", "4", "--depth", "1"]
TOY += ["--solver-steps", "4", "--checkpoint-seconds", "0"]


SHORT = {6: ((3, 4, 2), 4, 2), 8: ((3, 5, 3), 4, 2)}


def rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def without_time(path):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows(path)]


def arrays(path):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(load_run(path).state)]


def test_toy_run_resumes_to_the_same_bits(tmp_path, capsys):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert main([*TOY, "--steps", "4", "--out", str(whole)]) == 0
    assert main([*TOY, "--steps", "2", "--out", str(broken)]) == 0
    assert main(["train", "toy", "--out", str(broken), "--resume", "--steps", "4"]) == 0
    assert without_time(whole) == without_time(broken)
    for a, b in zip(arrays(whole), arrays(broken), strict=True):
        np.testing.assert_array_equal(a, b)
    assert rows(whole)[-1]["ess"] > rows(whole)[0]["ess"]
    assert {"draws", "damping", "explained", "shrink", "agreement"} <= set(rows(whole)[0])
    assert "4 steps in" in capsys.readouterr().out


def test_defaults_go_with_the_optimiser(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("pathgrad._cli.training.train", lambda *a: seen.append(a) or 0)
    density = "tests/test_gauss_newton_commands.py:rows"
    assert main(["train", "toy", "--optimizer", "gauss-newton"]) == 0
    assert main(["train", "phi4", "--optimizer=gauss-newton", "--steps", "7"]) == 0
    assert main(["fit", density, "--dim", "3", "--optimizer", "gauss-newton"]) == 0
    assert main(["fit", density, "--dim", "3"]) == 0
    training = [options.training for _, options, *_ in seen]
    assert [t.steps for t in training] == [30, 7, 30, 1000]
    assert [options.name for _, options, *_ in seen] == [
        "toy-banana-gauss-newton-s0",
        "phi4-L6-gauss-newton-s0",
        "fit-rows-gauss-newton-s0",
        "fit-rows-path-s0",
    ]


def test_too_many_parameters_and_too_few_draws_are_one_line(tmp_path, capsys):
    words = ["train", "toy", "--optimizer", "gauss-newton", "--out", str(tmp_path / "run")]
    assert main([*words, "--width", "128"]) == 2
    assert "too many for Gauss-Newton" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert main([*words, "--draws-per-parameter", "0.5"]) == 2
    assert "--draws-per-parameter must be greater than 1" in capsys.readouterr().err


@pytest.fixture
def short_ladder(monkeypatch):
    monkeypatch.setattr(phi4, "_RUNGS", SHORT)


def _interrupting(clock):
    """Return a clock that presses Ctrl-C when it is first read in training."""
    pressed = []

    def read():
        if not pressed and isinstance(signal.getsignal(signal.SIGINT), types.FunctionType):
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)
        return clock()

    return read


@pytest.mark.slow
def test_ladder_is_one_command_and_resumes(short_ladder, tmp_path, capsys, monkeypatch):
    words = ["train", "phi4", "--preset", "best", "--seed", "3", "--out"]
    assert main([*words, str(tmp_path / "a"), "--size", "8"]) == 0
    said = capsys.readouterr().out
    assert "L6" in said
    assert "in all" in said
    small, large = (RunDir.open(tmp_path / "a" / name).config for name in ("L6", "L8"))
    assert large["options"]["init_from"] == str(tmp_path / "a" / "L6")
    assert large["provenance"]["init_from_step"] == 2
    assert small["options"]["training"]["seed"] == large["options"]["training"]["seed"] == 3
    assert small["options"]["flow"]["channels"] == 2
    assert large["options"]["flow"]["channels"] == 3
    # What was learnt at size 6 is there at size 8.
    assert rows(tmp_path / "a" / "L8")[0]["ess"] > 2 * rows(tmp_path / "a" / "L6")[0]["ess"]

    # A ladder that exists is not touched; one that was killed before the first checkpoint of its second rung
    # begins that anew, with what the first has learnt, also when it is found by another path.
    assert main([*words, str(tmp_path / "a"), "--size", "8"]) == 2
    assert "--resume" in capsys.readouterr().err
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(tmp_path / "b" / "L8" / "checkpoints")
    monkeypatch.chdir(tmp_path)
    assert main([*words, "b", "--size", "8", "--resume"]) == 0
    assert without_time(tmp_path / "a" / "L8") == without_time(tmp_path / "b" / "L8")


@pytest.mark.slow
def test_interrupted_ladder_says_how_to_go_on(short_ladder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["train", "phi4", "--preset", "best", "--seed", "3", "--out", "b", "--size", "8"]
    assert main(words) == 0
    before = without_time(tmp_path / "b" / "L8")
    with monkeypatch.context() as patched:
        patched.setattr(training.time, "monotonic", _interrupting(training.time.monotonic))
        assert main([*words, "--overwrite"]) == 130
    (command,) = re.findall(r"Go on with: pathgrad (.*)", capsys.readouterr().err)
    assert not (tmp_path / "b" / "L8").exists()  # nothing of the old ladder is left
    # It goes on to the top, with the same seed.
    assert main(command.split()) == 0
    assert without_time(tmp_path / "b" / "L8") == before


def test_ladder_of_another_version_is_not_mixed_up(short_ladder, tmp_path, capsys, monkeypatch):
    words = ["train", "phi4", "--preset", "best", "--size", "6", "--out", str(tmp_path)]
    shutil.rmtree(tmp_path)
    assert main(words) == 0
    monkeypatch.setattr(phi4, "_RUNGS", {6: ((3, 6, 2), 4, 2)})
    assert main([*words, "--resume"]) == 2
    assert "--features 4 -> 6" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--channels", "9"], "sets model and training of its runs itself"),
        (["--steps", "1500"], "got --steps"),
        (["--size", "10"], "must be one of 6, 8, 12, 20, 32"),
    ],
)
def test_ladder_refuses_what_it_would_ignore(more, said, tmp_path, capsys):
    assert main(["train", "phi4", "--preset", "best", "--out", str(tmp_path / "x"), *more]) == 2
    assert said in capsys.readouterr().err


def test_ladder_grows_and_its_options_can_be_stored():
    rungs = ladder(32, seed=1)
    assert [r.size for r in rungs] == [6, 8, 12, 20, 32]
    assert {r.training.optimizer for r in rungs} == {"gauss-newton"}
    channels = [r.flow.channels for r in rungs]
    assert channels == sorted(channels)
    old = {"experiment": "phi4", "options": {"training": {"estimator": "total"}}}
    assert read_options(old, "a run of before")[1].training.optimizer == "adam"


def test_adam_then_gauss_newton_is_one_run(tmp_path, capsys):
    """It resumes to the same bits from its second stage, and only that can be prolonged."""
    adam = ["train", "toy", "--width", "4", "--depth", "1", "--solver-steps", "4", "--batch", "16"]
    adam += ["--block", "5", "--average", "0.9", "--checkpoint-seconds", "0"]
    stages = [*adam, "--steps", "10", "--newton-steps", "2"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert main([*stages, "--out", str(whole)]) == 0
    assert [row["step"] for row in rows(whole)] == [5, 10, 11, 12]
    assert [row["stage"] for row in rows(whole)] == [0, 0, 1, 1]
    shutil.copytree(whole, broken)
    kept = sorted((broken / "checkpoints").iterdir())
    assert [path.name for path in kept] == ["step-000000011.ckpt", "step-000000012.ckpt"]
    kept[1].unlink()
    assert main(["train", "toy", "--out", str(broken), "--resume"]) == 0
    assert without_time(broken) == without_time(whole)
    for a, b in zip(arrays(whole), arrays(broken), strict=True):
        np.testing.assert_array_equal(a, b)
    resume = ["train", "toy", "--out", str(whole), "--resume"]
    assert main([*resume, "--newton-steps", "3"]) == 0
    assert [row["step"] for row in rows(whole)] == [5, 10, 11, 12, 13]
    capsys.readouterr()
    assert main([*resume, "--steps", "20"]) == 2
    assert "only --newton-steps and --max-seconds may change" in capsys.readouterr().err
    assert main([*adam, "--optimizer", "gauss-newton", "--newton-steps", "2"]) == 2
    assert "--newton-steps come after those of adam" in capsys.readouterr().err
