"""Whole flows: compositions against closed forms, densities that integrate to one, and refusals."""

import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg

from .helpers import (
    T0,
    T1,
    TOLERANCE,
    affine_solution,
    bent_field,
    cnfs,
    curved_field,
    straight_density,
    trained_base,
)

N = 6


class Affine(pg.AbstractTractableField):
    """dx/dt = A x + b, and (`bend` not zero) something that has no closed form."""

    matrix: jax.Array
    shift: jax.Array
    bend: jax.Array

    def __call__(self, t, x):
        return self.matrix @ x + self.shift + self.bend * jnp.sin(t + 2 * x + x[::-1])

    def prepare(self):
        return jnp.trace(self.matrix)

    def velocity_and_divergence(self, t, x, prepared):
        slope = 2 * self.bend * jnp.cos(t + 2 * x + x[::-1])
        return self(t, x), prepared + jnp.sum(slope)


def chain(bend):
    """Three flows in a row: other fields, divergences, adjoints and intervals, one of them backwards.

    The Jacobian of the noisy one is diagonal where `bend` is zero: there signs are exact.
    """
    bend = jnp.asarray(bend)
    first = Affine(jnp.array([[0.3, -0.8], [0.5, -0.4]]), jnp.array([0.7, -0.2]), bend)
    second = Affine(jnp.array([[-0.2, 0.6], [-0.9, 0.3]]), jnp.array([0.1, 0.4]), -0.4 * bend)
    third = Affine(jnp.array([[0.7, 0.0], [0.0, -0.5]]), jnp.array([-0.3, 0.2]), 0.3 * bend)
    return pg.Flow(
        trained_base(),
        [
            pg.CNF(first, pg.ClosedForm(), pg.FixedStep(200), t0=T0, t1=T1),
            pg.CNF(second, pg.Exact(), pg.FixedStep(200), pg.Backsolve(), t0=1.4, t1=-0.2),
            pg.CNF(third, pg.Hutchinson(), pg.FixedStep(80), t0=0.0, t1=0.5),
        ],
    )


@functools.cache
def chained(bend):
    return _chained(chain(bend))


@eqx.filter_jit
def _chained(flow):
    draw = flow.sample_with_score(key=jr.key(1), n=N)

    def total(x):
        log_q = flow.log_prob(x, key=jr.key(1))
        return jnp.sum(log_q), log_q

    in_x, log_q = jax.grad(total, has_aux=True)(draw.x)
    return draw, log_q, in_x


def largest(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


def test_affine_flows_in_a_row_are_one_affine_flow():
    draw, log_q, in_x = chained(0.0)
    matrix, shift = jnp.eye(2), jnp.zeros(2)
    for cnf in cnfs(chain(0.0)):
        more, offset = affine_solution(cnf.field, cnf.t0, cnf.t1)
        matrix, shift = more @ matrix, more @ shift + offset
    base = trained_base()
    z = pg.Flow(base).sample(key=jr.key(1), n=N)
    factor = matrix * jnp.exp(base.log_scale)
    exact = pg.FullNormal.from_covariance(matrix @ base.mean + shift, factor @ factor.T)
    assert largest(draw.x, z @ matrix.T + shift) < TOLERANCE["solve"]
    assert largest(draw.log_q, jax.vmap(exact.log_prob)(draw.x)) < TOLERANCE["solve"]
    assert largest(draw.score, jax.vmap(jax.grad(exact.log_prob))(draw.x)) < TOLERANCE["solve"]
    assert largest(log_q, draw.log_q) < TOLERANCE["solve"]
    assert largest(in_x, draw.score) < TOLERANCE["solve"]


def test_score_of_curved_flows_in_a_row_is_the_gradient_of_their_density():
    draw, log_q, in_x = chained(0.4)
    straight, *_ = chained(0.0)
    assert largest(draw.x, straight.x) > 0.1
    assert largest(log_q, draw.log_q) < TOLERANCE["two solves"]
    assert largest(in_x, draw.score) < TOLERANCE["two solves"]
    assert int(draw.solve.evaluations) == 4 * (200 + 200 + 80)


@pytest.mark.parametrize("shape", [(3, 3), (1,)], ids=["lattice", "scalar"])
def test_density_is_the_determinant_of_the_map(shape):
    size = int(np.prod(shape))
    field = pg.MLPField(size, 4, 1, key=jr.key(2), output_scale=3.0)
    cnf = pg.CNF(field, None, pg.FixedStep(12), pg.Discrete(), T0, T1)
    flow = pg.Flow(pg.StandardNormal(shape), [cnf])
    keys = jr.split(jr.key(1), 3)

    @jax.jit
    def run(z):
        draw = flow.sample_with_score(key=jr.key(1), n=3)

        def carry(z):
            return cnf.push(pg.Draw(z[None]), keys=keys[:1]).x[0]

        jacobian = jax.lax.map(jax.jacrev(carry), z)
        return draw, jax.vmap(carry)(z), jacobian.reshape(3, size, size)

    z = pg.Flow(flow.base).sample(key=jr.key(1), n=3)
    draw, x, jacobian = run(z)
    assert draw.x.shape == draw.score.shape == (3, *shape)
    assert largest(draw.x, x) < TOLERANCE["algebra"]
    log_det = np.linalg.slogdet(jacobian)[1]
    assert np.abs(log_det).max() > 0.01
    log_q = jax.vmap(flow.base.log_prob)(z) - log_det
    # The determinant of the steps against the integral of the divergence by the same steps.
    assert largest(draw.log_q, log_q) < 1e-5


@functools.cache
def quick_flow():
    return pg.Flow(
        trained_base(), [pg.CNF(curved_field(depth=1), pg.Hutchinson(2), pg.FixedStep(4), t0=T0, t1=T1)]
    )


def test_a_draw_does_not_depend_on_the_others_or_on_chunks():
    flow, key = quick_flow(), jr.key(4)
    whole = flow.draw("score", key=key, n=11, chunk=11)
    chunks = flow.draw("score", key=key, n=11, chunk=4)  # a remainder of three
    assert largest(chunks.x, whole.x) < TOLERANCE["algebra"]
    assert largest(chunks.log_q, whole.log_q) < TOLERANCE["algebra"]
    assert largest(chunks.score, whole.score) < TOLERANCE["algebra"]
    assert int(chunks.solve.evaluations) == 16
    fewer = flow.draw("log_q", key=key, n=5)
    assert largest(fewer.x, whole.x[:5]) < TOLERANCE["algebra"]
    assert largest(fewer.log_q, whole.log_q[:5]) < TOLERANCE["algebra"]
    distinct = np.asarray(whole.x)[:, None] - np.asarray(whole.x)[None]
    assert np.abs(distinct + np.eye(11)[..., None]).max(axis=-1).min() > 1e-3


def test_log_prob_does_not_depend_on_chunks():
    flow, key, x = quick_flow(), jr.key(4), jr.normal(jr.key(5), (11, 2))
    whole = flow.log_prob(x, key=key, chunk=11)
    assert largest(flow.log_prob(x, key=key, chunk=4), whole) < TOLERANCE["algebra"]
    # The noise matters here, and each point has its own.
    assert largest(flow.log_prob(x, key=jr.key(6), chunk=11), whole) > 1e-3


def test_memory_of_many_draws_is_bounded_by_the_chunk():
    field = pg.MLPField(2, 64, 1, key=jr.key(2))
    flow = pg.Flow(pg.StandardNormal((2,)), [pg.CNF(field, integrator=pg.FixedStep(3))])
    parameters, static = eqx.partition(flow, eqx.is_inexact_array)

    def temporary(n):
        draw = lambda p: eqx.combine(p, static).sample(key=jr.key(0), n=n)  # noqa: E731
        return jax.jit(draw).lower(parameters).compile().memory_analysis().temp_size_in_bytes

    one, eight = temporary(8192), temporary(65536)
    assert eight < 2 * one, f"{one} bytes for 8192 draws, {eight} for 65536"


def test_exact_and_refined_change_every_transform_and_nothing_else():
    flow = chain(1.0)
    exact, fine = flow.exact(), flow.refined(3)
    assert flow.is_noisy
    assert not exact.is_noisy
    assert [type(cnf.divergence) for cnf in cnfs(exact)] == [pg.ClosedForm] * 3
    assert [cnf.integrator for cnf in cnfs(exact)] == [cnf.integrator for cnf in cnfs(flow)]
    assert [cnf.integrator for cnf in cnfs(fine)] == [pg.FixedStep(n) for n in (600, 600, 240)]
    for changed in (exact, fine):
        assert bool(eqx.tree_equal(changed.base, flow.base))
        for new, old in zip(cnfs(changed), cnfs(flow), strict=True):
            assert bool(eqx.tree_equal(new.field, old.field))
            assert (new.t0, new.t1, type(new.adjoint)) == (old.t0, old.t1, type(old.adjoint))


def test_draws_of_an_affine_flow_are_normal():
    n = 20_000
    cnf = pg.CNF(bent_field(0.0), integrator=pg.FixedStep(20), t0=T0, t1=T1)
    x = pg.Flow(trained_base(), [cnf]).sample(key=jr.key(12), n=n)
    density = straight_density()
    white = np.linalg.solve(density.factor, np.asarray(x - density.mean).T).T
    u, v = white.T
    # Mean and variance of each of these, for independent standard normals.
    moments = {
        "mean": (u, 0, 1),
        "other mean": (v, 0, 1),
        "variance": (u**2, 1, 2),
        "other variance": (v**2, 1, 2),
        "covariance": (u * v, 0, 1),
        "skewness": (u**3, 0, 15),
        "other skewness": (v**3, 0, 15),
        "kurtosis": (u**4, 3, 96),
        "other kurtosis": (v**4, 3, 96),
        "dependence": (u**2 * v**2, 1, 8),
    }
    for name, (value, mean, variance) in moments.items():
        z = (value.mean() - mean) / np.sqrt(variance / n)
        assert abs(z) < TOLERANCE["z"], name


def test_density_of_a_curved_flow_integrates_to_one():
    cnf = pg.CNF(bent_field(), integrator=pg.FixedStep(16), t0=T0, t1=T1)
    flow = pg.Flow(trained_base(), [cnf])
    draws = np.asarray(flow.sample(key=jr.key(3), n=512))
    centre, reach = draws.mean(0), 8 * draws.std(0)
    points = 81
    axes = [np.linspace(c - r, c + r, points) for c, r in zip(centre, reach, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    density = np.exp(flow.log_prob(jnp.asarray(grid)))
    cell = np.prod(2 * reach / (points - 1))
    # The rectangle rule converges faster than any power for what decays at the edges.
    assert density.sum() * cell == pytest.approx(1, abs=1e-4)
    # And its first moment is where the draws are, to their error.
    mean = (density[:, None] * grid).sum(0) * cell
    z = (draws.mean(0) - mean) / (draws.std(0, ddof=1) / np.sqrt(512))
    assert np.abs(z).max() < TOLERANCE["z"]


def undefined(t, x):
    return x * jnp.sqrt((t - 0.5) * (t - 0.6))


FAILURES = {
    pg.Outcome.TOO_MANY_STEPS: pg.CNF(bent_field(), None, pg.Adaptive(1e-9, 1e-9, max_steps=2)),
    pg.Outcome.STEP_TOO_SHORT: pg.CNF(undefined, None, pg.Adaptive()),
    pg.Outcome.STATE_NOT_FINITE: pg.CNF(undefined, None, pg.FixedStep(9)),
}


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_failed_solve_says_what_happened(outcome):
    # A solve that ended well, before it or after it, does not cover the failure.
    fine = pg.Flow(trained_base(), [pg.CNF(bent_field(0.0), None, pg.FixedStep(2))])
    flow = pg.Flow(trained_base(), [*fine.transforms, FAILURES[outcome]])
    draw = flow.draw("log_q", key=jr.key(0), n=3, chunk=2)
    assert draw.solve.outcome == outcome
    assert fine.draw("x", key=jr.key(0), n=3).solve.outcome == pg.Outcome.FINE
    assert np.isnan(flow.log_prob(jnp.ones((3, 2)), throw=False)).all()
    message = re.escape(outcome.message[1:])
    with pytest.raises(eqx.EquinoxRuntimeError, match=message):
        flow.sample_and_log_prob(key=jr.key(0), n=3)
    with pytest.raises(eqx.EquinoxRuntimeError, match=message):
        flow.log_prob(jnp.ones((3, 2)))


def two_d(*transforms):
    return pg.Flow(pg.StandardNormal((2,)), transforms)


def shrink(t, x):
    return -x


REFUSED = {
    "wrong shape": (lambda: two_d(pg.CNF(lambda t, x: x[:1])), r"shape of x, \(2,\).*\(1,\)"),
    "tuple": (lambda: two_d(pg.CNF(lambda t, x: (x, x))), r"shape of x, \(2,\).*tuple"),
    "not callable": (lambda: pg.CNF(3.0), r"called as `field\(t, x\)`, got 3.0"),
    "closed form of a function": (
        lambda: pg.CNF(shrink, pg.ClosedForm()),
        r"got function\. Use `Exact\(\)` or `Hutchinson\(\)`",
    ),
    "closed form of a deep field": (
        lambda: pg.CNF(curved_field(depth=3), pg.ClosedForm()),
        r"3 hidden layers, .* Use `Exact\(\)` or `Hutchinson\(\)`",
    ),
    "no time": (lambda: pg.CNF(shrink, t0=0.3, t1=0.3), "`t0` and `t1` are both 0.3"),
    "no draws": (lambda: two_d().sample(key=jr.key(0), n=0), "`n` must be at least 1, got 0"),
    "no chunk": (lambda: two_d().sample(key=jr.key(0), n=1, chunk=0), "`chunk` must be at least 1, got 0"),
    "no chunk for log_prob": (
        lambda: two_d().log_prob(jnp.zeros((1, 2)), chunk=0),
        "`chunk` must be at least 1, got 0",
    ),
    "one point": (lambda: two_d().log_prob(jnp.zeros(2)), r"x\[None\]"),
    "points of another shape": (
        lambda: two_d().log_prob(jnp.zeros((4, 3))),
        r"points of shape \(2,\), got \(4, 3\)",
    ),
    "noise without a key": (
        lambda: quick_flow().log_prob(jnp.zeros((1, 2))),
        r"`key=\.\.\.`.*`flow\.exact\(\)\.log_prob\(x\)`",
    ),
    "vector density": (lambda: pg.LogDensity(lambda x: -(x**2), (2,)), r"scalar.*\(2,\)"),
    "complex density": (lambda: pg.LogDensity(lambda x: 1j * x[0], (2,)), "complex128"),
    "integer density": (lambda: pg.LogDensity(lambda x: jnp.argmax(x), (2,)), "int"),
    "tuple density": (lambda: pg.LogDensity(lambda x: (x[0], x[1]), (2,)), "tuple"),
}


@pytest.mark.parametrize("make", REFUSED)
def test_refusals_say_what_to_do(make):
    build, message = REFUSED[make]
    with pytest.raises(ValueError, match=message):
        build()


class VectorTarget(eqx.Module):
    def log_prob(self, x):
        return -(x**2)


def test_a_target_that_returns_a_vector_is_refused():
    with pytest.raises(ValueError, match=r"`target\.log_prob` must return a scalar"):
        pg.reverse_kl(two_d(), VectorTarget(), key=jr.key(0), n=3)


def test_a_field_defined_by_a_plain_function_flows():
    """Minus x, from 0.3 to 2: everything about it is known."""
    cnf = pg.CNF(shrink, integrator=pg.FixedStep(40), t0=T0, t1=T1)
    assert isinstance(cnf.divergence, pg.Exact)
    draw = two_d(cnf).sample_with_score(key=jr.key(7), n=3)
    scale = np.exp(T0 - T1)
    exact = pg.DiagonalNormal(jnp.zeros(2), jnp.full(2, np.log(scale)))
    assert largest(draw.log_q, jax.vmap(exact.log_prob)(draw.x)) < 1e-6
    assert largest(draw.score, -draw.x / scale**2) < 1e-5
