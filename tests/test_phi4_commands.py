"""`pathgrad evaluate` and `pathgrad sample` on lattices, as they are typed."""

import functools
import json
import math
from types import SimpleNamespace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from pathgrad import _plots
from pathgrad._cli import loading
from pathgrad._cli.main import main
from pathgrad._train.rundir import RunDir
from pathgrad.experiments.options import TrainOptions
from pathgrad.experiments.phi4.base import FreeField
from pathgrad.experiments.phi4.evaluation import LatticeMeasurement
from pathgrad.experiments.phi4.lattice import momenta_squared
from pathgrad.experiments.phi4.observables import derived
from pathgrad.experiments.phi4.theory import Phi4
from pathgrad.experiments.problem import Problem, make_training

from .helpers import bent_flow, straight_density
from .test_phi4_observables import free_means

SIZE, MASS_SQUARED = 4, 0.6
FREE = Phi4(SIZE, 0.0, MASS_SQUARED)
# Exact: each mode of the action is a normal integral.
LOG_Z = 0.5 * np.sum(np.log(math.pi / (momenta_squared(SIZE) + MASS_SQUARED)))


def strict(text):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def commands(tmp_path, monkeypatch, capsys):
    """Return a function that runs a command on a problem, as if that had been trained."""
    pictures = []
    for name in ("plot_lattice", "plot_evaluation"):
        monkeypatch.setattr(_plots, name, lambda *given, name=name: pictures.append((name, given)))
    run = RunDir.create(tmp_path / "run", {"experiment": "phi4"})

    def command(problem, *words):
        trained = loading.Trained(
            run,
            "phi4",
            SimpleNamespace(training=SimpleNamespace(seed=5)),
            problem,
            SimpleNamespace(step=7),  # pyright: ignore[reportArgumentType]
            problem.training.model,
        )
        monkeypatch.setattr(loading, "load_run", lambda path, data: trained)
        assert main([words[0], str(run.path), *words[1:]]) == 0
        return capsys.readouterr().out

    command.path, command.pictures = run.path, pictures
    return command


def lattice_problem(theory=FREE, base_mass_squared=0.3):
    flow = pg.Flow(FreeField(theory.size, base_mass_squared))
    return Problem(
        make_training(TrainOptions(), flow, theory, float(LOG_Z), 1e-3),
        measure=functools.partial(LatticeMeasurement, theory),
    )


def test_evaluate_command_on_a_lattice(commands):
    out = commands(lattice_problem(), "evaluate", "--samples", "2000")
    result = strict(out.strip().splitlines()[-1])
    assert strict((commands.path / "evaluation.json").read_text()) == result
    truth = derived(free_means(SIZE, MASS_SQUARED), FREE)
    for name, row in result["observables"].items():
        if name != "log_z":
            assert abs(row["value"] - truth[name]) < 4 * row["error"]
            assert name.replace("_", " ") in out
    assert result["log_z_known"] == LOG_Z
    assert "log_z_exact" not in result
    assert "Metropolis accepts" in out
    assert "ward identity" in out
    ((name, (rows, arrays, shown, path)),) = commands.pictures
    assert name == "plot_lattice"
    assert rows == []
    assert shown == result
    assert path == commands.path / "evaluation.png"
    with np.load(commands.path / "evaluation.npz") as kept:
        assert set(kept) == set(arrays)
        for each in ("two_point", "two_point_err", "fields", "log_weight"):
            np.testing.assert_array_equal(kept[each], arrays[each])
    assert "evaluation.npz" in (commands.path / ".outputs").read_text()


def test_evaluate_command_with_failed_draws_prints_strict_json(commands):
    class Broken(Phi4):
        def log_prob(self, phi):
            return jnp.where(phi[0, 0] > 0, jnp.nan, 0.0)

    theory = Broken(SIZE, 0.0, MASS_SQUARED)
    out = commands(lattice_problem(theory), "evaluate", "--samples", "100")
    result = strict(out.strip().splitlines()[-1])
    assert result["ess"] is result["log_z"] is result["observables"] is None
    assert result["failed"] > 0
    assert out.count("have no finite weight") == 2  # once for the reader, once in the JSON
    assert result["verdict"] == {"level": "unusable", "reasons": ["failed_draws"]}


def test_refine_multiplies_the_steps_and_cures_the_warning(commands):
    (cnf,) = bent_flow("closed", bend=0.0).transforms
    flow = pg.Flow(bent_flow().base, [cnf.replace(integrator=pg.FixedStep(1))])
    target = pg.LogDensity(straight_density().log_prob, (2,))
    problem = Problem(make_training(TrainOptions(), flow, target), evaluation_refine=32)
    results = {}
    for words in ((), ("--refine", "1")):
        out = commands(problem, "evaluate", "--samples", "300", *words)
        result = strict(out.strip().splitlines()[-1])
        results[result["refine"]] = result
        # Each warning has a line, and is in the JSON.
        assert out.count("too coarse") == 2 * len(result["warnings"])
    assert [results[i]["evaluations"] for i in (1, 32)] == [4, 128]
    assert results[32]["solver_evaluations"] == 300 * 128
    assert results[32]["warnings"] == []
    assert "twice the --refine" in results[1]["warnings"][0]
    assert results[1]["verdict"] == {"level": "unreliable", "reasons": ["coarse_solver"]}
    assert results[32]["verdict"] == {"level": "good", "reasons": []}
    assert abs(results[32]["solver_shift"]) < 1e-3 * abs(results[1]["solver_shift"])
    name, (_, draws, log_prob, _) = commands.pictures[0]
    assert name == "plot_evaluation"
    assert draws["x"].shape == (300, 2)
    assert log_prob is not None
    # The same draws, better solved, are what `sample` writes.
    file = commands.path.parent / "draws.npz"
    commands(problem, "sample", "--n", "300", "--seed", "0", "--out", str(file))
    with np.load(file) as drawn:
        np.testing.assert_array_equal(drawn["x"], draws["x"])
        np.testing.assert_array_equal(drawn["log_weight"], draws["log_weight"])
        assert drawn["log_q"].shape == (300,)
    commands(
        problem,
        "sample",
        "--n",
        "300",
        "--seed",
        "0",
        "--out",
        str(file),
        "--refine",
        "1",
        "--overwrite",
    )
    with np.load(file) as drawn:
        assert 1e-6 < np.abs(drawn["x"] - draws["x"]).max() < 0.1


@pytest.mark.parametrize("command", [["evaluate"], ["sample", "--out", "x.npz"]])
def test_refine_must_be_positive(command, capsys):
    assert main([*command, "nowhere", "--refine", "0"]) == 2
    assert "--refine must be at least 1" in capsys.readouterr().err


def test_sample_command_puts_chunks_together(commands, tmp_path):
    file = tmp_path / "fields.npz"
    commands(lattice_problem(), "sample", "--n", "9000", "--out", str(file))
    draws = pg.weighted_draws(
        pg.Flow(FreeField(SIZE, 0.3)),
        FREE,
        key=jr.fold_in(jr.split(jr.key(5), 3)[2], 1),
        n=9000,
    )
    with np.load(file) as drawn:
        for name in ("x", "log_q", "log_weight"):
            np.testing.assert_array_equal(drawn[name], draws[name])
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["fields.npz"]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_draws_have_values_and_nothing_false(commands, n):
    out = commands(lattice_problem(), "evaluate", "--samples", str(n))
    result = strict(out.strip().splitlines()[-1])
    row = result["observables"]["phi_2"]
    assert row["value"] > 0
    assert (row["error"] is None) == (row["mcmc_error"] is None) == (n == 1)
