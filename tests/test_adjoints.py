"""Both adjoints of a solve, against automatic differentiation of a loop written here."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg

from .helpers import T0, T1, TOLERANCE, cnfs, curved_field, ravel, trained_base

N = 4
COARSE = 3  # steps of 0.57: here the continuous and the discrete gradient differ


# As asymmetric as `skewed_target`, and quicker to compile.
TARGET = pg.LogDensity(
    lambda x: 0.8 * jnp.tanh(x[0]) - 0.5 * jnp.vdot(x, x) - 0.3 * jnp.sin(x[1]) * x[0], (2,)
)


class Sink(eqx.Module):
    """dx/dt = -rate tanh(3x - cos t), or -rate x."""

    rate: jax.Array
    straight: bool = False

    def __call__(self, t, x):
        return -self.rate * (x if self.straight else jnp.tanh(3 * x - jnp.cos(t)))


def flow_with(integrator, adjoint=None, divergence=None):
    cnf = pg.CNF(curved_field(depth=1), divergence, integrator, adjoint, T0, T1)
    return pg.Flow(trained_base(), [cnf])


def loss_of(x, log_q):
    """Weight every draw differently, so that equal gradients are equal draw by draw."""
    log_p = jax.vmap(TARGET.log_prob)(x)
    each = -log_p if log_q is None else log_q - log_p
    return jnp.vdot(jnp.array([0.9, -0.4, 1.3, 0.2]), each)


def rk4(motion, state, steps):
    """Integrate from `T0` to `T1` in a plain loop, for autodiff to differentiate."""
    h = (T1 - T0) / steps
    add = lambda y, a, k: jax.tree.map(lambda y, k: y + a * k, y, k)  # noqa: E731

    def step(state, i):
        t = T0 + i * h
        k1 = motion(t, state)
        k2 = motion(t + h / 2, add(state, h / 2, k1))
        k3 = motion(t + h / 2, add(state, h / 2, k2))
        k4 = motion(t + h, add(state, h, k3))
        for k, weight in ((k1, h / 6), (k2, h / 3), (k3, h / 3), (k4, h / 6)):
            state = add(state, weight, k)
        return state, None

    return jax.lax.scan(step, state, jnp.arange(steps))[0]


def own_push(field, x, log_q=None):
    """Move points, and their log density if given, by the loop above."""

    def velocity(t, state):
        return (jax.vmap(lambda x: field(t, x))(state[0]),)

    def with_density(t, state):
        jacobian = jax.vmap(jax.jacfwd(lambda x: field(t, x)))(state[0])
        return *velocity(t, state), -jnp.trace(jacobian, axis1=1, axis2=2)

    if log_q is None:
        return *rk4(velocity, (x,), COARSE), None
    return rk4(with_density, (x, log_q), COARSE)


def draw_loss(flow, carry):
    draw = flow.draw(carry, key=jr.key(1), n=N)
    return loss_of(draw.x, draw.log_q if carry == "log_q" else None)


def own_loss(flow, *, with_density):
    start = pg.Flow(flow.base).draw("log_q", key=jr.key(1), n=N)
    log_q = start.log_q if with_density else None
    return loss_of(*own_push(flow.transforms[0].field, start.x, log_q))


@functools.cache
def own_gradients():
    """Return the gradient along the path alone, and the total one."""

    @eqx.filter_jit
    def run(flow):
        gradient = eqx.filter_grad(own_loss)
        return ravel(gradient(flow, with_density=False)), ravel(gradient(flow, with_density=True))

    return run(flow_with(pg.FixedStep(COARSE)))


@functools.cache
def gradient(carry, steps, adjoint, divergence=None):
    """Return the gradient in all parameters of a loss of draws that carry this much."""
    flow = flow_with(pg.FixedStep(steps), adjoint, divergence)
    return eqx.filter_jit(eqx.filter_grad(draw_loss))(flow, carry)


def relative(a, b):
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def test_discrete_is_autodiff_through_the_steps():
    along_path, total = own_gradients()
    for carry, divergence, own in (
        ("x", None, along_path),
        ("score", None, along_path),
        ("log_q", None, total),
        ("log_q", pg.Exact(), total),
    ):
        mine = ravel(gradient(carry, COARSE, pg.Discrete(), divergence))
        assert relative(mine, own) < TOLERANCE["algebra"]


@pytest.mark.parametrize("carry", ["x", "log_q"])
def test_backsolve_converges_to_discrete(carry):
    distances = [
        relative(ravel(gradient(carry, steps, pg.Backsolve())), ravel(gradient(carry, steps, pg.Discrete())))
        for steps in (COARSE, 4 * COARSE)
    ]
    assert distances[0] > 1e-5
    # Both are of fourth order in the step: 4^4 = 256.
    assert 128 < distances[0] / distances[1] < 1024


@pytest.mark.parametrize("adjoint", [pg.Discrete(), pg.Backsolve()])
def test_frozen_leaves_get_nothing_and_the_others_all(adjoint):
    def loss(flow):
        return draw_loss(eqx.tree_at(first, flow, replace_fn=pg.freeze), "log_q")

    def first(flow):
        return flow.transforms[0].field.layers[0]

    everything = gradient("log_q", COARSE, adjoint)
    frozen = eqx.filter_jit(eqx.filter_grad(loss))(flow_with(pg.FixedStep(COARSE), adjoint))
    assert np.linalg.norm(ravel(first(everything))) > 0.1
    assert not ravel(first(frozen)).any()
    without = [eqx.tree_at(first, g, None) for g in (frozen, everything)]
    assert relative(*map(ravel, without)) < TOLERANCE["algebra"]


def test_gradient_in_the_starting_points_alone():
    start, log_q = jr.normal(jr.key(3), (N, 2)), jnp.arange(N) / 3

    def loss(x, cnf):
        draw = cnf.push(pg.Draw(x, log_q), keys=jr.split(jr.key(4), N))
        return loss_of(draw.x, draw.log_q)

    [coarse] = cnfs(flow_with(pg.FixedStep(COARSE), pg.Discrete()))
    [fine] = cnfs(flow_with(pg.FixedStep(50), pg.Backsolve()))
    own = jax.jit(jax.grad(lambda x: loss_of(*own_push(coarse.field, x, log_q))))(start)
    discrete, backsolve = (
        jax.jit(jax.grad(lambda x, cnf=cnf: loss(x, cnf)))(start) for cnf in (coarse, fine)
    )
    assert np.linalg.norm(own) > 0.1
    assert relative(discrete, own) < TOLERANCE["algebra"]
    # Backsolve has the gradient of the continuous flow, the loop that of its few steps.
    assert relative(backsolve, own) < 0.02


def adaptive_flow(adjoint):
    cnf = pg.CNF(Sink(jnp.asarray(0.7)), None, pg.Adaptive(1e-6, 1e-6), adjoint, T0, T1)
    return pg.Flow(trained_base(), [cnf])


def test_too_little_room_for_recorded_steps_is_a_failure():
    @eqx.filter_jit
    @eqx.filter_value_and_grad(has_aux=True)
    def value_and_grad(flow):
        draw = pg.PathGradient().draw(flow, key=jr.key(1), n=N)
        return loss_of(draw.x, draw.log_q), draw

    (value, draw), in_flow = value_and_grad(adaptive_flow(pg.Discrete(max_steps=4)))
    assert draw.solve.outcome == pg.Outcome.TOO_MANY_STEPS
    assert np.isnan(draw.x).all()
    assert np.isnan(np.asarray(draw.log_q)).all()
    assert np.isnan(value)
    assert np.isnan(in_flow.transforms[0].field.rate)


def test_too_little_room_raises_where_failures_raise():
    @eqx.filter_jit
    @eqx.filter_grad
    def differentiate(flow):
        return loss_of(*flow.sample_and_log_prob(key=jr.key(1), n=N))

    with pytest.raises(eqx.EquinoxRuntimeError, match=r"Discrete\(max_steps"):
        jax.block_until_ready(differentiate(adaptive_flow(pg.Discrete(max_steps=4))))


def test_two_copies_say_so_when_the_way_back_fails():
    """Forwards all points are drawn to cos t; backwards they overflow."""
    cnf = pg.CNF(lambda t, x: -1e3 * (x - jnp.cos(t)), None, pg.FixedStep(1000), None, T0, T1)
    draw = pg.TwoCopyGradient().draw(pg.Flow(trained_base(), [cnf]), key=jr.key(1), n=N)
    assert np.abs(draw.x - np.cos(T1)).max() < 2e-3
    assert not np.isfinite(np.asarray(draw.log_q)).any()
    assert draw.solve.outcome == pg.Outcome.STATE_NOT_FINITE


def test_backsolve_does_not_depend_on_the_scale_of_the_loss():
    @eqx.filter_jit
    @eqx.filter_grad
    def differentiate(flow, scale):
        return scale * draw_loss(flow, "log_q")

    flow = adaptive_flow(pg.Backsolve())
    plain, tiny = (ravel(differentiate(flow, jnp.asarray(scale))) for scale in (1.0, 1e-8))
    assert np.linalg.norm(plain) > 0.1
    assert relative(1e8 * tiny, plain) < 1e-6


def check(field, integrator, n=16):
    flow = pg.Flow(trained_base(), [pg.CNF(field, None, integrator, None, T0, T1)])
    return pg.check_gradients(flow, TARGET, key=jr.key(6), n=n)


def test_check_trusts_backsolve_on_a_mild_flow():
    verdict = check(Sink(jnp.asarray(0.3)), pg.FixedStep(20))
    assert verdict.trusted
    assert verdict.relative_difference < 1e-4
    # Sixteen draws do not determine the gradient to a tenth of a per cent.
    assert 1e-3 < verdict.noise < 10
    assert verdict.agreement is pg.Agreement.WITHIN_TOLERANCE
    assert "can be trusted" in str(verdict)


def test_check_warns_of_a_flow_that_cannot_be_retraced():
    # A step of -2.55 / rate: forwards a factor 0.7, backwards 11.3, and eight steps.
    verdict = check(Sink(jnp.asarray(12.0), straight=True), pg.FixedStep(8))
    assert not verdict.trusted
    assert verdict.relative_difference > 100
    assert verdict.agreement is pg.Agreement.APART
    assert "Do not trust" in str(verdict)
    assert "`Discrete()`" in str(verdict)


def test_check_does_not_trust_what_failed():
    """Every solve ends in infinity, so no gradient is finite: backsolve cannot be trusted."""
    verdict = check(Sink(jnp.asarray(-1e6), straight=True), pg.FixedStep(20), n=4)
    assert not verdict.trusted
    assert verdict.agreement is pg.Agreement.NOT_FINITE
    assert "not finite" in str(verdict)


@pytest.mark.parametrize(
    ("difference", "noise", "agreement"),
    [
        (0.0, 0.0, pg.Agreement.WITHIN_TOLERANCE),
        (0.01, 0.0, pg.Agreement.WITHIN_TOLERANCE),
        (0.02, 0.02, pg.Agreement.WITHIN_NOISE),
        (0.02, 0.019, pg.Agreement.APART),
        (0.02, math.nan, pg.Agreement.APART),
        (math.inf, math.inf, pg.Agreement.NOT_FINITE),
        (math.nan, 1.0, pg.Agreement.NOT_FINITE),
    ],
)
def test_what_a_check_comes_to(difference, noise, agreement):
    found = pg.GradientCheck(difference, noise, tolerance=0.01)
    assert found.agreement is agreement
    assert found.trusted == (agreement is pg.Agreement.WITHIN_TOLERANCE)
    assert "{" not in str(found)


def test_check_needs_a_solve():
    with pytest.raises(ValueError, match="no `CNF`"):
        pg.check_gradients(pg.Flow(trained_base()), TARGET, key=jr.key(6))
