"""The score term: it is total minus path gradient, and its covariance is the Fisher information."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import pathgrad as pg

from .helpers import ESTIMATORS, T0, T1, TOLERANCE, affine_normal, affine_solution, ravel, trained_base

N = 4
BATCHES = 1000


class AffineField(eqx.Module):
    """dx/dt = A x + b + bend * sin(x + t), whose Fisher information is known where `bend` is zero."""

    matrix: jnp.ndarray
    shift: jnp.ndarray
    bend: float = eqx.field(static=True)

    def __call__(self, t, x):
        return self.matrix @ x + self.shift + self.bend * jnp.sin(x + t)


def affine_field(bend):
    return AffineField(jnp.array([[0.3, -0.8], [0.5, -0.4]]), jnp.array([0.7, -0.2]), bend)


def carried(bend, divergence, steps=20):
    cnf = pg.CNF(affine_field(bend), divergence, pg.FixedStep(steps), t0=T0, t1=T1)
    return pg.Flow(trained_base(), [cnf])


def assert_mean(samples, expected):
    """Sample means, within Monte Carlo error of what they should be."""
    error = samples.std(0, ddof=1) / len(samples) ** 0.5
    assert np.all(np.abs(samples.mean(0) - expected) < TOLERANCE["z"] * error)


def outer(vectors):
    return vectors[:, :, None] * vectors[:, None, :]


def test_covariance_of_a_normal_is_its_fisher_information():
    """1 / scale^2 for a mean, 2 for the logarithm of a scale, nothing between the two."""
    base = trained_base()
    term = pg.score_term(pg.Flow(base), key=jr.key(1), n=4000, at_once=4000)
    per_draw = np.asarray(term.per_draw)
    fisher = np.diag(np.concatenate([np.exp(-2 * np.asarray(base.log_scale)), [2.0, 2.0]]))
    assert_mean(per_draw, 0.0)
    assert_mean(outer(per_draw), fisher)
    np.testing.assert_allclose(term.mean, per_draw.mean(0), atol=1e-12)
    np.testing.assert_allclose(term.covariance, np.cov(per_draw.T), atol=1e-12)
    # Draw by draw: e / scale in the mean, e^2 - 1 in the logarithm of the scale.
    x = np.asarray(pg.Flow(base).sample(key=jr.key(1), n=4000))
    noise = (x - np.asarray(base.mean)) / np.exp(np.asarray(base.log_scale))
    in_base = jax.vmap(term.unravel)(term.per_draw).base
    np.testing.assert_allclose(in_base.mean, noise / np.exp(np.asarray(base.log_scale)), atol=1e-12)
    np.testing.assert_allclose(in_base.log_scale, noise**2 - 1, atol=1e-12)


def test_total_less_path_draw_by_draw():
    """With noise, of which all three must have drawn the same; random weights tell the draws apart."""
    flow, weights = carried(0.6, pg.Hutchinson(), 100), jr.normal(jr.key(6), (N,))

    @eqx.filter_jit
    def gradient(flow, estimator):
        def loss(flow):
            return jnp.vdot(weights, estimator.draw(flow, key=jr.key(2), n=N).log_q)

        return ravel(eqx.filter_grad(loss)(flow))

    total, path = (np.asarray(gradient(flow, ESTIMATORS[e])) for e in ("total", "path"))
    term = pg.score_term(flow, key=jr.key(2), n=N, at_once=2)
    error = np.abs(weights @ term.per_draw - (total - path)).max()
    assert np.abs(total - path).max() > 0.1
    assert error < TOLERANCE["two solves"] * np.abs(total).max()


@functools.cache
def affine_fisher():
    """Return the Fisher information of a normal carried along an affine field, and of its leaves.

    With mean m and covariance C: I_ij = dm_i C^-1 dm_j + tr(C^-1 dC_i C^-1 dC_j) / 2.
    """
    flow = carried(0.0, pg.Exact())
    parts, unravel = ravel_pytree(eqx.filter(flow, eqx.is_inexact_array))

    @jax.jit
    def moments_and_jacobians(vector):
        def moments(vector):
            own = unravel(vector)
            return affine_normal(own.base, *affine_solution(own.transforms[0].field, T0, T1))

        return moments(vector), jax.jacfwd(moments)(vector)

    (_, covariance), (in_mean, in_covariance) = jax.tree.map(np.asarray, moments_and_jacobians(parts))
    inverse = np.linalg.inv(covariance)
    whitened = np.einsum("ab,bcp->acp", inverse, in_covariance)
    return in_mean.T @ inverse @ in_mean + 0.5 * np.einsum("abp,baq->pq", whitened, whitened)


def test_fisher_information_of_the_base_is_untouched_by_the_flow():
    """A check of the reference itself: a fixed bijection changes no likelihood ratio."""
    log_scale = np.asarray(trained_base().log_scale)
    expected = np.diag(np.concatenate([np.exp(-2 * log_scale), [2.0, 2.0]]))
    np.testing.assert_allclose(affine_fisher()[:4, :4], expected, atol=1e-12)


def test_covariance_of_a_flow_is_its_fisher_information():
    term = pg.score_term(carried(0.0, pg.Exact()), key=jr.key(3), n=4000, at_once=4000)
    per_draw = np.asarray(term.per_draw)
    assert_mean(per_draw, 0.0)
    assert_mean(outer(per_draw), affine_fisher())


def test_total_gradient_at_the_optimum_has_the_fisher_information_over_n_as_variance():
    """At q = p the path gradient is zero, and the noise of a batch of N is the score term's, over N."""
    flow = carried(0.0, pg.Exact())
    density = pg.FullNormal.from_covariance(
        *affine_normal(trained_base(), *affine_solution(affine_field(0.0), T0, T1))
    )

    @eqx.filter_jit
    def run(flow, keys):
        def gradient(key):
            grad = eqx.filter_grad(pg.reverse_kl)
            return ravel(grad(flow, density, key=key, n=N, estimator=pg.TotalGradient()))

        return jax.vmap(gradient)(keys)

    gradients = np.asarray(run(flow, jr.split(jr.key(4), BATCHES)))
    assert_mean(gradients, 0.0)
    assert_mean(outer(gradients), affine_fisher() / N)


def test_flows_with_leaves_of_each_draw_are_refused():
    base = eqx.tree_at(lambda b: b.mean, trained_base(), pg.PerDraw(jnp.zeros((3, 2))))
    with pytest.raises(ValueError, match="cannot take `PerDraw` leaves"):
        pg.score_term(pg.Flow(base), key=jr.key(5), n=3)
