"""Pareto smoothing: against the published algorithm in NumPy, exact tails, and weights that have none."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from pathgrad import metrics

ALGEBRA = 1e-10


def zhang_stephens(excess):
    """Fit a generalised Pareto distribution to ascending numbers: Zhang and Stephens (2009), in a loop."""
    n = len(excess)
    quartile = excess[math.floor(n / 4 + 0.5) - 1]
    nodes = 30 + math.floor(math.sqrt(n))
    theta, likelihood = [], []
    for j in range(1, nodes + 1):
        theta.append(1 / excess[-1] + (1 - math.sqrt(nodes / (j - 0.5))) / (3 * quartile))
        k = np.mean(np.log(1 - theta[-1] * excess))
        likelihood.append(n * (math.log(-theta[-1] / k) - k - 1))
    weight = [1 / sum(math.exp(min(other - mine, 700)) for other in likelihood) for mine in likelihood]
    mean = sum(w * t for w, t in zip(weight, theta, strict=True))
    k = np.mean(np.log(1 - mean * excess))
    return k, -k / mean


def smoothed_by_the_book(log_weight):
    """Vehtari et al. (2024), with weights in units of the largest."""
    n = len(log_weight)
    weight = np.exp(log_weight - log_weight.max())
    size = math.ceil(min(n / 5, 3 * math.sqrt(n)))
    order = np.argsort(weight)
    tail, cut = order[-size:], weight[order[-size - 1]]
    k, scale = zhang_stephens(weight[tail] - cut)
    k = (size * k + 10 * 0.5) / (size + 10)
    place = (np.arange(1, size + 1) - 0.5) / size
    weight[tail] = np.minimum(cut + scipy.stats.genpareto(k, scale=scale).ppf(place), 1.0)
    return np.log(weight) + log_weight.max(), k


WEIGHTS = {
    "lognormal": lambda rng: rng.normal(size=1000),
    "heavy": lambda rng: 0.9 * rng.exponential(size=500) + 40.0,
    "heavier": lambda rng: 1.4 * rng.exponential(size=2000),
    "bounded": lambda rng: np.log(rng.uniform(size=700)) - 300.0,
    "few": lambda rng: rng.normal(size=21),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_it_is_the_published_algorithm(name):
    log_weight = WEIGHTS[name](np.random.default_rng(3))
    expected, k = smoothed_by_the_book(log_weight)
    found = metrics.psis(jnp.asarray(log_weight))
    np.testing.assert_allclose(found.log_weight, expected, atol=ALGEBRA)
    assert float(found.khat) == pytest.approx(k, abs=ALGEBRA)
    assert float(found.khat) == float(metrics.khat(jnp.asarray(log_weight)))
    assert np.abs(found.log_weight - log_weight).max() > 0.01


# From `arviz.psislw` of ArviZ 0.23.4: k-hat, and the largest, tenth, fiftieth and last smoothed log-weight.
ARVIZ = {
    2.0: (0.6664972902740932, [6.581053463, 4.6389834023, 3.2992330444, 2.6215894498]),
    0.7: (0.18077084551608358, [2.303368712, 1.6639424888, 1.1542735832, 0.9173960231]),
}


@pytest.mark.parametrize("scale", ARVIZ)
def test_it_agrees_with_arviz(scale):
    log_weight = scale * scipy.stats.norm.ppf((np.arange(1000) + 0.5) / 1000)
    khat, largest = ARVIZ[scale]
    found = metrics.psis(jnp.asarray(log_weight))
    assert float(found.khat) == pytest.approx(khat, abs=ALGEBRA)
    np.testing.assert_allclose(found.log_weight[np.array([-1, -10, -50, -95])], largest, atol=1e-9)


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.4, 0.8])
def test_an_exact_tail_stays_what_it_is(shape):
    """Order statistics of a generalised Pareto distribution are near their own smoothed values."""
    n = 10_000
    weight = 3 + scipy.stats.genpareto(shape, scale=2.0).ppf((np.arange(n) + 0.5) / n)
    found = metrics.psis(jnp.log(weight))
    expected = (300 * shape + 5) / 310
    assert float(found.khat) == pytest.approx(expected, abs=0.02)
    # Without the very largest. The prior moves the shape by 0.01, and that times ln(300 / 5) is 0.04.
    np.testing.assert_allclose(found.log_weight[:-5], np.log(weight)[:-5], atol=0.05)


def test_what_it_keeps():
    rng = np.random.default_rng(1)
    log_weight = 1.2 * rng.exponential(size=400)
    smoothed = np.asarray(metrics.psis(jnp.asarray(log_weight)).log_weight)
    tail = np.argsort(log_weight)[-60:]  # three times the root of 400
    body = np.setdiff1d(np.arange(400), tail)
    np.testing.assert_array_equal(smoothed[body], log_weight[body])
    # The order of the weights, none above the largest, and their scale.
    np.testing.assert_array_equal(np.argsort(smoothed[tail]), np.argsort(log_weight[tail]))
    assert smoothed.max() <= log_weight.max()
    moved = metrics.psis(jnp.asarray(log_weight + 7.0)).log_weight
    np.testing.assert_allclose(moved, smoothed + 7.0, atol=ALGEBRA)


def test_a_mean_of_heavy_weights_has_a_smaller_error():
    """Weights with k = 0.8: their mean is known, their variance infinite."""
    rng = np.random.default_rng(2)
    shape, runs = 0.8, 200
    weight = 1 + scipy.stats.genpareto(shape).rvs(size=(runs, 1000), random_state=rng)
    smoothed = jax.jit(jax.vmap(lambda w: metrics.psis(jnp.log(w)).log_weight))(weight)
    exact = 1 + 1 / (1 - shape)
    plain, better = weight.mean(1) - exact, np.exp(smoothed).mean(1) - exact
    assert np.mean(better**2) < 0.7 * np.mean(plain**2)


@pytest.mark.parametrize(
    ("log_weight", "khat"),
    [
        (np.linspace(-1, 1, 20), np.inf),
        (np.full(400, 2.5), -np.inf),
        (np.where(np.arange(400) < 3, 0.0, -np.inf), np.inf),
        (np.full(400, -np.inf), None),
        (np.append(np.linspace(-1, 1, 400), np.inf), None),
    ],
    ids=["few", "equal", "three", "zero", "infinite"],
)
def test_weights_without_a_tail_stay(log_weight, khat):
    found = metrics.psis(jnp.asarray(log_weight))
    np.testing.assert_array_equal(found.log_weight, log_weight)
    assert not np.isfinite(found.khat)
    np.testing.assert_array_equal(found.khat, metrics.khat(jnp.asarray(log_weight)))
    assert khat is None or found.khat == khat


def test_a_nan_is_not_hidden():
    log_weight = np.linspace(-1, 1, 400)
    log_weight[7] = np.nan
    found = metrics.psis(jnp.asarray(log_weight))
    assert np.isnan(found.khat)
    np.testing.assert_array_equal(found.log_weight, log_weight)


def test_weights_of_zero_stay_zero():
    log_weight = np.where(np.arange(1000) % 3 == 0, -np.inf, np.random.default_rng(5).normal(size=1000))
    found = metrics.psis(jnp.asarray(log_weight))
    assert np.isfinite(found.khat)
    np.testing.assert_array_equal(np.isinf(found.log_weight), np.isinf(log_weight))
