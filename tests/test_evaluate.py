"""Evaluation: numbers against closed forms, and verdicts that follow from them."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg

from .helpers import bent_flow, cnfs, coupling, straight_density

N = 20000


def shifted_normal(shift):
    """A normal base against a unit normal moved by `shift`: log-weights are normal, all is known."""
    flow = pg.Flow(pg.DiagonalNormal.standard((1,)))
    target = pg.LogDensity(lambda x: -0.5 * jnp.sum((x - shift) ** 2), (1,))
    return flow, target, lambda *, key: shift + jr.normal(key, (1,))


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
    assert found.solver_shift == found.solver_shift_err == found.ess_shift == 0.0
    # The log-weight is x / 2 - 1 / 8, and this is the largest of its draws.
    largest = pg.weighted_draws(flow, target, key=jr.key(0), n=N)["x"].max()
    known = math.exp(largest / 2 - 1 / 8)
    assert abs(found.largest_weight - known) < 0.02 * known
    assert found.warnings == []
    assert found.verdict == pg.Verdict(pg.Level.GOOD)


def test_a_missed_mode_is_seen_by_exact_draws_only():
    flow, _, _ = shifted_normal(0.0)
    mixture = pg.NormalMixture.at([[0.0], [30.0]])
    target = pg.LogDensity(mixture.log_prob, (1,))
    found = pg.evaluate(
        flow, target, key=jr.key(0), n=2000, sample_target=lambda *, key: mixture.draw(key=key)[0]
    )
    assert found.ess > 0.99
    assert found.forward_ess < 0.01
    (warning,) = found.warnings
    assert "misses a mode or a tail" in warning
    assert found.verdict == pg.Verdict(pg.Level.UNRELIABLE, (pg.Reason.MISSED_MODE,))


def test_failed_draws_are_counted_and_make_the_numbers_nan():
    flow, _, _ = shifted_normal(0.0)
    target = pg.LogDensity(lambda x: jnp.where(x[0] > 1.0, jnp.nan, 0.0), (1,))
    draws = pg.weighted_draws(flow, target, key=jr.key(0), n=1000)
    found = pg.evaluate(flow, target, key=jr.key(0), draws=draws)
    assert found.failed == int(np.sum(draws["x"][:, 0] > 1.0)) > 0
    assert math.isnan(found.ess)
    (warning,) = found.warnings
    assert warning.startswith(f"{found.failed} of 1000 draws")
    assert found.verdict == pg.Verdict(pg.Level.UNUSABLE, (pg.Reason.FAILED_DRAWS,))


def test_a_coarse_solver_is_noticed():
    target = pg.LogDensity(straight_density().log_prob, (2,))
    (cnf,) = cnfs(bent_flow("closed", bend=0.0))
    found = []
    for steps in (1, 4, 64):
        flow = pg.Flow(bent_flow().base, [cnf.replace(integrator=pg.FixedStep(steps))])
        found.append(pg.evaluate(flow, target, key=jr.key(0), n=500))
        # The exact log Z is zero. The shift says how wrong it is, up to what twice the steps leave.
        assert abs(found[-1].log_z + found[-1].solver_shift) < 0.3 * abs(found[-1].log_z)
    coarse, finer, finest = found
    assert 0 < abs(finer.solver_shift) < abs(coarse.solver_shift) / 20
    assert coarse.ess_shift > 0
    assert abs(coarse.ess + coarse.ess_shift - finer.ess) < 0.01 * coarse.ess_shift
    (warning,) = coarse.warnings
    assert "too coarse" in warning
    assert f"log Z moves by {coarse.solver_shift:+.1e}" in warning
    assert "twice the `refine`" in warning
    assert coarse.verdict == pg.Verdict(pg.Level.UNRELIABLE, (pg.Reason.COARSE_SOLVER,))
    assert finest.verdict == pg.Verdict(pg.Level.GOOD)


class Scaling(pg.AbstractTractableField):
    """dx/dt = x, which one Runge-Kutta step over unit time makes 65/24 instead of e."""

    def __call__(self, t, x):
        return x

    def prepare(self):
        return None

    def velocity_and_divergence(self, t, x, prepared):
        return x, jnp.asarray(1.0, x.dtype)


def _ess(weight):
    return np.mean(weight) ** 2 / np.mean(weight**2)


def test_shift_of_the_solver_and_its_error_against_closed_forms():
    flow = pg.Flow(pg.StandardNormal((1,)), [pg.CNF(Scaling(), pg.ClosedForm(), pg.FixedStep(1))])
    target = pg.LogDensity(lambda x: -0.5 * jnp.sum(x * x), (1,))
    found = pg.evaluate(flow, target, key=jr.key(0), n=4000)
    z = np.asarray(pg.weighted_draws(flow, target, key=jr.key(0), n=4000)["x"][:, 0]) * 24 / 65
    half = 1 + 1 / 2 + 1 / 8 + 1 / 48 + 1 / 384  # e^{1/2} to fourth order
    weights = []
    for stretch in (65 / 24, half**2):
        # log w = -x^2/2 + z^2/2 + ln(2 pi)/2 + 1: the divergence, a constant, is integrated exactly.
        weights.append(np.exp(0.5 * z**2 * (1 - stretch**2) + 0.5 * np.log(2 * np.pi) + 1))
    before, after = (np.mean(w) for w in weights)
    assert found.solver_shift == pytest.approx(np.log(after / before), rel=1e-6)
    influence = weights[1] / after - weights[0] / before
    error = np.std(influence, ddof=1) / math.sqrt(4000)
    assert found.solver_shift_err == pytest.approx(error, rel=1e-6)
    # Both sides share their draws, so the shift is far better known than log Z itself.
    assert abs(found.solver_shift) > 10 * error
    assert found.solver_shift_err < 0.05 * found.log_z_err
    sizes = [_ess(w) for w in weights]
    assert found.ess_shift == pytest.approx(sizes[1] - sizes[0], rel=1e-6)
    # The errors of the ESS and of its shift, by leaving out ten draws at a time.
    blocks = [w.reshape(400, 10) for w in weights]
    kept = np.array([[_ess(np.delete(w, i, axis=0)) for i in range(400)] for w in blocks])
    for values, error in ((kept[0], found.ess_err), (kept[1] - kept[0], found.ess_shift_err)):
        jackknife = math.sqrt(399 / 400 * np.sum((values - values.mean()) ** 2))
        assert error == pytest.approx(jackknife, rel=0.15)


def test_a_flow_without_an_ode_is_not_asked_about_solver_steps():
    base = pg.DiagonalNormal.standard((2,))
    flow = pg.Flow(base, [coupling(2), coupling(2, flip=True), pg.Affine.identity((2,))])
    target = pg.LogDensity(pg.freeze(base).log_prob, (2,))
    found = pg.evaluate(flow, target, key=jr.key(0), n=2000)
    shifts = (found.solver_shift, found.solver_shift_err, found.ess_shift, found.ess_shift_err)
    assert shifts == (0.0, 0.0, 0.0, 0.0)
    assert found.evaluations == 0
    assert not [w for w in found.warnings if "solver" in w]


def test_weights_with_a_heavy_tail_are_warned_of():
    flow = pg.Flow(pg.StandardNormal((1,)))
    target = pg.LogDensity(lambda x: -0.5 * jnp.sum((x / 5) ** 2), (1,))
    found = pg.evaluate(flow, target, key=jr.key(0), n=5000)
    assert found.khat > 0.7
    (warning,) = found.warnings
    assert warning.startswith("K-hat")
    assert found.verdict == pg.Verdict(pg.Level.UNRELIABLE, (pg.Reason.HEAVY_TAIL,))


def test_more_solver_steps_by_refine_are_those_of_the_refined_flow():
    target = pg.LogDensity(straight_density().log_prob, (2,))
    (cnf,) = cnfs(bent_flow("closed", bend=0.0))
    flow = pg.Flow(bent_flow().base, [cnf.replace(integrator=pg.FixedStep(1))])
    by_hand = pg.evaluate(flow.refined(4), target, key=jr.key(0), n=500)
    found = pg.evaluate(flow, target, key=jr.key(0), n=500, refine=4)
    assert found == by_hand
    assert found.evaluations == 16
    draws = pg.weighted_draws(flow.refined(4), target, key=jr.key(0), n=500)
    assert pg.evaluate(flow, target, key=jr.key(0), refine=4, draws=draws) == by_hand
    with pytest.raises(pg.UserError, match="`refine` must be at least 1, got 0"):
        pg.evaluate(flow, target, key=jr.key(0), refine=0)


def test_printed_it_is_a_table_that_ends_in_the_verdict():
    flow, target, sample = shifted_normal(0.5)
    found = pg.evaluate(flow, target, key=jr.key(0), n=1000, sample_target=sample)
    *rows, last = str(found).splitlines()
    assert last.split() == ["verdict", *found.verdict.sentence(dataclasses.asdict(found)).split()]
    # This flow solves nothing, so that there is no solver to speak of.
    names = [
        "draws",
        "failed draws",
        "ESS",
        "forward ESS",
        "reverse KL",
        "log Z",
        "ELBO",
        "k-hat",
        "largest weight",
    ]
    assert [row.strip().partition("  ")[0] for row in rows] == names
    assert f"{100 * found.ess:.1f} ± {100 * found.ess_err:.1f} %" in rows[2]
    solved = dataclasses.replace(found, evaluations=40.0)
    assert "solver twice as fine" in str(solved)


def test_the_precision_of_the_weights_is_told():
    flow, target, _ = shifted_normal(0.5)
    draws = pg.weighted_draws(flow, target, key=jr.key(0), n=1000)
    for dtype in (np.float32, np.float64):
        given = draws | {"log_weight": draws["log_weight"].astype(dtype)}
        found = pg.evaluate(flow, target, key=jr.key(0), draws=given)
        log_p = (given["log_weight"] + draws["log_q"]).astype(np.float64)
        assert found.rounding == pytest.approx(np.finfo(dtype).eps * np.median(np.abs(log_p)))
        low, high = np.quantile(draws["log_weight"], [0.25, 0.75])
        assert found.spread == pytest.approx((high - low) / 1.349, rel=1e-5)
    as_lists = {name: given[name].tolist() for name in ("log_weight", "log_q", "evaluations")}
    assert pg.evaluate(flow, target, key=jr.key(0), draws=as_lists).spread == found.spread


def test_points_are_not_needed_and_a_common_height_is_only_added():
    flow, target, _ = shifted_normal(0.5)
    draws = pg.weighted_draws(flow, target, key=jr.key(0), n=1000)
    few = {name: draws[name] for name in ("log_q", "log_weight", "evaluations")}
    low = pg.evaluate(flow, target, key=jr.key(0), draws=few)
    assert low == pg.evaluate(flow, target, key=jr.key(0), n=1000)
    # In single precision, where a log Z of 1e4 has steps of 1e-3.
    few["log_weight"] = (few["log_weight"] * 1024).round().astype(np.float32) / 1024
    low = pg.evaluate(flow, target, key=jr.key(0), draws=few)
    high = pg.evaluate(flow, target, key=jr.key(0), draws=few | {"log_weight": few["log_weight"] + 8192})
    assert high.log_z - 8192 == pytest.approx(low.log_z, abs=1e-5)
    assert high.elbo - 8192 == pytest.approx(low.elbo, abs=1e-5)


def test_draws_come_in_chunks_and_with_exact_densities():
    (cnf,) = cnfs(bent_flow("hutchinson", bend=0.0))
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
    chunks = list(pg.weighted_chunks(flow, target, key=jr.key(1), n=10000))
    assert [len(chunk["x"]) for chunk in chunks] == [8192, 1808]
    for name in ("x", "log_q", "log_weight"):
        np.testing.assert_array_equal(np.concatenate([c[name] for c in chunks]), draws[name])
    assert [int(chunk["evaluations"]) for chunk in chunks] == draws["evaluations"].tolist() == [80, 80]
    for make in (pg.weighted_draws, pg.weighted_chunks):
        with pytest.raises(ValueError, match="at least 1"):
            make(flow, target, key=jr.key(1), n=0)
