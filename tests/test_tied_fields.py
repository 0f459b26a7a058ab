"""Tied fields: against the trace of the Jacobian, the matrix exponential, and each other."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.linalg
import scipy.stats

import pathgrad as pg

from .helpers import T0, T1, TOLERANCE, bend_profiles, correlated_field, ravel

TIME, POINT = jnp.asarray(0.7), jnp.asarray(np.random.default_rng(5).normal(size=3))
CORRELATION = np.array([[1.0, 0.6, -0.2], [0.6, 1.0, 0.3], [-0.2, 0.3, 1.0]])


class Banded(eqx.Module):
    """A correlation with neighbours, which is not stored as a matrix."""

    strength: pg.Constant

    def __call__(self, x):
        return x + self.strength.value * (jnp.append(x[1:], 0.0) + jnp.append(0.0, x[:-1]))

    def diagonal(self):
        return jnp.ones(3)


FIELDS = {
    "random rows": lambda: bend_profiles(pg.TiedField(3, 4, key=jr.key(6))),
    "given rows": lambda: bend_profiles(pg.TiedField(3, jnp.asarray(CORRELATION[:2]))),
    "constant rows": lambda: bend_profiles(pg.TiedField(3, pg.Constant(CORRELATION))),
    "correlation": correlated_field,
    "operator": lambda: bend_profiles(pg.CorrelatedField(Banded(pg.Constant(0.4)))),
}


@functools.cache
def derivatives(name):
    """Return value and gradient of a weighted sum in field, time and point, by formula and by autodiff."""
    weight = jr.normal(jr.key(8), POINT.shape)

    def closed(everything):
        field, t, x = everything
        velocity, trace = field.velocity_and_divergence(t, x, field.prepare())
        return 1.7 * trace + jnp.vdot(weight, velocity), (velocity, trace)

    def by_autodiff(everything):
        field, t, x = everything
        velocity, trace = field(t, x), jnp.trace(jax.jacfwd(lambda y: field(t, y))(x))
        return 1.7 * trace + jnp.vdot(weight, velocity), (velocity, trace)

    @eqx.filter_jit
    def run(everything):
        return [eqx.filter_value_and_grad(f, has_aux=True)(everything) for f in (closed, by_autodiff)]

    return [(*values, ravel(gradient)) for (_, values), gradient in run((FIELDS[name](), TIME, POINT))]


@pytest.mark.parametrize("name", FIELDS)
def test_the_divergence_is_the_trace(name):
    (velocity, trace, gradient), (expected, expected_trace, expected_gradient) = derivatives(name)
    assert abs(expected_trace) > 0.05
    assert np.abs(velocity - expected).max() < TOLERANCE["algebra"]
    assert abs(trace - expected_trace) < TOLERANCE["algebra"]
    scale = np.abs(expected_gradient).max()
    assert np.abs(gradient - expected_gradient).max() < TOLERANCE["algebra"] * scale


@pytest.mark.parametrize("name", FIELDS)
def test_profiles_are_what_the_formula_says(name):
    profiles = FIELDS[name]().profiles
    a = np.asarray(profiles.start) + 0.7 * np.asarray(profiles.rate)
    u = np.linspace(-3, 4, len(a))
    features = [u, np.log(np.cosh(u + 1)), np.log(np.cosh(u - 1)), np.tanh(u), np.ones_like(u)]
    np.testing.assert_allclose(profiles(TIME, jnp.asarray(u)), np.sum(a * np.transpose(features), axis=1))


def flow_of(field, steps=40):
    return pg.Flow(pg.StandardNormal((3,)), [pg.CNF(field, integrator=pg.FixedStep(steps), t0=T0, t1=T1)])


def standard_draws():
    """Draw what the flows below start from."""
    return pg.Flow(pg.StandardNormal((3,))).sample(key=jr.key(1), n=6)


def linear_profiles(field, seed=2):
    """Keep the linear part and the constant, with all rates in one proportion to the start."""
    start = jr.normal(jr.key(seed), field.profiles.start.shape).at[:, 1:4].set(0.0)
    return eqx.tree_at(lambda f: (f.profiles.start, f.profiles.rate), field, (start, -0.6 * start))


@pytest.mark.parametrize("name", ["random rows", "operator"])
def test_linear_profiles_give_the_matrix_exponential(name):
    """v = (1 - 0.6 t) (M x + b): the same direction at all times, so that only the integral counts."""
    field = linear_profiles(FIELDS[name]())
    places = jnp.concatenate([jnp.zeros((1, 3)), jnp.eye(3)])
    shift, *columns = np.asarray(jax.jit(jax.vmap(lambda x: field(jnp.zeros(()), x)))(places))
    matrix = np.stack(columns, axis=1) - shift[:, None]
    generator = np.block([[matrix, shift[:, None]], [np.zeros((1, 4))]])
    passed = (T1 - T0) - 0.3 * (T1**2 - T0**2)
    whole, offset = np.split(scipy.linalg.expm(passed * generator)[:3], [3], axis=1)
    draw = flow_of(field, 200).draw("score", key=jr.key(1), n=6)
    z = np.asarray(standard_draws())
    assert np.abs(matrix).max() > 0.3
    close = functools.partial(np.testing.assert_allclose, atol=TOLERANCE["solve"])
    close(draw.x, z @ whole.T + offset.T)
    covariance: Any = whole @ whole.T
    assert draw.log_q is not None
    assert draw.score is not None
    close(draw.log_q, scipy.stats.multivariate_normal.logpdf(draw.x, offset[:, 0], covariance))
    close(draw.score, -np.linalg.solve(covariance, (draw.x - offset.T).T).T)


def test_the_two_kinds_are_one_in_other_coordinates():
    """With u = A z and R = A A^T: the same flow, of a base with covariance R."""
    factor = np.linalg.cholesky(CORRELATION)
    tied = bend_profiles(pg.TiedField(3, pg.Constant(factor)))
    spread = bend_profiles(pg.CorrelatedField(CORRELATION))
    draw = flow_of(tied).draw("score", key=jr.key(1), n=6)
    base = pg.FullNormal.from_covariance(jnp.zeros(3), CORRELATION)
    moved = pg.Flow(base, flow_of(spread).transforms)
    log_det = np.log(np.diag(factor)).sum()
    np.testing.assert_allclose(
        moved.log_prob(draw.x @ factor.T), draw.log_q - log_det, atol=TOLERANCE["two solves"]
    )
    z = standard_draws()
    there = eqx.filter_jit(moved.pull)(draw.x @ factor.T, keys=jr.split(jr.key(0), 6)).z
    np.testing.assert_allclose(there, z @ factor.T, atol=TOLERANCE["solve"])
    assert np.abs(draw.x - z).max() > 0.3


@pytest.mark.parametrize(
    "field",
    [pg.TiedField(6, key=jr.key(0)), pg.TiedField(6, 4, key=jr.key(0)), pg.CorrelatedField(np.eye(6))],
    ids=["18 rows", "4 rows", "correlation"],
)
def test_fields_begin_as_zero_and_learn_from_there(field):
    x = jr.normal(jr.key(1), (2, 3))

    @eqx.filter_jit
    @eqx.filter_grad(has_aux=True)
    def gradient_of_a_sum(field):
        velocity, divergence = field.velocity_and_divergence(TIME, x, field.prepare())
        return jnp.sum(jnp.sin(x) * velocity), (velocity, divergence)

    gradient, (velocity, divergence) = gradient_of_a_sum(field)
    assert velocity.shape == (2, 3)
    assert not np.any(velocity)
    assert float(divergence) == 0.0
    assert np.abs(gradient.profiles.start).min() > 0
    assert np.abs(gradient.profiles.rate).min() > 0


def test_random_directions_have_length_one_on_average():
    assert pg.TiedField(40, key=jr.key(0)).rows.shape == (120, 40)
    squares = np.asarray(pg.TiedField(40, 500, key=jr.key(0)).prepare())
    # A mean square of normals: chi-squared with 40 degrees of freedom, divided by 40.
    assert abs(squares.mean() - 1) < TOLERANCE["z"] * (2 / 40 / 500) ** 0.5


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_constants_keep_their_bits_and_are_not_trained(dtype):
    values = jnp.array([[0.1, -0.0], [np.inf, 3e-300]]).astype(dtype)
    constant = pg.Constant(values)
    assert constant.value.dtype == dtype
    np.testing.assert_array_equal(np.signbit(constant.value), np.signbit(values))
    np.testing.assert_array_equal(constant.value, values)
    assert jax.tree.leaves(eqx.filter(constant, eqx.is_inexact_array)) == []
    assert pg.Constant([1, 2]).value.dtype == jnp.result_type(float)


def test_constant_rows_stay_and_given_ones_are_trained():
    def trained(rows):
        flow = flow_of(bend_profiles(pg.TiedField(3, rows)), steps=2)
        target = pg.LogDensity(lambda x: -jnp.sum(jnp.cosh(x - 0.4)), (3,))
        gradient = eqx.filter_jit(eqx.filter_grad(lambda f: pg.reverse_kl(f, target, key=jr.key(1), n=8)))
        return gradient(flow).transforms[0].field

    fixed, free = trained(pg.Constant(CORRELATION)), trained(jnp.asarray(CORRELATION))
    assert fixed.rows.bits is None
    assert np.abs(free.rows).min() > 0
    np.testing.assert_allclose(fixed.profiles.start, free.profiles.start, rtol=1e-10)


def test_precision_is_that_of_the_points():
    """Constants of double precision do not make a flow of single precision one of double precision."""
    for field in (pg.TiedField(3, pg.Constant(CORRELATION)), pg.CorrelatedField(CORRELATION)):
        single = jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_inexact_array(a) else a, field)
        x = POINT.astype(jnp.float32)
        results = single.velocity_and_divergence(jnp.float32(0.3), x, single.prepare())
        assert {result.dtype for result in results} == {jnp.dtype(jnp.float32)}


def test_more_steps_change_little():
    """Gentle fields need few steps: RK4 errors fall by about sixteen for twice the steps."""
    field = eqx.tree_at(
        lambda f: f.profiles, FIELDS["random rows"](), replace_fn=lambda p: jax.tree.map(lambda a: a / 3, p)
    )
    log_q = [flow_of(field, n).draw("log_q", key=jr.key(1), n=6).log_q for n in (1, 2, 40)]
    coarse, fine = (np.abs(np.asarray(value) - np.asarray(log_q[2])).max() for value in log_q[:2])
    assert 1e-6 < fine < coarse / 8 < 0.01


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: pg.TiedField(3), "Random directions need `key`"),
        (lambda: pg.TiedField(0, key=jr.key(0)), "`dim` must be at least 1"),
        (lambda: pg.TiedField(3, 0, key=jr.key(0)), "`rows` must be at least 1"),
        (lambda: pg.TiedField(3, jnp.eye(2)), r"`rows` .* 3 entries in each row, got shape \(2, 2\)"),
        (lambda: pg.CorrelatedField(jnp.ones((2, 3))), r"square matrix.* got shape \(2, 3\)"),
        (
            lambda: pg.Flow(pg.StandardNormal((4,)), [pg.CNF(pg.CorrelatedField(np.eye(3)))]),
            "shape|size|4",
        ),
    ],
    ids=["no key", "no entries", "no rows", "other rows", "not square", "other points"],
)  # fmt: skip
def test_refusals_say_what_is_wrong(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build()
