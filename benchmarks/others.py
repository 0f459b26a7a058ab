"""Ordinary posteriors that no part of the default fit was tuned to, with data from a seeded generator.

    python -m benchmarks.targets --targets benchmarks.others --out results/targets/others

They are written as a statistician would write them: hierarchies as they stand, series, regressions on raw
covariates, mixtures without an order. Points are free vectors; where a parameter is positive it is the
exponential of its coordinate, and the log-determinant of that is in the density. Constants are left out.
`references.json` has means and standard deviations of the coordinates (see `benchmarks.other_references`).
"""

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float

from pathgrad.targets.density import AbstractDensity, cauchy_of_log, indexed, like, normal
from pathgrad.targets.known import BenchmarkTarget, Reference

REFERENCES = Path("results/targets/others/references.json")

LogProb = Callable[[Array], Array]


class Model(NamedTuple):
    """A posterior, and what helps a sampler.

    Attributes:
        dim: Number of coordinates.
        log_prob: Log density of a point, up to a constant.
        relaxed: From coordinates that are easier for a sampler, with the log-determinant.
        twin: The other point of the same density, for a mixture of two like components.
    """

    dim: int
    log_prob: LogProb
    relaxed: Callable[[Array], tuple[Array, Array]] | None = None
    twin: Callable[[np.ndarray], np.ndarray] | None = None


class Other(AbstractDensity):
    """The density of a model."""

    model: Model = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return (self.model.dim,)

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density at one point."""
        return self.model.log_prob(x)


def spread(x: Array, mean: Array | float, log_sd: Array) -> Array:
    """Return the sum of log densities of normal variables with a common log standard deviation."""
    return jnp.sum(-0.5 * ((x - mean) * jnp.exp(-log_sd)) ** 2 - log_sd)


def half_normal(log_x: Array, scale: float) -> Array:
    """Return the log density of the logarithm of a half-normal variable."""
    return jnp.sum(-0.5 * (jnp.exp(log_x) / scale) ** 2 + log_x)


def half_cauchy(log_x: Array, scale: float) -> Array:
    """Return the log density of the logarithm of a half-Cauchy variable."""
    return jnp.sum(cauchy_of_log(log_x, scale) + log_x)


def eight_schools_centred() -> Model:
    """Effects themselves instead of standardised ones: a funnel. Effects, their mean, their log spread."""
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def log_prob(x):
        theta, mu, log_tau = x[:8], x[8], x[9]
        fit = jnp.sum(normal((like(x, y) - theta) / like(x, errors)))
        return fit + spread(theta, mu, log_tau) + normal(mu, sd=5.0) + half_cauchy(log_tau, 5.0)

    return Model(10, log_prob, lambda z: (z.at[:8].set(z[8] + jnp.exp(z[9]) * z[:8]), 8 * z[9]))


def radon_centred() -> Model:
    """Forty groups of unlike size: intercepts, their mean, a slope, log spreads of intercepts and values."""
    rng, groups = np.random.default_rng(1), 40
    group = np.repeat(np.arange(groups), rng.integers(2, 25, groups))
    floor = (rng.random(len(group)) < 0.2).astype(float)
    intercept = 1.4 + 0.35 * rng.standard_normal(groups)
    y = intercept[group] - 0.65 * floor + 0.75 * rng.standard_normal(len(group))

    def log_prob(x):
        a, (mean, slope, log_spread, log_sd) = x[:groups], x[groups:]
        fit = spread(like(x, y), a[group] + slope * like(x, floor), log_sd) + spread(a, mean, log_spread)
        prior = normal(mean, sd=10.0) + normal(slope, sd=10.0)
        return fit + prior + half_normal(x[-2:], 1.0)

    def relaxed(z):
        mean, log_spread = z[groups], z[groups + 2]
        return z.at[:groups].set(mean + jnp.exp(log_spread) * z[:groups]), groups * log_spread

    return Model(groups + 4, log_prob, relaxed)


def lotka_volterra() -> Model:
    """Hunters and prey for twenty years: log rates, log sizes at first, log errors."""
    h = 0.1

    def slope(rates, logs):
        return jnp.stack([rates[0] - rates[1] * jnp.exp(logs[1]), rates[3] * jnp.exp(logs[0]) - rates[2]])

    def step(rates, y):
        k1 = slope(rates, y)
        k2 = slope(rates, y + 0.5 * h * k1)
        k3 = slope(rates, y + 0.5 * h * k2)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(rates, y + h * k3))

    def path(rates, logs):
        def year(y, _):
            y = jax.lax.scan(lambda y, _: (step(rates, y), None), y, None, length=10)[0]
            return y, y

        return jnp.concatenate([logs[None], jax.lax.scan(year, logs, None, length=20)[1]])

    with jax.enable_x64(True):
        truth = np.asarray(path(jnp.array([0.55, 0.028, 0.84, 0.026]), jnp.log(jnp.array([33.0, 6.0]))))
    y = truth + 0.25 * np.random.default_rng(2).standard_normal(truth.shape)
    centre, width = np.array([1.0, 0.05, 1.0, 0.05]), np.array([0.5, 0.05, 0.5, 0.05])

    def log_prob(x):
        rates, logs, log_sds = jnp.exp(x[:4]), x[4:6], x[6:]
        fit = sum(spread(like(x, y)[:, i], path(rates, logs)[:, i], log_sds[i]) for i in range(2))
        prior = jnp.sum(normal((rates - like(x, centre)) / like(x, width)) + x[:4])
        return fit + prior + jnp.sum(normal(logs, math.log(10.0))) + jnp.sum(normal(log_sds, -1.0))

    return Model(8, log_prob)


def gp_counts() -> Model:
    """A Gaussian process behind fifteen counts: its log length and log height, and standard normals."""
    rng, t = np.random.default_rng(4), np.linspace(-5, 5, 15)
    counts = rng.poisson(np.exp(1.5 + np.sin(t))).astype(float)
    squares = (t[:, None] - t) ** 2

    def log_prob(x):
        kernel = jnp.exp(2 * x[1] - 0.5 * like(x, squares) * jnp.exp(-2 * x[0]))
        f = jnp.linalg.cholesky(kernel + 1e-8 * jnp.eye(15, dtype=x.dtype)) @ x[2:]
        fit = jnp.sum(like(x, counts) * f - jnp.exp(f)) + jnp.sum(normal(x[2:]))
        return fit + 25 * x[0] - 4 * jnp.exp(x[0]) + half_normal(x[1], 2.0)

    return Model(17, log_prob)


def irt_2pl() -> Model:
    """Forty answer twelve questions: abilities, log discriminations, difficulties, and their spreads."""
    rng, tests, people = np.random.default_rng(5), 12, 40
    ability, log_a = rng.standard_normal(people), 0.4 * rng.standard_normal(tests)
    difficulty = 0.5 + rng.standard_normal(tests)
    chance = 1 / (1 + np.exp(-np.exp(log_a)[:, None] * (ability - difficulty[:, None])))
    right = (rng.random((tests, people)) < chance).astype(float)
    ends = (people, people + tests, people + 2 * tests)

    def log_prob(x):
        ability, log_a, difficulty, (s_ability, s_a, mean, s_difficulty) = jnp.split(x, ends)
        logits = jnp.exp(log_a)[:, None] * (ability - difficulty[:, None])
        fit = jnp.sum(like(x, right) * logits - jax.nn.softplus(logits))
        spreads = spread(ability, 0.0, s_ability) + spread(log_a, 0.0, s_a)
        spreads += spread(difficulty, mean, s_difficulty) + normal(mean, sd=5.0)
        return fit + spreads + half_cauchy(jnp.stack([s_ability, s_a, s_difficulty]), 2.0)

    def relaxed(z):
        ability, log_a, difficulty, hyper = jnp.split(z, ends)
        s_ability, s_a, mean, s_difficulty = hyper
        parts = jnp.exp(s_ability) * ability, jnp.exp(s_a) * log_a, mean + jnp.exp(s_difficulty) * difficulty
        return jnp.concatenate([*parts, hyper]), people * s_ability + tests * (s_a + s_difficulty)

    return Model(ends[-1] + 4, log_prob, relaxed)


def poisson_glmm() -> Model:
    """Counts at 25 sites: standardised effects of sites, an intercept, a slope, the effects' log spread."""
    rng, sites = np.random.default_rng(6), 25
    site, slope = np.repeat(np.arange(sites), 4), rng.standard_normal(4 * sites)
    counts = rng.poisson(np.exp(0.8 + 0.4 * slope + 0.7 * rng.standard_normal(sites)[site])).astype(float)

    def log_prob(x):
        effects, (intercept, gain, log_spread) = x[:sites], x[sites:]
        eta = intercept + gain * like(x, slope) + jnp.exp(log_spread) * effects[site]
        prior = jnp.sum(normal(effects)) + jnp.sum(normal(x[sites:-1], sd=5.0)) + half_cauchy(log_spread, 2.5)
        return jnp.sum(like(x, counts) * eta - jnp.exp(eta)) + prior

    return Model(sites + 3, log_prob)


def arma11() -> Model:
    """A series with memory of values and of errors, neither bounded: mean, both weights, log error."""
    errors = 0.3 * np.random.default_rng(7).standard_normal(200)
    y = errors.copy()
    for i in range(1, 200):
        y[i] += 0.1 + 0.8 * y[i - 1] + 0.3 * errors[i - 1]

    def log_prob(x):
        mean, phi, theta, log_sd = x
        first = like(x, y[0]) - mean - phi * mean

        def step(error, pair):
            error = pair[1] - mean - phi * pair[0] - theta * error
            return error, error

        rest = jax.lax.scan(step, first, like(x, np.stack([y[:-1], y[1:]], axis=1)))[1]
        prior = normal(mean, sd=10.0) + normal(phi, sd=2.0) + normal(theta, sd=2.0) + half_cauchy(log_sd, 2.5)
        return spread(rest, 0.0, log_sd) + spread(first, 0.0, log_sd) + prior

    return Model(4, log_prob)


def kilpisjarvi() -> Model:
    """Temperature on the year as it is written: intercept at the year zero, slope, log error."""
    year = np.arange(1952.0, 2014.0)
    y = 9.3 + 0.02 * (year - 1983) + 1.1 * np.random.default_rng(8).standard_normal(62)

    def log_prob(x):
        fit = spread(like(x, y), x[0] + x[1] * like(x, year), x[2])
        return fit + normal(x[0], 9.3, 100.0) + normal(x[1], sd=0.03) + x[2]

    return Model(3, log_prob)


def diamonds() -> Model:
    """Regression on 24 covariates that four others make almost: intercept, coefficients, log error."""
    rng, n, covariates = np.random.default_rng(9), 1000, 24
    design = rng.standard_normal((n, 4)) @ rng.standard_normal((4, covariates))
    design += 0.15 * rng.standard_normal((n, covariates))
    design -= design.mean(axis=0)
    y = 7.8 + design @ (0.3 * rng.standard_normal(covariates)) + 0.5 * rng.standard_normal(n)

    def log_prob(x):
        a, b, log_sd = x[0], x[1:-1], x[-1]
        prior = jnp.sum(normal(b)) - 2 * jnp.log1p(((a - 8) / 10) ** 2 / 3)
        prior += log_sd - 2 * jnp.log1p((jnp.exp(log_sd) / 10) ** 2 / 3)
        return spread(like(x, y), a + like(x, design) @ b, log_sd) + prior

    return Model(covariates + 2, log_prob)


def three_states() -> Model:
    """A hidden chain: six logits of its rows, the lowest mean, log gaps between means, log error."""
    rng, state, y = np.random.default_rng(10), 0, np.zeros(150)
    rows = np.array([[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.1, 0.2, 0.7]])
    for i in range(len(y)):
        y[i] = (-2.0, 0.5, 2.5)[state] + 0.9 * rng.standard_normal()
        state = rng.choice(3, p=rows[state])

    def log_prob(x):
        logits = jnp.concatenate([x[:6].reshape(3, 2), jnp.zeros((3, 1), x.dtype)], axis=1)
        rows = jax.nn.log_softmax(logits, axis=1)
        means = x[6] + jnp.concatenate([jnp.zeros(1, x.dtype), jnp.cumsum(jnp.exp(x[7:9]))])
        emitted = -0.5 * ((like(x, y)[:, None] - means) * jnp.exp(-x[9])) ** 2 - x[9]

        def step(forward, here):
            return logsumexp(forward[:, None] + rows, axis=0) + here, None

        forward = jax.lax.scan(step, emitted[0], emitted[1:])[0]
        prior = jnp.sum(rows) + jnp.sum(normal(means, sd=5.0)) + x[7] + x[8] + half_normal(x[9], 2.0)
        return logsumexp(forward) + prior

    return Model(10, log_prob)


def twins() -> Model:
    """A mixture of two like components that overlap, in no order: means, log spreads, logit of a share."""
    rng = np.random.default_rng(11)
    y = np.concatenate([-1.0 + rng.standard_normal(60), 1.2 + rng.standard_normal(60)])

    def log_prob(x):
        shares = jax.nn.log_sigmoid(jnp.stack([x[4], -x[4]]))
        each = shares - 0.5 * ((like(x, y)[:, None] - x[:2]) * jnp.exp(-x[2:4])) ** 2 - x[2:4]
        prior = jnp.sum(normal(x[:2], sd=2.0)) + half_normal(x[2:4], 2.0) + 5 * jnp.sum(shares)
        return jnp.sum(logsumexp(each, axis=1)) + prior

    return Model(5, log_prob, twin=lambda x: x[:, [1, 0, 3, 2, 4]] * np.array([1, 1, 1, 1, -1]))


def horseshoe() -> Model:
    """Twenty coefficients, three of them not zero: standard normals, log local scales, log global scale,
    log error, intercept.
    """
    rng, n, size = np.random.default_rng(13), 80, 20
    design = rng.standard_normal((n, size))
    y = design[:, :3] @ np.array([2.0, -1.5, 1.0]) + rng.standard_normal(n)

    def log_prob(x):
        z, log_local, (log_global, log_sd, intercept) = x[:size], x[size : 2 * size], x[2 * size :]
        fit = spread(like(x, y), intercept + like(x, design) @ (z * jnp.exp(log_local + log_global)), log_sd)
        prior = jnp.sum(normal(z)) + half_cauchy(log_local, 1.0) + half_cauchy(log_global, 0.1)
        return fit + prior + half_normal(log_sd, 2.0) + normal(intercept, sd=2.0)

    return Model(2 * size + 3, log_prob)


def robust_regression() -> Model:
    """Student's t around a plane, on covariates of unlike scale: coefficients, log scale, log freedom."""
    rng, n = np.random.default_rng(14), 100
    design = np.concatenate([np.ones((n, 1)), rng.standard_normal((n, 3)) * [1.0, 10.0, 100.0]], axis=1)
    y = design @ np.array([1.0, 0.5, 0.1, -0.02]) + 0.5 * rng.standard_t(3, n)

    def log_prob(x):
        b, log_scale, log_nu = x[:4], x[4], x[5]
        nu, residual = jnp.exp(log_nu), (like(x, y) - like(x, design) @ b) * jnp.exp(-log_scale)
        norm = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * log_nu - log_scale
        fit = jnp.sum(norm - (nu + 1) / 2 * jnp.log1p(residual**2 / nu))
        return fit + jnp.sum(normal(b, sd=10.0)) + half_normal(log_scale, 5.0) + 2 * log_nu - 0.1 * nu

    return Model(6, log_prob)


def weibull() -> Model:
    """Survival, cut off for some: log shape, log time, and two coefficients."""
    rng, n = np.random.default_rng(15), 90
    design = np.stack([np.ones(n), rng.standard_normal(n), rng.random(n) < 0.5], axis=1)
    end = np.exp(design @ np.array([2.0, 0.5, -0.7])) * rng.weibull(1.5, n)
    limit = rng.uniform(1, 20, n)
    seen, log_time = (end < limit).astype(float), np.log(np.minimum(end, limit))

    def log_prob(x):
        power = jnp.exp(x[0]) * (like(x, log_time) - like(x, design) @ x[1:])
        fit = jnp.sum(like(x, seen) * (x[0] + power) - jnp.exp(power))
        return fit + normal(x[0]) + jnp.sum(normal(x[1:], sd=5.0))

    return Model(4, log_prob)


MODELS = (
    eight_schools_centred, radon_centred, lotka_volterra, gp_counts, irt_2pl, poisson_glmm, arma11,
    kilpisjarvi, diamonds, three_states, twins, horseshoe, robust_regression, weibull,
)  # fmt: skip
NAMES = tuple(model.__name__ for model in MODELS)


@functools.cache
def load(name: str, data: str | None = None) -> BenchmarkTarget:
    """Return a posterior by name, with the means and standard deviations of its reference if there is one."""
    model = dict(zip(NAMES, MODELS, strict=True))[name]()
    known = json.loads(REFERENCES.read_text())["targets"] if REFERENCES.exists() else {}
    reference = None
    if name in known:
        mean, sd = (np.array(known[name][key]) for key in ("mean", "sd"))
        reference = Reference(indexed("x", model.dim), None, mean, sd, (), str(REFERENCES))
    return BenchmarkTarget(name, Other(model), reference=reference)
