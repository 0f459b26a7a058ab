"""Weighted draws: averages with errors against closed forms, and draws without weights."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import norm, skewnorm

import pathgrad as pg

KEY = jr.key(3)


def skewed(rng, n):
    """Draws of a normal distribution, with weights that make them a gamma one for the first coordinate."""
    # The proposal is exponential with mean 3, the target has density x^2 exp(-x) / 2: mean 3, variance 3.
    x = np.stack([rng.exponential(3.0, n), rng.normal(5.0, 2.0, n)], axis=1)
    return x, 2 * np.log(x[:, 0]) - x[:, 0] + x[:, 0] / 3.0


def test_averages_are_those_of_the_target_within_their_errors():
    rng, scores = np.random.default_rng(0), []
    for _ in range(200):
        found = pg.Weighted.smoothed(*skewed(rng, 1000))
        for (value, error), exact in ((found.mean, [3.0, 5.0]), (found.sd, [3**0.5, 2.0])):
            scores.append((value - exact) / error)
    scores = np.array(scores)
    assert np.all(np.abs(scores.mean(axis=0)) < 0.3)  # a small bias, and the noise of 400 scores
    assert np.all(np.abs(scores.std(axis=0) - 1) < 0.1)


def test_any_function_can_be_averaged_and_is_in_double_precision():
    x, log_weight = skewed(np.random.default_rng(1), 20_000)
    found = pg.Weighted.smoothed(x + np.array([0, 1e9]), log_weight + 4e5)
    value, error = found.expect(lambda x: {"log": jnp.log(x[0]), "pair": x - jnp.array([0.0, 1e9])})
    assert abs(value["log"] - 0.9227843351) < 4 * error["log"]  # 3/2 minus Euler's constant
    np.testing.assert_allclose(value["pair"], [3, 5], atol=4 * error["pair"].max())
    plain = pg.Weighted.smoothed(x, log_weight)
    np.testing.assert_allclose(value["pair"], plain.mean.value, rtol=1e-6)
    np.testing.assert_allclose(error["pair"], plain.mean.error, rtol=1e-6)
    # That of the target against the proposal: E[w]^2 / E[w^2], from integrals of x^4 exp(-5 x / 3).
    assert found.ess == pytest.approx(4 / (3 * 24 / (5 / 3) ** 5), rel=0.03)
    assert found.log_weight.dtype == np.float64
    assert np.exp(found.log_weight).sum() == pytest.approx(1.0, abs=1e-12)


def errors_of_variance(target, base, n, runs):
    """Root mean square errors of a variance, with weights of `Weighted` and with plain ones."""
    rng, errors = np.random.default_rng(2), []
    for _ in range(runs):
        x = base.rvs(n, random_state=rng)
        log_weight = target.logpdf(x) - base.logpdf(x)
        weight = np.exp(log_weight) / np.exp(log_weight).sum()
        found = pg.Weighted.smoothed((x[:, None] - target.mean()) ** 2, log_weight)
        plain = weight @ (x - target.mean()) ** 2
        errors.append([found.mean.value[0] - target.var(), plain - target.var()])
    return np.mean(np.square(errors), axis=0) ** 0.5


def test_the_largest_weights_are_smoothed():
    """A flow that is a little too narrow, k-hat 0.36."""
    smooth, plain = errors_of_variance(norm(0, 1), norm(0, 0.8), 1000, 150)
    assert smooth < 0.85 * plain


def test_weights_that_hardly_vary_are_not_smoothed_however_large_khat_is():
    """The best normal for a skew target, with a k-hat of 3, by which the largest would become too large."""
    target: Any = skewnorm(3)
    base: Any = norm(target.mean(), target.std())
    rng, errors = np.random.default_rng(2), []
    for _ in range(20):
        x = base.rvs(10_000, random_state=rng)
        log_weight = target.logpdf(x) - base.logpdf(x)
        found = pg.Weighted.smoothed(x[:, None], log_weight)
        assert found.khat > 1
        np.testing.assert_allclose(found.log_weight, log_weight - np.log(np.exp(log_weight).sum()), atol=1e-9)
        published = np.asarray(pg.metrics.psis(jnp.asarray(log_weight)).log_weight)
        errors.append([np.log(np.exp(each).mean()) for each in (published, log_weight)])  # of log Z, zero
    published, plain = np.mean(np.square(errors), axis=0) ** 0.5
    assert published > 3 * plain


def test_points_without_mass_do_not_count():
    x = np.array([[1.0], [np.nan], [3.0], [-4.0]])
    found = pg.Weighted.smoothed(x, np.array([0.0, -np.inf, np.log(3.0), -np.inf]))
    value, error = found.expect(lambda x: jnp.log(x[0]))
    assert value == pytest.approx(0.75 * np.log(3.0))
    assert error == pytest.approx(np.hypot(0.25 * 0.75, 0.75 * 0.25) * np.log(3.0))
    assert found.mean.value[0] == pytest.approx(2.5)


def test_a_draw_is_repeated_as_often_as_its_weight_says():
    x, log_weight = skewed(np.random.default_rng(4), 500)
    found = pg.Weighted.smoothed(x, log_weight)
    drawn = found.resample(2000, key=KEY)
    assert drawn.shape == (2000, 2)
    counts = (drawn[:, :1] == x[:, 0]).sum(axis=0)
    assert np.all(np.abs(counts - 2000 * found.weight) < 1 + 1e-9)
    np.testing.assert_allclose(drawn.mean(axis=0), found.mean.value, atol=0.05)
    # In no order, and with another key others.
    assert abs(np.corrcoef(drawn[:-1, 0], drawn[1:, 0])[0, 1]) < 0.1
    assert not np.array_equal(np.sort(found.resample(2000, key=jr.key(4))), np.sort(drawn))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_failed_draws_are_not_hidden(bad):
    found = pg.Weighted.smoothed(np.zeros((30, 1)), np.append(np.zeros(29), bad))
    assert np.isnan(found.mean.value).all()
    with pytest.raises(pg.UserError, match="weights are not finite"):
        found.resample(5, key=KEY)


def test_weights_of_zero_alone_are_refused():
    with np.errstate(invalid="ignore"):
        found = pg.Weighted.smoothed(np.zeros((30, 1)), np.full(30, -np.inf))
    with pytest.raises(pg.UserError, match="weights are not finite"):
        found.resample(5, key=KEY)
    assert jax.tree.leaves(found.mean)[0].shape == (1,)
