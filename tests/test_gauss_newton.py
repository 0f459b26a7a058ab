"""Second-order training: its moments, its steps, and that it finds what can be found."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import pathgrad as pg
from pathgrad._train.gauss_newton import moments as moments_module
from pathgrad._train.gauss_newton.damped_step import damped_step
from pathgrad._train.gauss_newton.moments import Bounds, Model, Moments
from pathgrad._train.gauss_newton.runner import _spread

from .helpers import ravel

COVARIANCE = jnp.array([[1.3, 0.7], [0.7, 0.9]])
FINE = np.full(4000, pg.Outcome.FINE)
MEAN = jnp.array([0.8, -1.5])
LOG_Z = 2.0 + np.log(2 * np.pi) + 0.5 * np.log(1.3 * 0.9 - 0.49)


def normal_target():
    def log_prob(x):
        return 2.0 - 0.5 * (x - MEAN) @ jnp.linalg.solve(COVARIANCE, x - MEAN)

    return pg.LogDensity(log_prob, (2,))


def skewed_target():
    return pg.LogDensity(lambda x: -0.5 * x[0] ** 2 - 0.8 * (x[1] - 0.3 * x[0] ** 2 + 0.3) ** 2, (2,))


@pytest.fixture(scope="module")
def flow():
    field = pg.MLPField(2, 8, 1, key=jr.key(4))
    cnf = pg.CNF(field, integrator=pg.FixedStep(6), t0=0.3, t1=1.5)
    return pg.Flow(pg.DiagonalNormal.standard((2,)), [cnf])


@pytest.fixture(scope="module")
def draws(flow):
    """Log densities and scores of many draws of a flow that is far from its target."""
    model, vector = Model.split(flow, skewed_target())
    keys = jr.split(jr.key(1), 20000)
    log_p, log_q, scores, outcome = jax.jit(model.log_densities_and_scores)(vector, keys)
    assert (outcome == pg.Outcome.FINE).all()
    return model, vector, keys, log_p, log_q, scores


@pytest.fixture
def unclipped(monkeypatch):
    monkeypatch.setattr(moments_module, "_BULKS", np.inf)


def fed(log_p, log_q, scores, clip=1e9, chunk=1000):
    moments = Moments(scores.shape[1], clip)
    for i in range(0, len(log_p), chunk):
        some = slice(i, i + chunk)
        log_p_, log_q_, scores_ = (np.asarray(a[some]) for a in (log_p, log_q, scores))
        moments.add(log_p_, log_q_, scores_, FINE[: len(log_p_)])
    return moments


def test_score_of_a_normal_is_the_textbook_one():
    base = pg.DiagonalNormal(jnp.array([0.5, -1.0]), jnp.array([0.3, -0.2]))
    model, vector = Model.split(pg.Flow(base), normal_target())
    keys = jr.split(jr.key(0), 5)
    _, log_q, scores, _ = model.log_densities_and_scores(vector, keys)
    x = pg.Flow(base).push("x", keys=keys).x
    z = (x - base.mean) / jnp.exp(base.log_scale)
    expected = {"mean": z / jnp.exp(base.log_scale), "log_scale": z**2 - 1}
    found = jax.vmap(lambda s: model.unravel(s).base)(scores)
    np.testing.assert_allclose(found.mean, expected["mean"], rtol=1e-12)
    np.testing.assert_allclose(found.log_scale, expected["log_scale"], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(log_q, pg.Flow(base).log_prob(x), rtol=1e-12)


def test_scores_hold_the_draw_fixed_and_average_to_zero(draws, flow):
    model, vector, keys, _, log_q, scores = draws
    x = flow.push("x", keys=keys[:3]).x
    for i in range(3):
        # By central differences of the density, at a point that does not move with the parameters.
        direction = jr.normal(jr.key(i), vector.shape)
        up, down = (model.flow(vector + h * direction).log_prob(x) for h in (1e-5, -1e-5))
        np.testing.assert_allclose(scores[i] @ direction, (up - down)[i] / 2e-5, rtol=1e-6)
    z = scores.mean(axis=0) / (scores.std(axis=0) / len(scores) ** 0.5)
    assert jnp.abs(z).max() < 5
    np.testing.assert_allclose(log_q[:3], flow.log_prob(x), atol=1e-9)


def test_right_hand_side_is_minus_the_gradient_of_the_divergence(draws, flow, unclipped):
    """Against the path gradient, which shares no formula with it."""
    _, _, _, log_p, log_q, scores = draws
    _, cross, _ = fed(log_p, log_q, scores).finish()
    terms = (scores - scores.mean(axis=0)) * (log_p - log_q - (log_p - log_q).mean())[:, None]
    error = terms.std(axis=0) / len(terms) ** 0.5
    gradient = ravel(eqx.filter_grad(pg.reverse_kl)(flow, skewed_target(), key=jr.key(7), n=20000))
    assert jnp.linalg.norm(gradient) > 0.5
    assert np.abs((cross + np.asarray(gradient)) / np.asarray(error)).max() < 6


def test_moments_are_those_of_all_draws_whatever_the_chunks(draws, unclipped):
    _, _, _, log_p, log_q, scores = draws
    metric, cross, variance = fed(log_p, log_q, scores, chunk=700).finish()
    s, w = np.asarray(scores), np.asarray(log_p - log_q)
    np.testing.assert_allclose(metric, np.cov(s.T, bias=True), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(cross, (s - s.mean(0)).T @ (w - w.mean()) / len(w), atol=1e-9)
    np.testing.assert_allclose(variance, w.var(), rtol=1e-9)


def test_draws_that_are_not_finite_are_left_out_and_counted(draws):
    log_p, log_q, scores = (np.array(a[:2000]) for a in draws[3:])
    clean = fed(log_p, log_q, scores, clip=5.0)
    rubbish = np.full((3, scores.shape[1]), np.nan)
    dirty = Moments(scores.shape[1], 5.0)
    dirty.add(log_p, log_q, scores, FINE[:2000])
    dirty.add(np.array([np.nan, 0, 0]), np.array([0, np.inf, 0]), rubbish, FINE[:3])
    dirty.add(np.array([np.nan]), np.array([np.nan]), rubbish[:1], np.array([pg.Outcome.TOO_MANY_STEPS]))
    for a, b in zip(clean.finish(), dirty.finish(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_array_equal(dirty.bad, [1, 1, 1, 3])
    outside = Moments(scores.shape[1], 5.0)  # minus infinity is only far off
    outside.add(np.where(np.arange(2000) == 7, -np.inf, log_p), log_q, scores, FINE[:2000])
    assert np.isfinite(outside.finish()[1]).all()
    assert outside.bad.sum() == 0


def test_outliers_are_pulled_in_and_the_bulk_is_left_alone():
    rng = np.random.default_rng(0)
    weight = 0.1 * rng.normal(size=1001) + 7
    weight[:3] = -1e5, -200.0, 9.0
    middle = np.median(weight)
    clipped = Bounds.of(weight, 5.0).clip(weight, middle)
    np.testing.assert_allclose(clipped[3:], weight[3:] - middle)
    assert -1 < clipped[0] == clipped[1] < -0.7  # eight standard deviations of the bulk
    assert clipped[2] == 9.0 - middle
    wide = Bounds.of(100 * weight, 5.0).clip(100 * weight, 100 * middle)
    assert (wide.min(), wide.max()) == (-5.0, 5.0)


def test_a_step_that_loses_draws_or_throws_them_far_is_worse():
    now = 0.1 * np.random.default_rng(0).normal(size=1000) - 3
    ratio = _spread(now, 5.0)
    assert ratio(now) == pytest.approx(1)
    assert ratio(now + 2.5) == pytest.approx(1)  # a constant is the normaliser's
    assert ratio(-3 + 0.5 * (now + 3)) == pytest.approx(0.25)
    far = np.random.default_rng(1).normal(size=1000) * 10 - 50
    assert ratio(far) > 10
    for lost in (np.nan, -np.inf):
        assert ratio(np.full(1000, lost)) == np.inf
        assert ratio(np.where(np.arange(1000) < 20, lost, now)) == np.inf
        assert 1 < ratio(np.where(np.arange(1000) < 5, lost, now)) < 2
    # A draw that was not finite before the step is not held against it.
    assert _spread(np.append(now, np.nan), 5.0)(np.append(now, np.nan)) == pytest.approx(1)


def problem(signal, n=4000, parameters=40):
    """Moments of synthetic scores, and of log-weights of which a share is linear in them."""
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(n, parameters)) * np.logspace(0, -2, parameters)
    truth = rng.normal(size=parameters) / np.logspace(0, -2, parameters)
    linear = scores @ truth / parameters**0.5
    weight = signal * linear + (1 - signal**2) ** 0.5 * rng.normal(size=n)
    moments = Moments(parameters, 1e9)
    moments.add(weight, np.zeros(n), scores, FINE[:n])
    return moments.finish(), signal * truth / parameters**0.5, (scores, weight)


def test_step_without_damping_is_least_squares():
    (metric, cross, variance), _, (scores, weight) = problem(0.8)
    found = damped_step(metric, cross, variance, n=4000, damping=1e-12, trust=1e9)
    centred = scores - scores.mean(axis=0)
    expected, *_ = np.linalg.lstsq(centred, weight - weight.mean(), rcond=None)
    np.testing.assert_allclose(found.change, found.share * expected, rtol=1e-6)
    left = np.var(weight - scores @ found.change)
    np.testing.assert_allclose(found.predicted, 1 - left / variance, rtol=1e-6)
    assert abs(found.explained - 0.64) < 0.03
    # Expected: signal / (signal + noise), with 40 parameters and 4000 draws.
    assert found.shrink == pytest.approx(0.64 / (0.64 + 0.36 * 40 / 3960), rel=0.01)


@pytest.mark.parametrize("damping", [1e-6, 0.3, 30.0])
def test_step_into_pure_noise_is_shrunk_whatever_the_damping(damping):
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(4000, 40)) * np.logspace(0, -2, 40)
    shrinks, explained = [], []
    for _ in range(40):
        moments = Moments(40, 1e9)
        moments.add(rng.normal(size=4000), np.zeros(4000), scores, FINE[:4000])
        found = damped_step(*moments.finish(), n=4000, damping=damping, trust=1e9)
        shrinks.append(found.shrink)
        explained.append(found.explained)
    assert np.median(shrinks) < 0.3
    assert np.mean(explained) < 0.003


def test_step_onto_the_truth_is_not_shrunk():
    moments, truth, _ = problem(1.0)
    exact = damped_step(*moments, n=4000, damping=1e-12, trust=1e9)
    np.testing.assert_allclose(exact.change, truth, rtol=1e-5)
    assert exact.shrink == pytest.approx(1.0)


def test_metric_that_is_not_positive_is_an_error_to_be_caught():
    with pytest.raises(np.linalg.LinAlgError):
        damped_step(np.diag([1.0, -1.0]), np.ones(2), 1.0, n=9, damping=0.1, trust=1.0)


def test_step_is_ridge_regression_and_keeps_to_the_trust_radius():
    (metric, cross, variance), _, _ = problem(0.9)
    found = damped_step(metric, cross, variance, n=4000, damping=0.3, trust=0.2)
    ridge = np.linalg.solve(metric + 0.3 * np.trace(metric) / 40 * np.eye(40), cross)
    np.testing.assert_allclose(found.change / found.share, ridge, rtol=1e-9)
    assert found.length == pytest.approx(np.sqrt(ridge @ metric @ ridge))
    moved = np.sqrt(found.change @ metric @ found.change)
    assert moved == pytest.approx(0.2)


def test_finds_a_normal_in_a_few_steps_and_then_stands_still():
    base = pg.FullNormal.standard((2,))
    fit = pg.fit(pg.Flow(base), normal_target(), pg.GaussNewton(), key=jr.key(2), steps=12)
    last = fit.history[-1]
    assert len(fit.history) == 12
    assert last.ess > 1 - 1e-9
    assert last.log_z == pytest.approx(LOG_Z, abs=1e-6)
    assert last.more["length"] < 1e-3 * fit.history[0].more["length"]
    assert last.more["draws"] == 512


def test_trains_a_flow_on_a_skewed_target_and_a_break_changes_nothing(flow):
    first = pg.fit(flow, skewed_target(), pg.GaussNewton(), key=jr.key(5), steps=24)
    assert first.history[0].ess < 0.9
    found = pg.evaluate(first.flow, skewed_target(), key=jr.key(6), n=20000)
    assert abs(found.log_z - 0.5 * np.log(2 * np.pi**2 / 0.8)) < 5 * found.log_z_err + 1e-3
    assert found.ess > 0.97
    assert first.compile_seconds > 0

    half = pg.fit(flow, skewed_target(), pg.GaussNewton(), key=jr.key(5), steps=4)
    again = pg.fit(half.flow, skewed_target(), pg.GaussNewton(), key=jr.key(5), steps=24, state=half.state)
    np.testing.assert_array_equal(ravel(again.flow), ravel(first.flow))
    assert [r.ess for r in again.history] == [r.ess for r in first.history[4:]]


def test_draws_are_doubled_when_a_step_was_noise():
    """Where the model cannot do better, everything that is left is noise."""
    target = pg.LogDensity(lambda x: jnp.sum(-0.5 * x**2 - 0.3 * jnp.cos(9 * x)), (2,))
    method = pg.GaussNewton(200.0, max_draws_per_parameter=800.0)
    flow = pg.Flow(pg.DiagonalNormal.standard((2,)))
    fit = pg.fit(flow, target, method, key=jr.key(0), steps=8)
    draws = [row.more["draws"] for row in fit.history]
    assert draws[0] in range(800, 1400)
    assert draws == sorted(draws)
    assert draws[-1] > 1.9 * draws[0]
    assert draws[-1] < 4.6 * draws[0]


def test_says_what_to_use_when_it_cannot_be_used(flow):
    target = skewed_target()
    with pytest.raises(pg.UserError, match=r"56 parameters, too many .*Use Adam with path gradients"):
        pg.GaussNewton(max_parameters=50).init(flow)
    for objective in (pg.ReverseKL(), pg.NegativeELBO(pg.Data(np.zeros((3, 2))))):
        with pytest.raises(ValueError, match="a target that is not trained"):
            pg.GaussNewton().runner(objective, key=jr.key(0))
    with pytest.raises(ValueError, match="fewer draws than parameters"):
        pg.GaussNewton(draws_per_parameter=0.5)
    with pytest.raises(pg.UserError, match="no trainable parameters"):
        pg.GaussNewton().init(pg.Flow(pg.StandardNormal((2,))))
    mean: Any = pg.PerDraw(jnp.zeros((8, 2)))  # to whoever reads it, an array
    amortised = pg.Flow(pg.DiagonalNormal(mean, jnp.zeros(2)))
    with pytest.raises(ValueError, match="parameters that all draws share"):
        Model.split(amortised, target)


def diverged(flow, target, max_failures):
    trainer = pg.Trainer(pg.ReverseKL(target), pg.GaussNewton(), key=jr.key(0), max_failures=max_failures)
    with pytest.raises(pg.TrainingDiverged) as stopped:
        list(trainer.blocks(trainer.init(flow), 9))
    return stopped.value


def test_a_target_that_is_not_finite_stops_training_with_its_name():
    target = pg.LogDensity(lambda x: jnp.where(x[0] > 0, jnp.nan, -0.5 * x @ x), (2,))
    flow = pg.Flow(pg.DiagonalNormal.standard((2,)))
    found = diverged(flow, target, 2)
    assert found.outcome is pg.Outcome.TARGET_NOT_FINITE
    np.testing.assert_array_equal(ravel(found.state.model), ravel(flow))


@pytest.mark.slow
def test_a_solve_that_fails_is_named():
    field = pg.MLPField(2, 4, 1, key=jr.key(0))
    steps = pg.Adaptive(1e-9, 1e-9, max_steps=2)
    flow = pg.Flow(pg.DiagonalNormal.standard((2,)), [pg.CNF(field, integrator=steps)])
    assert diverged(flow, skewed_target(), 1).outcome is pg.Outcome.TOO_MANY_STEPS


def test_a_target_that_lies_elsewhere_is_named():
    """Adam stops there too: where hardly a draw is inside, there is nothing to follow."""
    target = pg.LogDensity(lambda x: jnp.where(x[0] > 1, -0.5 * x @ x, -jnp.inf), (2,))
    flow = pg.Flow(pg.DiagonalNormal.standard((2,)))
    assert diverged(flow, target, 2).outcome is pg.Outcome.TARGET_NOT_FINITE


def test_a_step_is_compiled_once_whatever_arrays_the_target_holds():
    class Shifted(eqx.Module):
        mean: jax.Array
        scale: np.ndarray

        def log_prob(self, x):
            return -0.5 * jnp.sum(((x - self.mean) / self.scale) ** 2)

    target = Shifted(jnp.array([1.0, -0.5]), np.array([0.5, 2.0]))
    for method in (pg.GaussNewton(), pg.FirstOrder(optax.adam(0.1), 8, block=1)):
        trainer = pg.Trainer(pg.ReverseKL(target), method, key=jr.key(0))
        flow = pg.Flow(pg.DiagonalNormal.standard((2,)))
        spent = [trainer.compile_seconds for _ in trainer.blocks(trainer.init(flow), 3)]
        assert 0 < spent[0] == spent[1] == spent[2]


def test_a_few_draws_outside_or_undefined_do_no_harm():
    def log_prob(x):
        inside = -0.5 * jnp.sum((x - 0.3) ** 2)
        return jnp.where(x[0] > 2.9, jnp.nan, jnp.where(x[1] < -2.5, -jnp.inf, inside))

    target = pg.LogDensity(log_prob, (2,))
    flow = pg.Flow(pg.DiagonalNormal.standard((2,)))
    fit = pg.fit(flow, target, pg.GaussNewton(), key=jr.key(0), steps=6)
    np.testing.assert_allclose(fit.model.base.mean, 0.3, atol=0.1)
    assert fit.history[-1].skipped == 0
    assert all(row.more["length"] > 0 for row in fit.history[:2])


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
def test_single_precision_is_solved_in_double():
    with jax.enable_x64(False):
        flow = pg.Flow(pg.FullNormal.standard((2,)))
        fit = pg.fit(flow, normal_target(), pg.GaussNewton(), key=jr.key(2), steps=8)
        assert fit.model.base.mean.dtype == jnp.float32
    assert fit.history[-1].ess > 1 - 1e-6


def test_vector_and_flow_are_the_same_thing(flow):
    model, vector = Model.split(flow, skewed_target())
    assert eqx.tree_equal(model.flow(vector), flow)
    assert vector.size == ravel_pytree(eqx.filter(flow, eqx.is_inexact_array))[0].size == 56
