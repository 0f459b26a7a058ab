"""What more draws would show: against quadrature, and against more draws."""

import math

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.integrate

import pathgrad as pg
from pathgrad import metrics
from pathgrad._numbers.foresight import MORE, ess_with_more_draws

SHAPES = [0.2, 0.5, 0.7, 1.0, 1.4]


@pytest.mark.parametrize("khat", [*SHAPES, 0.5 + 1e-9])
def test_the_integral_behind_it(khat):
    n, ess, excess = 5000, 0.97, 1.7
    more, _ = scipy.integrate.quad(lambda y: 2 * y * (excess / y) ** (1 / khat), excess, excess * MORE**khat)
    expected = 1 / (1 / ess + more / n)
    assert ess_with_more_draws(n, ess, khat, 1 + excess) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
def test_more_draws_have_that_ess(shape):
    """Weights 1 + y with P(y > x) = (c / x)^(1/k) beyond c, at the midpoints of equal parts."""
    n, unit = 2000, 0.02

    def weights(draws):
        above = (np.arange(draws) + 0.5) / draws
        return 1 + np.minimum(unit * above**-shape, unit * n**shape * MORE**shape)

    many = weights(n * MORE)
    # What one in n draws exceeds, where the tail is taken to begin.
    largest = 1 + unit * n**shape
    ess = float(metrics.ess(jnp.log(np.minimum(weights(n), largest))))
    predicted = ess_with_more_draws(n, ess, shape, largest / many.mean())
    found = float(metrics.ess(jnp.log(many)))
    assert 1 / predicted - 1 == pytest.approx(1 / found - 1, rel=0.3)


@pytest.mark.parametrize("khat", [0.5, 0.6, 0.8, 1.0, 1.5])
def test_what_is_harmless_hardly_biases_an_average(khat):
    """At the threshold of the verdict, what the tail adds to the mean is a fifth of a standard error."""
    n = 10_000
    grid = np.linspace(0, 30, 30_001)
    excess = max(e for e in grid if ess_with_more_draws(n, 1.0, khat, 1 + e) >= 0.95)
    further, _ = scipy.integrate.quad(lambda y: (excess / y) ** (1 / khat), excess, excess * MORE**khat)
    assert (excess + further) / n < 0.21 / math.sqrt(n)


def test_without_a_tail_nothing_changes():
    assert ess_with_more_draws(1000, 0.9, -0.3, 4.0) == ess_with_more_draws(1000, 0.9, -math.inf, 4.0) == 0.9
    assert ess_with_more_draws(1000, 0.9, 0.8, 1.0) == pytest.approx(0.9)


@pytest.mark.parametrize(
    "unknown",
    [{"ess": math.nan}, {"khat": math.nan}, {"khat": math.inf}, {"largest_weight": math.nan}, {"n": 0}],
    ids=str,
)
def test_nothing_is_foreseen_from_unknown_numbers(unknown):
    known = {"n": 1000, "ess": 0.9, "khat": 0.6, "largest_weight": 3.0}
    assert math.isnan(ess_with_more_draws(**known | unknown))


def test_weights_that_hardly_vary_are_good_whatever_their_tail():
    """A flow that is right but for a small, heavy tail, and one for which the same tail is large."""
    flow, target = pg.Flow(pg.StandardNormal((1,))), pg.LogDensity(lambda x: -0.5 * jnp.sum(x**2), (1,))
    above = np.random.default_rng(0).uniform(size=16384)

    def judged(unit):
        log_weight = np.log(1 + unit * (above**-1.1 - 1))
        draws = {"log_weight": log_weight, "evaluations": np.zeros(1)}
        return pg.evaluate(flow, target, key=jr.key(0), draws=draws)

    small, large = judged(2e-6), judged(2e-2)
    for found in (small, large):
        assert found.khat > 0.7
    assert small.largest_weight < 1.5 < 50 < large.largest_weight
    assert small.ess > 0.9999
    assert small.verdict == pg.Verdict(pg.Level.GOOD)
    assert f"only {small.largest_weight:.3g} times the mean" in str(small)
    assert large.verdict == pg.Verdict(pg.Level.UNRELIABLE, (pg.Reason.HEAVY_TAIL,))
