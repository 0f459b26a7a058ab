"""Experiments are what other people can add: a package made on the spot works with every command."""

import ast
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pathgrad as pg
from pathgrad._runs.experiment import experiment_names

SOURCE = Path(pg.__file__).parent
BUILT_IN = {"toy", "fit", "phi4", "vae"}

# All that a package must have: options and a target; and, because it wants to, a result and a picture.
PACKAGE = '''
import dataclasses

import pathgrad as pg
from pathgrad.experiments.options import FlowOptions, TrainOptions


@dataclasses.dataclass(frozen=True)
class QuarticOptions:
    """Fit a flow to exp(-stiffness x^4), skewed."""

    stiffness: float = 1.0
    """How steep the walls are."""
    flow: FlowOptions = FlowOptions(width=8, depth=1, solver_steps=4)
    training: TrainOptions = TrainOptions(steps=20, batch=16, block=10)

    @property
    def name(self):
        return f"quartic-{self.training.method}"


class Mean:
    """The mean of x over the target, from the weights."""

    def __init__(self, n):
        self.x, self.log_weight = [], []

    def add(self, chunk):
        self.x.append(chunk["x"][:, 0])
        self.log_weight.append(chunk["log_weight"])

    def finish(self, found):
        import numpy as np

        x, log_weight = np.concatenate(self.x), np.concatenate(self.log_weight)
        weight = np.exp(log_weight - log_weight.max())
        return {"mean_x": float((weight * x).sum() / weight.sum())}, {"x": x, "log_weight": log_weight}


def draw_heights(axes, groups):
    for group in groups:
        axes.plot(sorted(group.first.arrays["x"])[::50], label=group.label)
    return "Sorted draws."


class Quartic(pg.AbstractFlowExperiment):
    name = "quartic"
    summary = "fit a flow to a quartic well"
    Options = QuarticOptions

    def problem(self, options):
        return f"stiffness {options.get('stiffness', 1.0):g}"

    def build(self, options):
        import jax.numpy as jnp

        from pathgrad.experiments.flows.making import make_flow, make_training

        def log_prob(x):
            return jnp.sum(-options.stiffness * x**4 + x)

        flow = make_flow(options.flow, (1,), key=pg.run_keys(options.training.seed)[0])
        training = make_training(options.training, flow, pg.LogDensity(log_prob, (1,)))
        return pg.FlowProblem(training, measure=Mean)

    def measured(self, options):
        return [*super().measured(options), pg.Quantity("mean_x", "mean of x", "{:.3f}", compared=True)]

    def tables(self, run):
        row = ("mean", f"{run.evaluation['mean_x']:.3f}")
        return [pg.ResultTable("Moments of the quartic", ("moment", "value"), [row])]

    def panels(self):
        return {**super().panels(), "heights": pg.Panel("Heights", draw_heights, needs=("x",))}


QUARTIC = Quartic()
'''


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return what runs a command of pathgrad where the package is installed, and where it leaves things."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "quartic_package.py").write_text(PACKAGE)
    about = folder / "quartic_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: quartic-package\nVersion: 1.0\n")
    points = "quartic = quartic_package:QUARTIC\nbroken = no_such_module_of_theirs:X\n"
    points += "renamed = quartic_package:QUARTIC\nhollow = quartic_package:QuarticOptions\n"
    (about / "entry_points.txt").write_text(f"[pathgrad.experiments]\n{points}")
    path = os.pathsep.join([str(folder), str(SOURCE.parent)])

    def run(*words, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "pathgrad", *map(str, words)],
            capture_output=True,
            text=True,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": path},
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return run, folder


def test_a_package_adds_an_experiment_to_every_command(installed):
    command, folder = installed
    shown = command("--help")
    assert "train quartic" in shown
    assert "fit a flow to a quartic well" in shown
    # What is broken is named, and hinders nobody.
    assert "no_such_module_of_theirs" in shown
    assert "calls itself 'quartic'" in shown
    assert "must be an instance" in shown
    command("train", "quartic", "--stiffness", 0.5, "--out", "path")
    total = Path(shutil.copytree(folder / "path", folder / "total")) / "config.toml"
    total.write_text(total.read_text().replace('"path"', '"total"'))
    command("train", "quartic", "--out", "path", "--resume", "--steps", 40)
    said = command("evaluate", "path", "--samples", 2000)
    result = json.loads(said.strip().splitlines()[-1])
    assert (result["experiment"], result["step"]) == ("quartic", 40)
    # The mean by quadrature; the weights' own error is about 1 / sqrt(2000 ESS).
    x = np.linspace(-4, 4, 4001)
    density = np.exp(-0.5 * x**4 + x)
    exact = (x * density).sum() / density.sum()
    assert abs(result["mean_x"] - exact) < 5 / np.sqrt(2000 * result["ess"])
    assert "Moments of the quartic" in said
    command("sample", "path", "--n", 100, "--out", "draws.npz")
    with np.load(folder / "draws.npz") as draws:
        assert draws["x"].shape == (100, 1)
    compared = command("compare", "path", "total", "--plot", "compare.png")
    assert "mean of x" in compared
    assert "quartic stiffness 0.5" in compared
    command("plot", "path", "--figure", "heights", "--out", "heights.png")
    command("report", "path", "total", "--out", "report.html")
    page = (folder / "report.html").read_text()
    assert "Moments of the quartic" in page
    assert "Heights" in page


def test_the_experiments_of_the_library_come_by_the_same_way():
    assert set(experiment_names()) >= BUILT_IN
    for name in BUILT_IN:
        experiment = pg.find_experiment(name)
        assert experiment.name == name
        options = experiment.defaults()
        again = experiment.read(json.loads(json.dumps(_table(options))), "here")
        assert again == options


def _table(options):
    def without_none(table):
        return {k: without_none(v) if isinstance(v, dict) else v for k, v in table.items() if v is not None}

    return without_none(dataclasses.asdict(options))


def test_an_unknown_experiment_is_named_with_those_that_are_there():
    with pytest.raises(pg.UserError, match=r"no experiment 'quartz'.*toy"):
        pg.find_experiment("quartz")


def test_nothing_outside_asks_which_experiment_it_is():
    """No module compares with an experiment's name, and runs and pictures do not know their folder."""
    for path in SOURCE.rglob("*.py"):
        inside = path.relative_to(SOURCE).parts
        if inside[0] == "experiments":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare | ast.MatchValue):
                words = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
                assert not words & BUILT_IN, f"{path}:{node.lineno}"
        if inside[0] in ("_runs", "_show"):
            assert "pathgrad.experiments." not in path.read_text().replace('"pathgrad.experiments"', "")
