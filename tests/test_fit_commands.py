"""`pathgrad fit`: a density from a file is fitted with nothing chosen, and leaves a run like any other."""

import json
import math
import shutil
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._cli.main import main
from pathgrad._runs.checkpoint import read_header
from pathgrad.experiments.fit.experiment import FIT
from pathgrad.experiments.fit.options import FitOptions, FitTrainOptions
from pathgrad.experiments.fit.problem import build

from .run_helpers import refused

# A bent density far from the origin, with unlike scales and a large constant; its normaliser is known.
DENSITIES = """
import math
import jax.numpy as jnp
import pathgrad as pg

def bent(x):
    u, v = (x[0] - 40.0) / 3.0, (x[1] + 7.0) / 0.02
    return -0.5 * (u**2 + (v + 2.0 * (u**2 - 1)) ** 2) - math.log(2 * math.pi * 0.06) + 900.0

known = pg.LogDensity(bent, (2,))

def flat(x):
    return -0.5 * x[0] ** 2
"""
LOG_Z = 900.0
ROUNDS = 3
TRAINING = FitTrainOptions(max_seconds=1e4, batch=32, first=20, rounds=ROUNDS, look_draws=1000)
STEPS = 20 * (2**ROUNDS - 1)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("densities") / "mine.py"
    path.write_text(DENSITIES)
    return path


@pytest.fixture(scope="module")
def runs(file, tmp_path_factory):
    """A run, and copies of its directory as a kill inside a round, between two, and at once would leave it."""
    folder = tmp_path_factory.mktemp("runs")
    options = FitOptions(f"{file}:known", flow="tied", training=TRAINING)
    with pg.session(FIT, options, folder / "whole") as work:
        for row in work.rows(0.0):
            name = {50: "inside", 60: "between"}.get(row.step)
            # A row is written before the checkpoint of its block.
            if name:
                shutil.copytree(folder / "whole", folder / name)
    begun = Path(shutil.copytree(folder / "inside", folder / "begun"))
    shutil.rmtree(begun / "checkpoints")
    return folder


def last(run):
    return read_header(max((run / "checkpoints").glob("*.safetensors")))


def rows(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    # What a resumed run is, and not when it was.
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def options_of(run):
    return tomllib.loads((run / "config.toml").read_text())["options"]


@pytest.mark.parametrize("broken", ["inside", "between", "begun"])
def test_a_killed_fit_resumes_to_the_same_bits(runs, broken):
    assert last(runs / "whole").step == STEPS
    if broken != "begun":
        assert last(runs / broken).step < STEPS
    resumed = pg.train("fit", out=runs / broken, resume=True)
    assert last(resumed.path).sha256 == last(runs / "whole").sha256
    assert options_of(resumed.path) == options_of(runs / "whole")
    mine, whole = rows(resumed.path), rows(runs / "whole")
    assert [row["step"] for row in whole] == [20, 50, 60, 100, 140]
    for one, other in zip(mine, whole, strict=True):
        # The first round was planned before the number of rounds was.
        assert {**one, "planned_steps": 0} == {**other, "planned_steps": 0}
