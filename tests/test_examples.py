"""The examples run, end in a number near the truth and in a picture, and are listed in their README."""

import ast
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.integrate import dblquad

from pathgrad.experiments.phi4.reference import REFERENCE

from .docs_helpers import ROOT

FOLDER = ROOT / "examples"
SCRIPTS = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
README = (FOLDER / "README.md").read_text()
LIMIT = 600  # seconds; alone on two cores each takes less than 120


def run(name, folder):
    """Return what a script prints: all of it, and the number and error of its last line."""
    # The tests' own flags are for quick compiling, not for quick code.
    env = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    env |= {"PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "Agg"}
    command = [sys.executable, SCRIPTS[name], "--out", folder / "out"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert not is_blank(matplotlib.image.imread(folder / "out" / f"{name}.png")[..., :3])
    assert [path.name for path in folder.iterdir()] == ["out"]  # nothing is written elsewhere
    value, error = re.findall(r": (-?[\d.]+) \+- ([\d.]+)", done.stdout.splitlines()[-1])[0]
    return done.stdout, float(value), float(error)


def is_blank(picture):
    """Say whether there is nothing but frames and letters: without colour, and 4 % of it dark at most."""
    coloured = np.mean(picture.max(axis=-1) - picture.min(axis=-1) > 0.2)
    dark = np.mean(picture.max(axis=-1) < 0.5)
    return coloured < 0.005 and dark < 0.08


def share(text, pattern):
    (found,) = re.findall(pattern + r"([\d.]+)%", text)
    return float(found) / 100


@pytest.mark.slow
def test_own_density_finds_the_mean(tmp_path):
    text, value, error = run("own_density", tmp_path)
    dose, died = np.array([-0.86, -0.30, -0.05, 0.73]), np.array([0, 1, 3, 5])

    def density(slope, intercept):
        chance = 1 / (1 + np.exp(-intercept - slope * dose))
        return math.exp(-(intercept**2) / 8 - (slope - 10) ** 2 / 200) * np.prod(
            chance**died * (1 - chance) ** (5 - died)
        )

    whole = dblquad(density, -6, 10, -15, 60, epsrel=1e-4)[0]
    mean = dblquad(lambda s, i: s * density(s, i), -6, 10, -15, 60, epsrel=1e-4)[0] / whole
    assert "verdict  good" in text
    assert abs(value - mean) < 4 * error
    assert error < 0.03  # the posterior's standard deviation is 4.4, and there are 65,536 samples


@pytest.mark.slow
def test_bad_fit_is_told_and_mended(tmp_path):
    text, value, error = run("bad_fit", tmp_path)
    verdicts = re.findall(r"verdict  (\w+)", text)
    assert verdicts == ["good", "unreliable", "good"]
    # The target is normalised; the one mode that is found at first holds 0.6 of it.
    assert abs(value) < 4 * error + 5e-5  # it is printed with four digits
    assert error < 0.001
    (before,) = re.findall(r"with one mode (-?[\d.]+)", text)
    assert float(before) == pytest.approx(math.log(0.6), abs=0.005)


@pytest.mark.slow
def test_own_field_beats_the_default_one(tmp_path):
    text, value, error = run("own_field", tmp_path)
    # Ginibre's integral: of eigenvalues of complex normal matrices.
    exact = 6 * math.log(math.pi) + math.log(math.prod(math.factorial(k) for k in range(1, 7)))
    assert abs(value - exact) < 4 * error
    assert error < 0.002
    # Seen at learning rates of the default field from 0.002 to 0.02: 18 % to 32 %.
    own, default = (share(text, rf"{name} field, .* ESS ") for name in ("own", "default"))
    assert own > 0.85
    assert default < 0.6


@pytest.mark.slow
def test_amortised_posteriors_are_calibrated(tmp_path):
    text, value, _ = run("amortised", tmp_path)
    # A normal has the density 0.1 at its 5 % and 95 % quantiles. Intervals with both ends off by a tenth of a
    # standard deviation, outwards or inwards, would hold 0.02 more or less than they should.
    assert abs(value - 0.9) < 0.02
    (off, ratio) = re.findall(r"off by ([\d.]+) .* is ([\d.]+) times", text)[0]
    assert float(off) < 0.1
    assert float(ratio) == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_the_ladder_reaches_the_exact_log_z(tmp_path):
    text, value, error = run("lattice_ladder", tmp_path)
    exact = REFERENCE[8]["log_z"]
    assert exact.value == 15.98649
    assert abs(value - exact.value) < 4 * math.hypot(error, exact.error)
    assert error < 0.0005
    assert share(text, r"\(exact .*ESS ") > 0.99
    assert "verdict: good" in text


@pytest.mark.slow
def test_the_autoencoder_comes_near_the_entropy(tmp_path):
    _, value, error = run("autoencoder", tmp_path)
    entropy = math.log(math.comb(7, 2) ** 2)  # edges of a rectangle are two of seven lines, twice
    assert value > entropy - 4 * error
    # Untrained it is 114, and 71 was seen with a posterior that ignores the images.
    assert value < 2 * entropy


@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (3, 12)])
def test_empty_axes_would_be_seen(rows, columns, tmp_path):
    figure, axes = plt.subplots(rows, columns, figsize=(9, 3), layout="constrained", squeeze=False)
    axes[0, 0].set(title="Nothing", xlabel="nothing", ylabel="nothing")
    figure.savefig(tmp_path / "empty.png", dpi=120)
    plt.close(figure)
    assert is_blank(matplotlib.image.imread(tmp_path / "empty.png")[..., :3])


def test_every_script_is_run_above():
    assert set(re.findall(r' = run\("(\w+)", tmp_path\)', Path(__file__).read_text())) == set(SCRIPTS)
    assert len(SCRIPTS) == 6


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_says_what_it_shows(name):
    text = SCRIPTS[name].read_text()
    said = ast.get_docstring(ast.parse(text))
    assert said is not None
    assert "It takes about" in " ".join(said.split())
    assert "You should see" in " ".join(said.split())
    assert len(text.splitlines()) <= 125
    assert f"[`{name}.py`]({name}.py)" in README
    assert "pathgrad._" not in text  # public names only


def test_pictures_stand_above_their_command():
    pictures = re.findall(r"!\[[^\]]+\]\((\w+)\.png\)\n\n```\npython examples/(\w+)\.py\n```", README)
    assert pictures
    assert len(pictures) == README.count("![")
    for picture, script in pictures:
        assert picture == script
        assert (FOLDER / f"{picture}.png").stat().st_size < 100_000


def test_what_they_write_is_not_tracked():
    assert "/examples/out/" in (ROOT / ".gitignore").read_text().splitlines()
