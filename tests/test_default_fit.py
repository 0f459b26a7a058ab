"""Fit a density with nothing chosen."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from pathgrad import metrics
from pathgrad._default import pipeline
from pathgrad._default.clock import Clock
from pathgrad._default.contender import Round
from pathgrad._default.inside import Inside
from pathgrad._default.looks import Look
from pathgrad._default.pipeline import Pipeline

SMALL = pg.Recipe(kinds=[pg.Kind.COUPLINGS], n=128, first=200, rounds=1, look_draws=4096)
SCALES = np.array([3.0, 0.02])
SHIFT = np.array([40.0, -7.0])


def banana(x):
    """Skewed and bent, far from the origin and with unlike scales; its normaliser is known."""
    u, v = (x - SHIFT) / SCALES
    v = v + 0.4 * (u**2 - 1)
    return -0.5 * (u**2 + v**2) - math.log(2 * math.pi) - np.log(SCALES).sum() + 5.0


TARGET = pg.LogDensity(banana, (2,))


def cut_short(target, **how):
    """A warm start that its clock ends before it has converged."""
    return pg.warm_start(target, **how | {"max_seconds": None, "cut": how.get("cut", 18)})


@pytest.fixture(scope="module")
def fit():
    return pg.fit(TARGET, recipe=dataclasses.replace(SMALL, warm_start=cut_short), key=jr.key(1))


def test_a_density_is_fitted_from_nothing_but_itself(fit):
    found = fit.evaluation
    assert found.ess > 0.9
    assert abs(found.log_z - 5.0) < 5 * found.log_z_err
    draws = np.asarray(fit.sample(20_000))
    # u and v of the docstring are standard normal, v after bending.
    u = (draws[:, 0] - SHIFT[0]) / SCALES[0]
    v = (draws[:, 1] - SHIFT[1]) / SCALES[1]
    assert abs(u.mean()) < 0.05
    assert abs(v.mean()) < 0.08
    assert abs(np.corrcoef(u**2, v)[0, 1] + 0.4 * math.sqrt(2 / (1 + 0.32))) < 0.1


def test_averages_and_draws_are_those_of_the_target(fit):
    mean, error = fit.expect(lambda x: x)
    np.testing.assert_array_less(np.abs(mean - [40.0, -7.0]), 4 * error)
    assert np.all(error < 0.03 * SCALES)
    variance, error = fit.expect(lambda x: (x - mean) ** 2, 4000)
    np.testing.assert_array_less(np.abs(variance - SCALES**2 * [1, 1.32]), 4 * error)
    drawn = fit.resample(4000)
    assert drawn.shape == (4000, 2)
    found = fit.weighted(4000)
    assert 0.9 < found.ess < 1
    assert set(drawn[:, 0]) <= set(found.x[:, 0])
    assert 3000 < len(set(drawn[:, 0])) < 4000
    np.testing.assert_allclose(drawn.mean(axis=0), found.mean.value, atol=0.02)


def test_draws_and_densities_are_in_the_coordinates_of_the_target(fit):
    draw = fit.flow.sample_with_score(key=jr.key(3), n=64)
    np.testing.assert_allclose(fit.log_prob(draw.x), draw.log_q, atol=1e-6)
    weights = jax.vmap(TARGET.log_prob)(draw.x) - draw.log_q
    assert abs(float(pg.metrics.elbo(weights)) - fit.evaluation.elbo) < 0.2
    # Of the density itself, and so with its units.
    score = jax.vmap(jax.grad(lambda x: fit.flow.log_prob(x[None])[0]))(draw.x)
    np.testing.assert_allclose(draw.score, score, rtol=1e-5, atol=1e-5)


def test_a_plan_repeats_a_fit_to_the_same_bits(fit):
    again = pg.fit(TARGET, recipe=pg.Recipe(plan=fit.plan, look_draws=4096), key=jr.key(1))
    assert again.start is not None
    assert again.start.outcome is pg.StartOutcome.TIME_USED_UP
    assert again.plan == fit.plan
    assert again.plan.cut == 18
    np.testing.assert_array_equal(again.sample(5), fit.sample(5))
    assert pg.Plan.from_json(fit.plan.to_json()) == fit.plan


def test_what_happened_can_be_read(fit):
    text = str(fit)
    for words in ("warm start: a full Gaussian", "couplings, round 1, 200 steps: ESS", "verdict"):
        assert words in text
    assert [one.steps for one in fit.rounds] == [200]
    assert fit.history[-1].step == 200


def test_the_scales_of_coordinates_do_not_matter():
    """A copy with condition 1e6, moved by a hundred standard deviations, has the same ESS."""
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((2, 2)))[0]
    matrix = rotation @ np.diag([1e-3, 1e3]) @ rotation.T
    inverse, moved = np.linalg.inv(matrix), matrix @ np.array([300.0, 2.0])

    def copy(y):
        return banana(inverse @ (y - moved)) - np.linalg.slogdet(matrix)[1]

    with jax.enable_x64(False):
        copied = pg.fit(pg.LogDensity(copy, (2,)), recipe=SMALL, key=jr.key(1))
        found, drawn = copied.weighted(2000), copied.sample(500)
        log_q = copied.log_prob(drawn)
    assert copied.plan.double
    assert copied.evaluation.ess > 0.9
    assert abs(copied.evaluation.log_z - 5.0) < 5 * copied.evaluation.log_z_err
    # One axis is 1e-8 as long as the distance from the origin, where single precision has no digits for it.
    mean, error = found.mean
    back = (found.x - moved) @ inverse.T
    np.testing.assert_array_less(np.abs(found.weight @ back - SHIFT), 0.1 * SCALES)
    np.testing.assert_allclose(back.std(axis=0), SCALES * [1, 1.32**0.5], rtol=0.1)
    np.testing.assert_allclose(mean, matrix @ SHIFT + moved, atol=4 * error.max())
    log_weight = jnp.array([copy(y) for y in drawn]) - log_q
    assert abs(metrics.log_z(log_weight).value - 5.0) < 0.05
    assert metrics.ess(log_weight) > 0.9


def test_without_a_warm_start_a_flow_begins_at_a_standard_normal():
    recipe = dataclasses.replace(SMALL, warm_start=None, first=20, defence=False)
    target = pg.LogDensity(lambda x: -0.5 * x @ x, (2,))
    found = pg.fit(target, recipe=recipe)
    assert found.start is None
    assert found.evaluation.ess > 0.9


def test_a_flow_of_the_user_is_used_as_it_is():
    flow = pg.Flow(pg.StandardNormal((2,)), [pg.Affine.identity((2,))])
    found = pg.fit(TARGET, recipe=pg.Recipe(flow=flow, n=64, first=20, rounds=1, look_draws=1000))
    assert found.plan.kind is None
    assert jax.tree.structure(found.flow.transforms[0]) == jax.tree.structure(flow.transforms[0])
    assert isinstance(found.flow.transforms[-1], pg.FullAffine)


def test_what_fell_short_is_told(fit):
    recipe = pg.Recipe(warm_start=None, rounds=3)
    pipeline = Pipeline(TARGET, recipe, Clock(60.0), jr.key(0), lambda *_: None)
    contender = pipeline._contender(pg.Kind.TIED, Inside(TARGET, False, 0.0, False), 64, 10)

    def told(*elbos, ess=0.3, kl=1.0):
        looks = [Look(elbo, ess, 0.5, 30.0, 1000) for elbo in elbos]
        pipeline.rounds = [Round(pg.Kind.TIED, 1, 10, look, 1.0) for look in looks]
        return pipeline.shortfall(contender, dataclasses.replace(fit.evaluation, ess=ess, kl=kl))

    assert told(-3.0, -2.0) is pg.Shortfall.FLOW  # there was time for more
    assert told(-3.0, -2.0, ess=0.96) is pg.Shortfall.NONE
    pipeline.clock.limit = 1e-9
    assert told(-3.0, -2.0) is pg.Shortfall.TIME
    assert told(-3.0) is pg.Shortfall.TIME
    assert told(-3.0, -2.95) is pg.Shortfall.FLOW
    assert told(-3.0, -2.95, kl=0.1) is pg.Shortfall.TIME
    pipeline.start = fit.start._replace(outcome=pg.StartOutcome.TIME_USED_UP)
    assert told(-3.0, -2.0) is pg.Shortfall.START
    contender.failure = pg.Outcome.TARGET_NOT_FINITE
    assert told(-3.0, -2.0) is pg.Shortfall.OUTSIDE
    contender.failure = pg.Outcome.UPDATE_NOT_FINITE
    assert told(-3.0, -2.0) is pg.Shortfall.DIVERGED


@pytest.mark.parametrize("kind", list(pg.Kind))
def test_every_kind_begins_near_the_identity(kind):
    flow = kind.flow((3,), key=jr.key(0))
    draw = flow.sample_with_score(key=jr.key(1), n=200)
    log_weight = -0.5 * jnp.sum(draw.x**2, axis=1) - 1.5 * math.log(2 * math.pi) - draw.log_q
    assert float(jnp.abs(log_weight).max()) < (0.5 if kind is pg.Kind.NETWORK else 1e-5)


def test_restarts_are_cosines_of_doubling_length():
    rate = pg.Restarts(10)
    assert [rate.end(k) for k in range(4)] == [0, 10, 30, 70]
    factors = np.array([float(rate(jnp.asarray(i), jnp.zeros(()))) for i in range(70)])
    assert factors.min() > 0
    for begin, end in ((0, 10), (10, 30), (30, 70)):
        one = factors[begin:end]
        assert one[-1] < 0.05 < 0.9 < one.max()
        share = np.arange(1, end - begin + 1) / (end - begin + 1)
        falling = 0.5 * (1 + np.cos(np.pi * (share - 0.05) / 0.95))
        np.testing.assert_allclose(one[share > 0.05], falling[share > 0.05], atol=1e-6)


def test_a_flow_is_kept_if_its_bound_is_higher_or_its_tail_lighter():
    look = lambda elbo, ess, khat, largest=30.0: Look(elbo, ess, khat, largest, 10_000)  # noqa: E731
    base = look(-3.0, 0.9, 0.6)
    assert look(-2.9, 0.9, 0.7).beats(base)
    assert look(-3.01, 0.9, 0.5).beats(base)
    assert not look(-3.01, 0.9, 0.6).beats(base)
    assert not look(-3.1, 0.99, 0.1).beats(base)
    assert not look(math.nan, 0.99, 0.1).beats(base)
    assert not look(-math.inf, 0.0, math.inf).beats(None)
    assert base.beats(None)
    assert look(0.0, 0.99, 0.3).is_good
    assert not look(0.0, 0.97, 0.3).is_good
    assert not look(0.0, 0.99, 0.8).is_good
    assert not look(0.0, 0.99, 0.8, largest=1.2).is_good
    assert look(0.0, 0.999, 0.8, largest=1.2).is_good


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (lambda x: -x @ x, "LogDensity.*bare function"),
        (pg.Flow(pg.StandardNormal((2,)), []), "needs something to fit"),
        (object(), "must be an object with `log_prob"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_a_remedy(given, remedy):
    with pytest.raises(pg.ArgumentError, match=remedy):
        pg.fit(given)


def test_options_of_the_other_form_are_refused():
    with pytest.raises(pg.ArgumentError, match=r"steps.*with an `objective`.*recipe"):
        pg.fit(TARGET, steps=10)  # pyright: ignore[reportCallIssue]
    with pytest.raises(pg.ArgumentError, match="needs a `key`"):
        pg.fit(pg.Flow(pg.StandardNormal((2,)), []), TARGET, steps=10)  # pyright: ignore[reportCallIssue]
    with pytest.raises(pg.ArgumentError, match="must be positive"):
        pg.fit(TARGET, max_seconds=0.0)


@pytest.mark.parametrize(
    ("density", "why"),
    [
        (lambda x: -jnp.inf * (1 + 0 * x[0]), "not a finite number at any point"),
        (lambda x: -0.5 * x[0] ** 2, "no finite integral"),
    ],
)
def test_hopeless_densities_end_in_a_sentence(density, why):
    with pytest.raises(pg.UserError, match=why):
        pg.fit(pg.LogDensity(density, (2,)))


def test_a_target_that_is_too_slow_is_refused_with_the_time_it_takes():
    def slow_start(target, **how):
        return pg.warm_start(target, **how)._replace(pace=1.0)

    target = pg.LogDensity(lambda x: -0.5 * x @ x, (2,))
    with pytest.raises(pg.UserError, match=r"One gradient of the target takes 1 s.*Give it more"):
        pg.fit(target, recipe=pg.Recipe(warm_start=slow_start), max_seconds=60.0)


def test_time_may_be_endless():
    target = pg.LogDensity(lambda x: -0.5 * x @ x, (2,))
    recipe = dataclasses.replace(SMALL, first=20, look_draws=1000)
    assert pg.fit(target, recipe=recipe, max_seconds=math.inf).evaluation.ess > 0.9


def test_a_solver_that_is_too_coarse_takes_more_steps(monkeypatch):
    def judged(flow, target, **how):
        found = pg.evaluate(flow, target, **how)
        is_coarse = flow.transforms[0].integrator.steps < 12
        return dataclasses.replace(found, solver_shift=1.0) if is_coarse else found

    monkeypatch.setattr(pipeline, "evaluate", judged)
    recipe = dataclasses.replace(SMALL, kinds=[pg.Kind.NETWORK], n=16, first=5, look_draws=500)
    found = pg.fit(TARGET, recipe=recipe)
    first = found.flow.transforms[0]
    assert isinstance(first, pg.CNF)
    assert first.integrator == pg.FixedStep(12)
    assert found.evaluation.solver_shift < 0.1
