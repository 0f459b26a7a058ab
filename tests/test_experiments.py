"""Experiments are what other people can add: a package made on the spot works with every command."""

import ast
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import pathgrad as pg
from pathgrad._cli.main import main
from pathgrad._runs import experiment as experiment_module
from pathgrad._runs.experiment import experiment_names

SOURCE = Path(pg.__file__).parent
BUILT_IN = {"toy", "fit", "density", "phi4", "vae"}

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
    assert "its `name` is 'quartic'" in shown
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
    costs = command("bench", "quartic", "--stiffness", 2.0, "--repetitions", 0)
    assert "two-copy / path: memory " in costs
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


class Spread(pg.AbstractObjective):
    """The mean square distance of data from a point."""

    entries: pg.Data = eqx.field(static=True)

    def __call__(self, model, batch):
        each = jnp.square(batch.data - model)
        return pg.Estimate(jnp.mean(each), each, pg.outcome_of((each, pg.Outcome.TARGET_NOT_FINITE)))

    @property
    def data(self):
        return self.entries


class MeanProblem(pg.AbstractProblem):
    """Find the mean of some numbers: no flow, no density."""

    def __init__(self, options):
        self.rows = np.arange(8.0, dtype=np.float32) + options.shift
        method = pg.FirstOrder(optax.sgd(0.3), 8, block=5)
        objective = Spread(pg.Data(self.rows))
        self._training = pg.Training(jnp.zeros(()), objective, method, options.training.steps)

    @property
    def training(self):
        return self._training

    def evaluate(self, trained, how, *, key, tell):
        yield pg.Findings({"off": float(trained.model - self.rows.mean())}, {"rows": self.rows})

    def sample(self, model, *, key, n, refine):
        return {"x": np.full(n, float(model))}


@dataclasses.dataclass(frozen=True)
class MeanTraining:
    steps: int = 30
    seed: int = 0
    max_seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class MeanOptions:
    """Find the mean of some numbers."""

    shift: float = 0.5
    training: MeanTraining = MeanTraining()

    @property
    def name(self):
        return f"mean-s{self.training.seed}"


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """Nothing to choose."""


class MeanExperiment(pg.AbstractExperiment):
    """The least that an experiment can be."""

    name = "mean"
    summary = "find a mean"
    Options = MeanOptions
    EvaluateOptions = NoOptions

    def build(self, options):
        return MeanProblem(options)

    def followed(self, options):
        return pg.Quantity("loss", "loss", better=-1)

    def result(self, options):
        return pg.Quantity("off", "distance from the mean", better=-1, compared=True)

    def curves(self, options):
        return ()

    def measured(self, options):
        return (self.result(options),)

    def verdict(self, evaluation):
        return None


def test_an_experiment_need_not_fit_a_flow(tmp_path, monkeypatch, capsys):
    """The abstract methods alone, and every command works: what they do not offer is left out."""
    known = experiment_module._entry_points()
    point = types.SimpleNamespace(value="here:MEAN", load=MeanExperiment)
    monkeypatch.setattr(experiment_module, "_entry_points", lambda: known | {"mean": point})
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        assert main(["train", "mean", "--shift", "2.5", "--seed", str(seed), "--out", f"s{seed}"]) == 0
    assert main(["train", "mean", "--out", "s0", "--resume", "--steps", "40"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "s0"]) == 0
    result = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert (result["experiment"], result["step"]) == ("mean", 40)
    assert abs(result["off"]) < 1e-5  # 0.4^40 of where it began
    assert main(["sample", "s0", "--n", "3", "--out", "draws.npz"]) == 0
    with np.load("draws.npz") as draws:
        np.testing.assert_allclose(draws["x"], 6.0, rtol=1e-5)
    assert main(["compare", "s0", "s1", "--plot", "curves.png"]) == 0
    assert "distance from the mean" in capsys.readouterr().out
    assert main(["plot", "s0", "--out", "all.png"]) == 0
    assert main(["bench", "mean"]) == 2
    assert "cannot be measured by estimator" in capsys.readouterr().err
    assert main(["report", "s0", "s1", "--out", "page.html"]) == 0
    assert "distance from the mean" in Path("page.html").read_text()
    assert abs(pg.Run.open("s0").flow() - 6.0) < 1e-5


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
