"""Families in closed form, without any ODE (Roeder, Wu, Duvenaud 2017), and a mixture under a CNF."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg

from .helpers import ESTIMATORS, T0, T1, TOLERANCE, SkewedTarget, affine_solution

N = 4
BATCHES = 600

MEAN, COVARIANCE = np.array([0.6, -0.9]), np.array([[1.3, 0.5], [0.5, 0.7]])
PRECISION = np.linalg.inv(COVARIANCE)


def diagonal():
    return pg.DiagonalNormal(jnp.array([0.3, -0.5]), jnp.array([-0.2, 0.4]))


def full():
    lower = jnp.array([[0.9, 0.4], [-0.7, 0.1]])  # only -0.7 counts
    return pg.FullNormal(jnp.array([0.3, -0.5]), lower, jnp.array([-0.2, 0.4]))


def mixture():
    means = jnp.array([[0.9, -0.4], [-1.1, 0.8], [0.2, 1.6]])
    log_scales = jnp.array([[-0.5, 0.1], [0.0, -0.3], [-0.2, -0.6]])
    return pg.NormalMixture(jnp.array([0.7, -0.4, 0.1]), means, log_scales)


FAMILIES = {"diagonal": diagonal, "full": full, "mixture": mixture}


class Target(eqx.Module):
    """A skewed density (or a known normal), or the density of the base itself, times a constant.

    A number chooses, so that one compiled function serves all cases.
    """

    skewed: SkewedTarget
    mirror: pg.AbstractBase
    mirrored: jnp.ndarray

    def log_prob(self, x):
        return (1 - self.mirrored) * self.skewed.log_prob(x) + self.mirrored * (self.mirror.log_prob(x) + 2.7)


CASES = {"skewed": (1.0, 0.0), "normal": (0.0, 0.0), "mirror": (0.0, 1.0)}


@functools.cache
def target(case, family):
    skew, mirrored = map(jnp.asarray, CASES[case])
    normal = pg.FullNormal.from_covariance(MEAN, COVARIANCE)
    skewed = SkewedTarget(jnp.array([0.8, -0.4]), skew, normal)
    return Target(skewed, FAMILIES[family](), mirrored)


class Batches(NamedTuple):
    """Many small batches of one family: draws; then values, log-weights and gradients by estimator.

    Draws, and the log-weights expected of them, are those of the base alone.
    """

    x: Any
    expected_log_weight: Any
    value: dict
    log_weight: dict
    gradient: dict


@functools.cache
def compiled(n, estimators):
    @eqx.filter_jit
    def run(make, parts, target, keys):
        def loss(parts, key, estimator):
            flow = make(*parts)
            made = pg.ReverseKL(target, estimator)(flow, pg.Batch(jr.split(key, n)))
            return made.loss, -made.each

        def batch(key):
            x, log_q = pg.Flow(parts[0]).sample_and_log_prob(key=key, n=n)
            grad = eqx.filter_value_and_grad(loss, has_aux=True)
            both = {e: grad(parts, key, ESTIMATORS[e]) for e in estimators}
            log_p = jax.vmap(target.log_prob)(x)
            losses, gradients = ({e: both[e][i] for e in both} for i in (0, 1))
            values, log_weights = ({e: losses[e][i] for e in both} for i in (0, 1))
            return Batches(x, log_p - log_q, values, log_weights, gradients)

        return jax.vmap(batch)(keys)

    return run


@functools.cache
def batches(family, case, n=N, estimators=tuple(ESTIMATORS)):
    base, keys = FAMILIES[family](), jr.split(jr.key(3), BATCHES)
    return as_numpy(compiled(n, estimators)(pg.Flow, (base,), target(case, family), keys))


def as_numpy(tree):
    return jax.tree.map(np.asarray, tree)


def flat(gradients):
    return np.concatenate([g.reshape(len(g), -1) for g in jax.tree.leaves(gradients)], axis=1)


def assert_mean(samples, expected):
    """Sample means, within Monte Carlo error of what they should be (or equal, without any)."""
    error = samples.std(0, ddof=1) / len(samples) ** 0.5
    assert np.all(np.abs(samples.mean(0) - expected) <= TOLERANCE["z"] * error + 1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_value_is_honest_for_every_estimator(family):
    """It is the mean of log q - log p, also where a choice has a gradient to give."""
    made = batches(family, "skewed")
    for estimator in ESTIMATORS:
        expected = made.expected_log_weight
        np.testing.assert_allclose(made.log_weight[estimator], expected, atol=1e-12)
        np.testing.assert_allclose(made.value[estimator], -expected.mean(1), atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_path_gradient_is_the_two_copy_gradient(family):
    gradient = batches(family, "skewed").gradient
    path, two_copy = flat(gradient["path"]), flat(gradient["two-copy"])
    assert np.linalg.norm(path, axis=1).min() > 0.01
    np.testing.assert_allclose(path, two_copy, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_path_and_total_agree_in_the_mean(family):
    gradient = batches(family, "skewed").gradient
    difference = flat(gradient["total"]) - flat(gradient["path"])
    assert_mean(difference, 0.0)
    assert difference.std(0).max() > 0.1


def gaussian_kl_gradient(family):
    """Return the gradient of KL(N(m, L L^T) | N(mu, P^-1)), by leaf.

    KL = (tr(P L L^T) + (m - mu)^T P (m - mu)) / 2 - ln det L + constant, so that dKL/dm = P (m - mu) and
    dKL/dL = P L - L^-T, whose part below the diagonal is that of P L.
    """
    base = as_numpy(FAMILIES[family]())
    in_mean = PRECISION @ (base.mean - MEAN)
    if family == "diagonal":
        in_log_scale = np.exp(2 * base.log_scale) * np.diag(PRECISION) - 1
        return {"mean": in_mean, "log_scale": in_log_scale}
    factor = np.tril(base.lower, -1) + np.diag(np.exp(base.log_diagonal))
    in_factor = PRECISION @ factor
    in_log_diagonal = np.diag(factor) * np.diag(in_factor) - 1
    return {"mean": in_mean, "lower": np.tril(in_factor, -1), "log_diagonal": in_log_diagonal}


@pytest.mark.parametrize("family", ["diagonal", "full"])
@pytest.mark.parametrize("estimator", ["path", "total"])
def test_mean_gradient_of_a_normal_is_that_of_the_divergence(estimator, family):
    (gradients,) = batches(family, "normal").gradient[estimator]
    expected = gaussian_kl_gradient(family)
    assert max(np.abs(leaf).max() for leaf in expected.values()) > 0.5
    for name, leaf in expected.items():
        assert_mean(getattr(gradients, name), leaf)


def test_path_gradient_of_a_normal_draw_by_draw():
    """With x = m + s e: cotangent c = -e / s + P (x - mu), gradient c in m and c s e in ln s."""
    made = batches("diagonal", "normal")
    (gradients,) = made.gradient["path"]
    base = as_numpy(diagonal())
    scale = np.exp(base.log_scale)
    noise = (made.x - base.mean) / scale
    cotangent = -noise / scale + (made.x - MEAN) @ PRECISION
    np.testing.assert_allclose(gradients.mean, cotangent.mean(1), atol=1e-12)
    in_scale = (cotangent * scale * noise).mean(1)
    np.testing.assert_allclose(gradients.log_scale, in_scale, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_path_gradients_vanish_where_q_is_p(family):
    """In every batch, the weights of the mixture included: all log-weights are equal there."""
    made = batches(family, "mirror")
    for estimator in ESTIMATORS:
        np.testing.assert_allclose(made.value[estimator], -2.7, atol=1e-12)
        size = [np.abs(leaf).max() for leaf in jax.tree.leaves(made.gradient[estimator])]
        if estimator == "total":
            assert min(size) > 0.1  # every leaf has noise of its own
        else:
            assert max(size) < 1e-12


class WavyField(pg.AbstractTractableField):
    """dx/dt = A x + b + wave * sin(x + t): affine where `wave` is zero."""

    matrix: jnp.ndarray
    shift: jnp.ndarray
    wave: jnp.ndarray

    def __call__(self, t, x):
        return self.matrix @ x + self.shift + self.wave * jnp.sin(x + t)

    def prepare(self):
        return jnp.trace(self.matrix)

    def velocity_and_divergence(self, t, x, prepared):
        return self(t, x), prepared + self.wave * jnp.sum(jnp.cos(x + t))


def wavy_field(wave):
    matrix, shift = jnp.array([[0.3, -0.8], [0.5, -0.4]]), jnp.array([0.7, -0.2])
    return WavyField(matrix, shift, jnp.asarray(wave))


def carried(base, field):
    return pg.Flow(base, [pg.CNF(field, integrator=pg.FixedStep(40), t0=T0, t1=T1)])


@functools.cache
def carried_batches(wave):
    """Batches of a mixture carried by a CNF; gradients are in base and field."""
    parts, keys = (mixture(), wavy_field(wave)), jr.split(jr.key(5), BATCHES)
    return as_numpy(compiled(N, tuple(ESTIMATORS))(carried, parts, target("skewed", "mixture"), keys))


@functools.cache
def kl_gradients():
    """Return gradients of KL(q | p) of a mixture, by itself and under an affine flow.

    By quadrature over the base: no draws, no path, no score function. The flow is x = M z + s by one
    matrix exponential, and ln|det M| = (t1 - t0) tr A; without it, M is one and s zero.
    """
    side = np.arange(-9.0, 9.0, 0.12)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)

    @jax.jit
    @jax.grad
    def gradient(parts, moved):
        base, field = parts
        matrix, shift = affine_solution(field, T0, T1)
        log_q0 = jax.vmap(base.log_prob)(grid)
        log_q = log_q0 - moved * (T1 - T0) * jnp.trace(field.matrix)
        x = grid + moved * (grid @ matrix.T + shift - grid)
        log_p = jax.vmap(target("skewed", "mixture").log_prob)(x)
        return jnp.vdot(jnp.exp(log_q0), log_q - log_p) * 0.12**2

    parts = (mixture(), wavy_field(0.0))
    return as_numpy([gradient(parts, moved) for moved in (0.0, 1.0)])


@pytest.mark.parametrize(
    ("estimator", "n"), [("path", N), ("total", N), ("path", 1)], ids=["path", "total", "one draw"]
)
def test_mean_gradient_of_a_mixture_is_that_of_the_divergence(estimator, n):
    """Weights, means and scales; `n` of one has no other draws to make a baseline of."""
    estimators = tuple(ESTIMATORS) if n > 1 else (estimator,)
    (gradients,) = batches("mixture", "skewed", n, estimators).gradient[estimator]
    (expected, _), _ = kl_gradients()
    assert np.abs(expected.logits).max() > 0.05
    assert_mean(gradients.logits, expected.logits)
    assert_mean(gradients.means, expected.means)
    assert_mean(gradients.log_scales, expected.log_scales)


def test_mixture_under_a_flow_has_equal_path_and_two_copy_gradients():
    made = carried_batches(0.6)
    path, two_copy = made.gradient["path"], made.gradient["two-copy"]
    np.testing.assert_allclose(made.value["path"], made.value["two-copy"], atol=TOLERANCE["two solves"])
    assert np.abs(path[0].logits).max() > 0.1
    error = np.abs(flat(path) - flat(two_copy)).max()
    assert error < TOLERANCE["two solves"] * np.abs(flat(path)).max()


@pytest.mark.slow
def test_mixture_under_a_flow_has_path_and_total_gradients_equal_in_the_mean():
    gradient = carried_batches(0.6).gradient
    difference = flat(gradient["total"]) - flat(gradient["path"])
    assert_mean(difference, 0.0)
    assert difference.std(0).max() > 0.1


@pytest.mark.parametrize("estimator", ["path", "total"])
def test_mean_gradient_of_a_mixture_under_a_flow_is_that_of_the_divergence(estimator):
    in_base, in_field = carried_batches(0.0).gradient[estimator]
    _, (base, field) = kl_gradients()
    assert np.abs(base.logits).max() > 0.05
    for mine, expected in zip(jax.tree.leaves(in_base), jax.tree.leaves(base), strict=True):
        assert_mean(mine, expected)
    assert_mean(in_field.matrix, field.matrix)
    assert_mean(in_field.shift, field.shift)
