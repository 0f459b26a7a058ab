"""Divergences of one field at one point: against the trace of its Jacobian, and in their moments."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import pytest

import pathgrad as pg

from .helpers import TOLERANCE, ravel

SHAPE = (2, 3)
ACTIVATIONS = {"tanh": jnp.tanh, "softplus": jax.nn.softplus, "silu": jax.nn.silu, "sin": jnp.sin}
TIME, POINT = np.float64(0.7), np.random.default_rng(5).normal(size=SHAPE)


def field_with(depth, activation="tanh"):
    return pg.MLPField(6, 7, depth, key=jr.key(depth), activation=ACTIVATIONS[activation], output_scale=3.0)


def jacobian(field, t, x):
    return jax.jacfwd(lambda y: field(t, y))(x).reshape(x.size, x.size)


def velocity_and_divergence(field, divergence, t, x):
    return divergence(field, t, x, divergence.prepare(field), None)


@functools.cache
def derivatives(depth, activation):
    """Return value and gradient in field, time and point of a weighted sum, by every method."""
    weight = jr.normal(jr.key(8), SHAPE)

    def by(divergence):
        def weighted(everything):
            velocity, trace = velocity_and_divergence(everything[0], divergence, *everything[1:])
            return 1.7 * trace + jnp.vdot(weight, velocity), (velocity, trace)

        return weighted

    def by_autodiff(everything):
        field, t, x = everything
        velocity, trace = field(t, x), jnp.trace(jacobian(field, t, x))
        return 1.7 * trace + jnp.vdot(weight, velocity), (velocity, trace)

    @eqx.filter_jit
    def run(everything):
        return [
            eqx.filter_value_and_grad(f, has_aux=True)(everything)
            for f in (by_autodiff, by(pg.ClosedForm()), by(pg.Exact()))
        ]

    everything = (field_with(depth, activation), jnp.asarray(TIME), jnp.asarray(POINT))
    return [(velocity, float(trace), ravel(gradient)) for (_, (velocity, trace)), gradient in run(everything)]


@pytest.mark.parametrize(
    ("depth", "activation"), [(1, "tanh"), (1, "softplus"), *((2, name) for name in ACTIVATIONS)]
)
def test_closed_form_and_exact_are_the_trace(depth, activation):
    (velocity, trace, gradient), *others = derivatives(depth, activation)
    assert abs(trace) > 0.05
    for mine, my_trace, my_gradient in others:
        assert np.abs(mine - velocity).max() < TOLERANCE["algebra"]
        assert abs(my_trace - trace) < TOLERANCE["algebra"]
        scale = np.abs(gradient).max()
        assert np.abs(my_gradient - gradient).max() < TOLERANCE["algebra"] * scale


def test_exact_of_a_deeper_field_is_the_trace():
    field = field_with(3)
    _, trace = jax.jit(lambda x: velocity_and_divergence(field, pg.Exact(), TIME, x))(POINT)
    assert float(trace) == pytest.approx(float(jnp.trace(jacobian(field, TIME, POINT))), rel=1e-12)


class Linear(eqx.Module):
    """A field whose Jacobian is known and not symmetric."""

    matrix: jax.Array

    def __call__(self, t, x):
        return (1 + t) * (self.matrix @ x.ravel()).reshape(x.shape)


def variance(jacobian, noise):
    r"""Return the variance of one probe, from the symmetric part S of the Jacobian.

    Signs: $4 \sum_{i<j} S_{ij}^2$, since the diagonal has no noise. Normals: $2 \|S\|_F^2$.
    """
    symmetric = (jacobian + jacobian.T) / 2
    if noise == "rademacher":
        symmetric = symmetric - np.diag(np.diag(symmetric))
    return 2 * np.sum(symmetric**2)


@pytest.mark.parametrize("noise", ["rademacher", "gaussian"])
@pytest.mark.parametrize("probes", [1, 3])
def test_hutchinson_has_the_right_mean_and_variance(probes, noise):
    draws = 20_000
    matrix = np.random.default_rng(3).normal(size=(6, 6)) + 0.5 * np.eye(6)
    divergence, field = pg.Hutchinson(probes, noise), Linear(jnp.asarray(matrix))

    @jax.jit
    @jax.vmap
    def run(key):
        epsilon = divergence.noise(SHAPE, POINT.dtype, key=key)
        return divergence(field, jnp.asarray(TIME), jnp.asarray(POINT), None, epsilon)

    velocity, estimate = (np.asarray(a) for a in run(jr.split(jr.key(9), draws)))
    jacobian = (1 + TIME) * matrix
    exact = (jacobian @ POINT.ravel()).reshape(SHAPE)
    assert np.abs(velocity - exact).max() < TOLERANCE["algebra"]
    mean, spread = estimate.mean(), estimate.var(ddof=1)
    assert abs(mean - np.trace(jacobian)) / np.sqrt(spread / draws) < TOLERANCE["z"]
    squares = (estimate - np.trace(jacobian)) ** 2
    error = squares.std(ddof=1) / np.sqrt(draws)
    assert abs(spread - variance(jacobian, noise) / probes) / error < TOLERANCE["z"]


def test_hutchinson_signs_are_exact_for_a_diagonal_jacobian():
    field, divergence = Linear(jnp.diag(jnp.arange(6.0))), pg.Hutchinson()
    epsilon = divergence.noise(SHAPE, POINT.dtype, key=jr.key(2))
    _, estimate = divergence(field, jnp.asarray(TIME), jnp.asarray(POINT), None, epsilon)
    assert float(estimate) == pytest.approx((1 + TIME) * 15, rel=1e-14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pg.Hutchinson(0), "`probes` must be at least 1, got 0"),
        (
            lambda: pg.Hutchinson(1, "uniform"),  # pyright: ignore[reportArgumentType]
            "`noise` must be .*'uniform'",
        ),
        (lambda: pg.MLPField(0, 4, key=jr.key(0)), "`dim` must be at least 1, got 0"),
        (lambda: pg.MLPField(2, 0, key=jr.key(0)), "`width` must be at least 1, got 0"),
        (lambda: pg.MLPField(2, 4, 0, key=jr.key(0)), "`depth` must be at least 1, got 0"),
    ],
    ids=["probes", "noise", "dim", "width", "depth"],
)
def test_construction_errors(make, message, monkeypatch):
    # Users run without type checks, which would be the first to find a wrong word.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("divergence", [pg.Hutchinson(), pg.Exact(), pg.ClosedForm()])
@pytest.mark.parametrize("depth", [2, 3])
def test_exact_is_the_cheapest_that_has_no_noise(divergence, depth):
    if depth == 3 and isinstance(divergence, pg.ClosedForm):
        pytest.skip("refused at construction")
    best = divergence.exact(field_with(depth))
    assert isinstance(best, pg.ClosedForm if depth == 2 else pg.Exact)
