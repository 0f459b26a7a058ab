"""Evaluation of lattice flows: the free theory in closed form, errors put to the test, the commands."""

import gc
import json
import math
import weakref

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from pathgrad.experiments.flows.problem import _collect
from pathgrad.experiments.phi4.base import FreeField
from pathgrad.experiments.phi4.evaluation import LatticeMeasurement, jackknife_error
from pathgrad.experiments.phi4.lattice import momenta_squared
from pathgrad.experiments.phi4.observables import derived, plane
from pathgrad.experiments.phi4.reference import REFERENCE
from pathgrad.experiments.phi4.theory import Phi4

from .helpers import TOLERANCE
from .test_phi4_observables import free_means

SIZE, MASS_SQUARED = 4, 0.6
FREE = Phi4(SIZE, 0.0, MASS_SQUARED)
# Exact: each mode of the action is a normal integral.
LOG_Z = 0.5 * np.sum(np.log(math.pi / (momenta_squared(SIZE) + MASS_SQUARED)))


def measured(base_mass_squared, n, key=0, theory=FREE):
    """Evaluate a free field of some mass against the theory."""
    flow = pg.Flow(FreeField(theory.size, base_mass_squared))
    measurement = LatticeMeasurement(theory, n)
    parts = []
    for chunk in pg.weighted_chunks(flow, theory, key=jr.key(key), n=n):
        measurement.add(chunk)
        parts.append(chunk["log_weight"])
    draws = {"log_weight": np.concatenate(parts), "evaluations": np.zeros(1)}
    found = pg.evaluate(flow, theory, key=jr.key(key), draws=draws)
    return found, *measurement.finish(found)


def exact(theory=FREE):
    return derived(free_means(theory.size, theory.mass_squared), theory)


def test_free_theory_on_itself():
    n = 20000
    found, results, arrays = measured(MASS_SQUARED, n)
    assert found.ess == pytest.approx(1)
    assert found.log_z == pytest.approx(LOG_Z, abs=1e-10)
    assert found.warnings == []
    assert results["free_energy"]["value"] == -found.log_z
    assert results["mcmc"] == {
        "acceptance": 1.0,
        "acceptance_gaussian": pytest.approx(1.0, abs=1e-6),
        "tau_rejections": 0.5,
        "length": n,
    }
    truth = exact()
    rows = results["observables"]
    assert set(rows) == set(REFERENCE[6])
    for name, row in (rows | {"ward_identity": results["ward_identity"]}).items():
        if name == "log_z":
            continue
        assert abs(row["value"] - truth[name]) < 4 * row["error"], name
        # All weights are equal: the chain is the draws.
        assert row["mcmc_value"] == pytest.approx(row["value"], rel=1e-9)
        assert row["mcmc_error"] == pytest.approx(row["error"], rel=0.3)
    # Errors that are known: of normal modes, and the identity's is that of a sum of V squares.
    assert rows["lowest_mode"]["error"] == pytest.approx(truth["lowest_mode"] / math.sqrt(2 * n), rel=0.25)
    assert rows["susceptibility"]["error"] == pytest.approx(
        truth["susceptibility"] * math.sqrt(2 / n), rel=0.25
    )
    ward = results["ward_identity"]
    assert ward["error"] == pytest.approx(math.sqrt(0.5 / SIZE**2 / n), rel=0.25)
    assert ward["reference"] == 0.5
    assert abs(ward["deviation"]) < 4
    for name in ("two_point", "effective_mass"):
        curve = results[name]
        z = (np.array(curve["value"]) - truth[name]) / np.array(curve["error"])
        assert np.abs(z).max() < 4
        np.testing.assert_array_equal(arrays[name], curve["value"])
        np.testing.assert_array_equal(arrays[f"{name}_err"], curve["error"])
    assert results["effective_mass"]["distance"] == [1, 2]
    everywhere = plane(0.5 / (momenta_squared(SIZE) + MASS_SQUARED))
    z = (arrays["two_point_plane"] - everywhere) / arrays["two_point_plane_err"]
    assert 0 < np.abs(z).max() < 4
    assert arrays["fields"].shape == (16, SIZE, SIZE)
    assert arrays["log_weight"].dtype == np.float32


def test_errors_are_calibrated_where_weights_matter():
    # A base of the wrong mass: its fields are too wide, most of all in the zero mode.
    truth, runs = exact(), 24
    found = [measured(0.3, 3000, key) for key in range(runs)]
    assert 0.7 < np.mean([evaluation.ess for evaluation, _, _ in found]) < 0.95
    z = [(e.log_z - LOG_Z) / e.log_z_err for e, _, _ in found]
    assert 7.5 < np.sum(np.square(z)) < 51.2  # 0.1 % of chi-squared on either side, 24 degrees of freedom
    for name in (*REFERENCE[6], "ward_identity"):
        if name == "log_z":
            continue
        rows = [(r["observables"] | {"ward_identity": r["ward_identity"]})[name] for _, r, _ in found]
        for value, error in (("value", "error"), ("mcmc_value", "mcmc_error")):
            z = np.array([(row[value] - truth[name]) / row[error] for row in rows])
            assert 7.5 < np.sum(z**2) < 51.2, (name, value)
            assert abs(z.mean()) * math.sqrt(runs) < 4, (name, value)
    z = np.array([(a["two_point_plane"] - plane(_spectrum())) / a["two_point_plane_err"] for *_, a in found])
    assert np.all(np.sum(z**2, axis=0) < 51.2)
    assert np.all(np.sum(z**2, axis=0) > 7.5)
    # Unweighted averages would not do.
    unweighted = 0.5 / 0.3
    assert abs(found[0][1]["observables"]["susceptibility"]["value"] - unweighted) > 0.5


def _spectrum():
    return 0.5 / (momenta_squared(SIZE) + MASS_SQUARED)


def test_chain_agrees_with_what_the_weights_predict():
    found, results, _ = measured(0.3, 40000)
    mcmc = results["mcmc"]
    assert mcmc["acceptance_gaussian"] == math.erfc(math.sqrt(-math.log(found.ess)) / 2)
    assert abs(mcmc["acceptance"] - mcmc["acceptance_gaussian"]) < 0.05
    taus = [row["mcmc_tau"] for name, row in results["observables"].items() if name != "log_z"]
    # Observables that know more or less of the weights remember for longer or shorter than a bystander.
    assert 0.6 < min(taus) < mcmc["tau_rejections"] < max(taus) < 1.2


def test_known_values_are_set_against_the_measured_ones():
    theory = Phi4(6, 6.975)
    _, results, _ = measured(1 / (2 * 1.06287), 4000, theory=theory)
    for name, known in REFERENCE[6].items():
        row = results["observables"][name]
        assert (row["reference"], row["reference_error"]) == known
        together = math.hypot(row["error"], known.error)
        assert row["deviation"] == pytest.approx((row["value"] - known.value) / together)
        assert abs(row["deviation"]) < 4
        if row["mcmc_value"] is not None:
            apart = row["mcmc_value"] - known.value
            assert abs(apart) < 4 * math.hypot(row["mcmc_error"], known.error)
    ward = results["ward_identity"]
    assert ward["reference"] == 0.5
    assert abs(ward["deviation"]) < 4
    assert ward["error"] < 0.05
    free = results["free_energy"]
    assert free["reference"] == -6.984948
    assert free["deviation"] == -results["observables"]["log_z"]["deviation"]
    # Nothing is known of another theory.
    _, elsewhere, _ = measured(0.5, 200, theory=Phi4(6, 6.9))
    assert elsewhere["observables"]["phi_2"]["deviation"] is None
    assert elsewhere["free_energy"]["reference"] is None


def test_jackknife_of_a_mean_is_its_standard_error():
    block_means = np.random.default_rng(0).normal(size=(20, 3))
    left_out = (block_means.sum(0) - block_means) / 19
    error = block_means.std(axis=0, ddof=1) / math.sqrt(20)
    np.testing.assert_allclose(jackknife_error(left_out), error, rtol=TOLERANCE["algebra"])


def test_chunks_and_the_height_of_the_weights_do_not_matter():
    n = 300
    flow = pg.Flow(FreeField(SIZE, 0.3))
    draws = pg.weighted_draws(flow, FREE, key=jr.key(0), n=n)
    found = pg.evaluate(flow, FREE, key=jr.key(0), draws=draws)
    every = []
    for pieces, height in ((1, 0.0), (7, 1000.0), (7, -1000.0)):
        measurement = LatticeMeasurement(FREE, n)
        for part in np.array_split(np.arange(n), pieces):
            x, log_weight = draws["x"][part], draws["log_weight"][part]
            measurement.add({"x": x, "log_weight": log_weight + height})
        every.append(measurement.finish(found))
    for results, arrays in every[1:]:
        for name in ("two_point", "two_point_err", "two_point_plane", "two_point_plane_err"):
            np.testing.assert_allclose(arrays[name], every[0][1][name], rtol=1e-9)
        assert results["mcmc"] == every[0][0]["mcmc"]
        np.testing.assert_array_equal(arrays["fields"], draws["x"][:16])


def test_a_failed_draw_makes_the_results_null():
    class Broken(Phi4):
        def log_prob(self, phi):
            return jnp.where(phi[0, 0] > 0.8, jnp.nan, -self.action(phi))

    found, results, arrays = measured(MASS_SQUARED, 500, theory=Broken(SIZE, 0.0, MASS_SQUARED))
    assert found.failed > 0
    assert len(found.warnings) == 1
    assert f"{found.failed} of 500" in found.warnings[0]
    assert len(results) == 6
    assert set(results.values()) == {None}
    assert np.isnan(arrays["log_weight"]).sum() == found.failed


def test_a_field_without_weight_adds_nothing():
    """An action that overflows is a weight of zero, however large the observables are."""
    x = np.random.default_rng(0).normal(size=(400, SIZE, SIZE))
    log_weight = np.random.default_rng(1).normal(size=400)
    found = pg.evaluate(
        pg.Flow(FreeField(SIZE, 0.3)),
        FREE,
        key=jr.key(0),
        draws={"log_weight": log_weight, "evaluations": np.zeros(1)},
    )
    every = []
    for height in (0.0, 1e200):
        measurement = LatticeMeasurement(FREE, 400)
        points, weights = x.copy(), log_weight.copy()
        points[7], weights[7] = height, -np.inf
        measurement.add({"x": points, "log_weight": weights})
        results, arrays = measurement.finish(found)
        every.append((json.dumps(results), arrays["two_point_plane"].tolist()))
        assert math.isfinite(results["observables"]["phi_4"]["value"])
    assert every[0] == every[1]


def test_points_do_not_stay_in_memory():
    n, alive = 20000, []
    flow = pg.Flow(FreeField(SIZE, 0.3))
    measurement = LatticeMeasurement(FREE, n)

    def watched():
        for chunk in pg.weighted_chunks(flow, FREE, key=jr.key(0), n=n):
            points = np.array(chunk["x"])
            alive.append(weakref.ref(points))
            yield chunk | {"x": points}
            del chunk, points
            gc.collect()
            # The loop that consumes this still holds the chunk at hand.
            assert sum(ref() is not None for ref in alive) <= 1

    draws, _ = _collect(watched(), measurement)
    gc.collect()
    assert len(alive) == 3
    assert [ref() for ref in alive] == [None] * 3
    assert set(draws) == {"log_weight", "evaluations"}
    held = sum(v.nbytes for v in vars(measurement).values() if isinstance(v, np.ndarray))
    # Ten numbers and the weight of each draw, and the power of a hundred blocks.
    assert held < 8 * (11 * n + 100 * SIZE**2 + 200)
