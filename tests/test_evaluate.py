"""Evaluation: numbers against closed forms, and verdicts that follow from them."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg

from .helpers import bent_flow, straight_density

pytestmark = pytest.mark.xdist_group("evaluate")
N = 20000


def shifted_normal(shift):
    """A normal base against a unit normal moved by `shift`: log-weights are normal, all is known."""
    flow = pg.Flow(pg.DiagonalNormal.standard((1,)))
    target = pg.LogDensity(lambda x: -0.5 * jnp.sum((x - shift) ** 2), (1,))
    return flow, target, lambda key: shift + jr.normal(key, (1,))


def test_numbers_against_closed_forms():
    flow, target, sample = shifted_normal(0.5)
    found = pg.evaluate(flow, target, key=jr.key(0), n=N, sample_target=sample)
    variance = 0.25  # of the log-weights
    assert found.samples == N
    assert found.failed == 0
    assert abs(found.ess - math.exp(-variance)) < 0.02
    assert abs(found.forward_ess - math.exp(-variance)) < 0.03
    assert abs(found.kl - variance / 2) < 5 * found.kl_err
    assert abs(found.log_z - 0.5 * math.log(2 * math.pi)) < 5 * found.log_z_err
    assert abs(found.elbo + found.kl - found.log_z) < 1e-10
    assert found.solver_shift == 0.0
    assert found.verdict.startswith("good")


def test_a_missed_mode_is_seen_by_exact_draws_only():
    flow, _, _ = shifted_normal(0.0)
    mixture = pg.NormalMixture.at([[0.0], [30.0]])
    target = pg.LogDensity(mixture.log_prob, (1,))
    found = pg.evaluate(
        flow, target, key=jr.key(0), n=2000, sample_target=lambda key: mixture.draw(key)[0]
    )
    assert found.ess > 0.99
    assert found.forward_ess < 0.01
    assert "misses a mode or a tail" in found.verdict


def test_failed_draws_are_counted_and_make_the_numbers_nan():
    flow, _, _ = shifted_normal(0.0)
    target = pg.LogDensity(lambda x: jnp.where(x[0] > 1.0, jnp.nan, 0.0), (1,))
    draws = pg.weighted_draws(flow, target, key=jr.key(0), n=1000)
    found = pg.evaluate(flow, target, key=jr.key(0), draws=draws)
    assert found.failed == int(np.sum(draws["x"][:, 0] > 1.0)) > 0
    assert math.isnan(found.ess)
    assert found.verdict.startswith("unusable")


def test_a_coarse_solver_is_noticed():
    target = pg.LogDensity(straight_density().log_prob, (2,))
    (cnf,) = bent_flow("closed", bend=0.0).transforms
    found = []
    for steps in (1, 4):
        flow = pg.Flow(bent_flow().base, [cnf.replace(integrator=pg.FixedStep(steps))])
        found.append(pg.evaluate(flow, target, key=jr.key(0), n=500))
        # The exact log Z is zero. The shift says how wrong it is, up to what twice the steps leave.
        assert abs(found[-1].log_z + found[-1].solver_shift) < 0.3 * abs(found[-1].log_z)
    assert 0 < abs(found[1].solver_shift) < abs(found[0].solver_shift) / 20
    assert "too coarse" in found[0].verdict


def test_draws_come_in_chunks_and_with_exact_densities():
    (cnf,) = bent_flow("hutchinson", bend=0.0).transforms
    flow = pg.Flow(bent_flow().base, [cnf.replace(integrator=pg.FixedStep(20))])
    target = pg.LogDensity(straight_density().log_prob, (2,))
    seen = []
    draws = pg.weighted_draws(flow, target, key=jr.key(1), n=10000, tell=seen.append)
    assert seen == [8192, 10000]
    assert draws["x"].shape == (10000, 2)
    # Without noise the flow is its own target: every weight is one.
    assert np.abs(draws["log_weight"]).max() < 1e-4
    exact = jax.vmap(straight_density().log_prob)(jnp.asarray(draws["x"]))
    np.testing.assert_allclose(draws["log_q"], exact, atol=1e-4)
    with pytest.raises(ValueError, match="at least 1"):
        pg.weighted_draws(flow, target, key=jr.key(1), n=0)
