"""`--optimizer gauss-newton`, as it is typed."""

import json
import shutil

import jax
import numpy as np

import pathgrad as pg
from pathgrad._cli import train
from pathgrad._cli.main import main
from pathgrad._runs.work import trained

TOY = ["train", "toy", "--optimizer", "gauss-newton", "--width", "4", "--depth", "1"]
TOY += ["--solver-steps", "4", "--checkpoint-seconds", "0"]


def rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def without_time(path):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows(path)]


def arrays(path):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(trained(pg.Run.open(path)).state)]


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
    monkeypatch.setattr(train, "train", lambda *a, **_: seen.append(a) or 0)
    density = "tests/test_gauss_newton_commands.py:rows"
    assert main(["train", "toy", "--optimizer", "gauss-newton"]) == 0
    assert main(["train", "phi4", "--optimizer=gauss-newton", "--steps", "7"]) == 0
    assert main(["train", "density", density, "--dim", "3", "--optimizer", "gauss-newton"]) == 0
    assert main(["train", "density", density, "--dim", "3"]) == 0
    training = [options.training for _, options, *_ in seen]
    assert [t.steps for t in training] == [30, 7, 30, 1000]
    assert [options.name for _, options, *_ in seen] == [
        "toy-banana-gauss-newton-s0",
        "phi4-L6-gauss-newton-s0",
        "density-rows-gauss-newton-s0",
        "density-rows-path-s0",
    ]


def test_too_many_parameters_and_too_few_draws_are_one_line(tmp_path, capsys):
    words = ["train", "toy", "--optimizer", "gauss-newton", "--out", str(tmp_path / "run")]
    assert main([*words, "--width", "128"]) == 2
    assert "too many for Gauss-Newton" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert main([*words, "--draws-per-parameter", "0.5"]) == 2
    assert "--draws-per-parameter must be greater than 1" in capsys.readouterr().err


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
    assert [path.name for path in kept] == ["step-000000011.safetensors", "step-000000012.safetensors"]
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
    assert main(["train", "toy", "--optimizer", "gauss-newton", "--newton-steps", "2"]) == 2
    assert "--newton-steps must be at least 0 and follow steps of adam" in capsys.readouterr().err
