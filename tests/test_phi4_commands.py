"""Evaluation of lattice runs, and draws from them: numbers, tables, warnings, and the commands."""

import functools
import json
import math

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._cli.main import main
from pathgrad.experiments.flows.experiment import FlowEvaluateOptions
from pathgrad.experiments.flows.making import make_training
from pathgrad.experiments.options import TrainOptions
from pathgrad.experiments.phi4.base import FreeField
from pathgrad.experiments.phi4.evaluation import LatticeMeasurement
from pathgrad.experiments.phi4.experiment import PHI4
from pathgrad.experiments.phi4.lattice import momenta_squared
from pathgrad.experiments.phi4.observables import derived
from pathgrad.experiments.phi4.options import LatticeFlowOptions, Phi4Options
from pathgrad.experiments.phi4.reference import WORDS
from pathgrad.experiments.phi4.theory import Phi4

from .helpers import bent_flow, straight_density
from .phi4_helpers import evaluated, make_run
from .test_phi4_observables import free_means

SIZE, MASS_SQUARED = 4, 0.6
FREE = Phi4(SIZE, 0.0, MASS_SQUARED)
# Exact: each mode of the action is a normal integral.
LOG_Z = 0.5 * np.sum(np.log(math.pi / (momenta_squared(SIZE) + MASS_SQUARED)))


def strict(text):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def free_run(tmp_path_factory):
    """A run that has learnt nothing: a free field of one mass against the theory of another."""
    flow = LatticeFlowOptions(base_mass_squared=0.3, time_bond=1, features=2, channels=1)
    training = TrainOptions(steps=1, block=1, batch=8, learning_rate=1e-30)
    options = Phi4Options(SIZE, 0.0, MASS_SQUARED, flow=flow, training=training)
    return pg.train(PHI4, options, out=tmp_path_factory.mktemp("phi4") / "free")


def lattice_problem(theory=FREE):
    flow = pg.Flow(FreeField(theory.size, 0.3))
    return pg.FlowProblem(
        make_training(TrainOptions(), flow, theory, float(LOG_Z), 1e-3),
        measure=functools.partial(LatticeMeasurement, theory),
    )


def found_of(problem, samples, refine=None):
    """The last that an evaluation of an untrained flow comes to."""
    trained = pg.Trained(problem.training.model, problem.training.trainer(key=jr.key(0)).init)
    how = FlowEvaluateOptions(samples, refine)
    *_, found = problem.evaluate(trained, how, key=jr.key(5), tell=lambda *words: None)
    return found


def test_a_lattice_run_is_evaluated_as_it_is_typed(free_run, capsys):
    assert main(["evaluate", str(free_run.path), "--samples", "2000"]) == 0
    out = capsys.readouterr().out
    result = strict(out.strip().splitlines()[-1])
    assert strict((free_run.path / "evaluation.json").read_text()) == result
    assert result["refine"] == 2  # densities want more steps than training
    truth = derived(free_means(SIZE, MASS_SQUARED), FREE)
    for name, row in result["observables"].items():
        if name != "log_z":
            assert abs(row["value"] - truth[name]) < 4 * row["error"]
        assert WORDS[name] in out
    assert abs(result["log_z"] - LOG_Z) < 4 * result["log_z_err"]
    assert "log_z_known" not in result  # it is not one of the benchmark's theories
    assert "Metropolis acceptance" in out
    run = pg.Run.open(free_run.path)
    assert {"two_point", "two_point_err", "fields", "log_weight"} <= set(run.arrays)
    assert {"evaluation.npz", "evaluation.png"} <= set((run.path / ".outputs").read_text().split())
    (table,) = PHI4.tables(run)
    assert [row[0] for row in table.rows] == list(WORDS.values())
    assert table.rows[-1][3] == "0.5 (exact)"  # the Ward identity is known of all theories


def test_a_benchmark_theory_has_known_values(tmp_path):
    options = Phi4Options(6, flow=LatticeFlowOptions(time_bond=1, features=2, channels=1))
    problem = PHI4.build(options)
    numbers = found_of(problem, 500).numbers
    assert (numbers["log_z_known"], numbers["log_z_known_err"]) == (6.984948, 1e-6)
    row = numbers["observables"]["susceptibility"]
    assert (row["reference"], row["reference_error"]) == (1.06287, 1e-5)


def test_failed_draws_leave_no_observables(tmp_path):
    class Broken(Phi4):
        def log_prob(self, phi):
            return jnp.where(phi[0, 0] > 0, jnp.nan, 0.0)

    numbers = found_of(lattice_problem(Broken(SIZE, 0.0, MASS_SQUARED)), 100).numbers
    assert numbers["observables"] is numbers["mcmc"] is None
    assert numbers["failed"] > 0
    assert numbers["verdict"] == {"level": "unusable", "reasons": ["failed_draws"]}
    run = make_run(tmp_path / "a")
    file = run.directory.write_json("evaluation.json", numbers | {"step": run.last.step})
    assert strict(file.read_text())["ess"] is None
    run = pg.Run.open(run.path)
    assert run.is_evaluated
    assert PHI4.tables(run) == []
    assert PHI4.warnings(run) == []
    assert PHI4.level(run) is pg.Level.UNUSABLE


def test_the_table_says_what_was_measured_and_what_is_known(tmp_path):
    ward = {"value": 0.51, "error": 0.01, "reference": 0.5, "reference_error": 0.0}
    ward |= {"mcmc_value": None, "mcmc_error": None, "mcmc_tau": 1.25}
    chain = {"acceptance": 0.91, "acceptance_gaussian": 0.9, "tau_rejections": 0.61}
    run = evaluated(make_run(tmp_path / "a"), bias=3.5, ward_identity=ward, mcmc=chain)
    (table,) = PHI4.tables(run)
    # 3.5 times hypot(0.003, 0.004) above 0.16.
    assert table.rows == [
        ("⟨φ²⟩", "0.1775 ± 0.0030", "0.1700 ± 0.0030", "0.1600 ± 0.0040", "+3.5"),
        ("m L", "3.900 ± 0.050", "-", "4", "-2.0"),
        ("Binder cumulant", "0.20 ± 0.10", "-", "-", "-"),
        ("Ward identity", "0.510 ± 0.010", "-", "0.5 (exact)", "+1.0"),
    ]
    assert len(table.heads) == 5
    assert table.doubtful == (0,)
    for number in ("91.00%", "90.00%", "0.610", "1.250"):
        assert number in table.note


def test_observables_off_what_is_known_are_warned_of(tmp_path):
    run = make_run(tmp_path / "a")
    assert PHI4.warnings(evaluated(run, bias=2.9)) == []
    (said,) = PHI4.warnings(evaluated(run, bias=-3.1))
    assert "⟨φ²⟩ (-3.1 standard errors)" in said
    assert "m L" not in said
    assert pg.named("refine") in said
    # Of another step it says nothing about the run as it is now.
    assert PHI4.warnings(evaluated(run, bias=-3.1, step=20)) == []


def test_log_z_off_what_is_known_is_warned_of_once(tmp_path):
    row = {"value": 7.5, "error": 0.1, "reference": 7.0, "reference_error": 0.0}
    known = {"log_z": 7.5, "log_z_err": 0.1, "log_z_known": 7.0, "log_z_known_err": 0.0}
    run = evaluated(make_run(tmp_path / "a"), observables={"log_z": row}, **known)
    (said,) = PHI4.warnings(run)
    assert "5.0 standard errors" in said
    assert PHI4.tables(run)[0].doubtful == (0,)


@pytest.mark.parametrize("observables", ["nonsense", [1], {"phi_2": 3, "log_z": {"value": "x"}}])
def test_a_file_may_hold_anything(observables, tmp_path):
    run = evaluated(make_run(tmp_path / "a"), observables=observables, mcmc=3, ward_identity="?")
    for table in PHI4.tables(run):
        assert [row[1:] for row in table.rows] == [("-", "-", "-", "-")]
        assert table.note == ""
    assert PHI4.warnings(run) == []


def test_refine_multiplies_the_steps_and_cures_the_warning():
    (cnf,) = bent_flow("closed", bend=0.0).transforms
    assert isinstance(cnf, pg.CNF)
    flow = pg.Flow(bent_flow().base, [cnf.replace(integrator=pg.FixedStep(1))])
    target = pg.LogDensity(straight_density().log_prob, (2,))
    problem = pg.FlowProblem(make_training(TrainOptions(), flow, target), refine=32)
    fine, coarse = (found_of(problem, 300, refine) for refine in (None, 1))
    assert (fine.numbers["refine"], fine.numbers["evaluations"]) == (32, 128)
    assert (coarse.numbers["refine"], coarse.numbers["evaluations"]) == (1, 4)
    assert fine.numbers["solver_evaluations"] == 300 * 128
    assert fine.numbers["warnings"] == []
    assert "twice the" in coarse.numbers["warnings"][0]
    assert coarse.numbers["verdict"] == {"level": "unreliable", "reasons": ["coarse_solver"]}
    assert fine.numbers["verdict"] == {"level": "good", "reasons": []}
    shifts = [abs(found.numbers["solver_shift"]) for found in (fine, coarse)]
    assert shifts[0] < 1e-3 * shifts[1]
    # The same draws, better solved, are what `sample` returns.
    drawn = problem.sample(flow, key=jr.key(5), n=300, refine=None)
    for name in ("x", "log_weight"):
        np.testing.assert_array_equal(drawn[name], fine.arrays[name])
    assert drawn["log_q"].shape == (300,)
    drawn = problem.sample(flow, key=jr.key(5), n=300, refine=1)
    assert 1e-6 < np.abs(drawn["x"] - fine.arrays["x"]).max() < 0.1


def test_draws_are_put_together_from_chunks():
    problem = lattice_problem()
    drawn = problem.sample(problem.training.model, key=jr.key(3), n=9000, refine=None)
    whole = pg.weighted_draws(problem.training.model, FREE, key=jr.key(3), n=9000)
    assert set(drawn) == {"x", "log_q", "log_weight"}
    for name, values in drawn.items():
        np.testing.assert_array_equal(values, whole[name])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_draws_have_values_and_nothing_false(free_run, n):
    found = free_run.evaluate(samples=n)
    row = found["observables"]["phi_2"]
    assert row["value"] > 0
    assert (row["error"] is None) == (n == 1)
    # A chain that never moved does not know its error.
    assert (row["mcmc_error"] is None) == (found["mcmc"]["acceptance"] == 0)
