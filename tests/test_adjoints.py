"""Both ways back through a solve, against automatic differentiation of a loop written here."""

import functools

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
    BentField,
    bent_field,
    curved_field,
    ravel,
    trained_base,
)

pytestmark = pytest.mark.xdist_group("adjoints")

N = 4
COARSE = 5  # steps of 0.34: here the continuous and the discrete gradient differ


# As asymmetric as `skewed_target`, and quicker to compile.
TARGET = pg.LogDensity(
    lambda x: 0.8 * jnp.tanh(x[0]) - 0.5 * jnp.vdot(x, x) - 0.3 * jnp.sin(x[1]) * x[0], (2,)
)


def field():
    bent = bent_field()
    return BentField(bent.matrix, bent.shift, bent.bend, curved_field(depth=1))


class Sink(eqx.Module):
    """dx/dt = -rate tanh(3x - cos t), or -rate x."""

    rate: jax.Array
    straight: bool = False

    def __call__(self, t, x):
        return -self.rate * (x if self.straight else jnp.tanh(3 * x - jnp.cos(t)))


def flow_with(integrator, adjoint=None, divergence=None):
    cnf = pg.CNF(field(), divergence, integrator, adjoint, T0, T1)
    return pg.Flow(trained_base(), [cnf])


def loss_of(x, log_q):
    """Weigh every draw differently, so that equal gradients are equal draw by draw."""
    log_p = jax.vmap(TARGET.log_prob)(x)
    each = -log_p if log_q is None else log_q - log_p
    return jnp.vdot(jnp.array([0.9, -0.4, 1.3, 0.2]), each)


def rk4(motion, state, steps):
    """Integrate from `T0` to `T1` in a plain loop, for autodiff to walk through."""
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
    """Carry points, and their log density where given, by the loop above."""

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
def gradients(carries, steps, adjoint, divergence=None):
    """Return the gradient in all parameters, by what the draw carries."""

    @eqx.filter_jit
    def run(flow):
        return {carry: ravel(eqx.filter_grad(draw_loss)(flow, carry)) for carry in carries}

    return run(flow_with(pg.FixedStep(steps), adjoint, divergence))


def relative(a, b):
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.parametrize("divergence", [None, pg.Exact()], ids=["closed", "exact"])
def test_discrete_is_autodiff_through_the_steps(divergence):
    along_path, total = own_gradients()
    mine = gradients(("x", "score", "log_q"), COARSE, pg.Discrete(), divergence)
    assert relative(mine["x"], along_path) < TOLERANCE["algebra"]
    assert relative(mine["score"], along_path) < TOLERANCE["algebra"]
    assert relative(mine["log_q"], total) < TOLERANCE["algebra"]


@pytest.mark.parametrize("carry", ["score", "log_q"])
def test_backsolve_converges_to_discrete(carry):
    distances = []
    for steps in (COARSE, 4 * COARSE):
        backsolve, discrete = (
            gradients(("score", "log_q"), steps, adjoint)[carry]
            for adjoint in (pg.Backsolve(), pg.Discrete())
        )
        distances.append(relative(backsolve, discrete))
    assert distances[0] > 1e-5
    # Both are of fourth order in the step: 4^4 = 256.
    assert 128 < distances[0] / distances[1] < 1024


@functools.cache
def loss_with_parts(adjoint):
    """Return the gradient in all of a flow, in a part of it, and with a part frozen."""
    flow = flow_with(pg.FixedStep(COARSE), adjoint)

    def weight(flow):
        return flow.transforms[0].field.curved.layers[0].weight

    nothing = jax.tree.map(lambda _: False, flow)
    part = eqx.tree_at(lambda f: (f.base.mean, weight(f)), nothing, (True, True))

    @eqx.filter_jit
    def run(flow):
        moving, rest = eqx.partition(flow, part)
        some = eqx.filter_grad(lambda m: draw_loss(eqx.combine(m, rest), "log_q"))(moving)
        frozen = eqx.filter_grad(
            lambda f: draw_loss(
                eqx.tree_at(lambda f: f.transforms[0].field.curved, f, replace_fn=pg.freeze),
                "log_q",
            )
        )(flow)
        return eqx.filter_grad(draw_loss)(flow, "log_q"), some, frozen

    return run(flow)


@pytest.mark.parametrize("adjoint", [pg.Discrete(), pg.Backsolve()])
def test_a_part_of_the_parameters_gets_its_part_of_the_gradient(adjoint):
    everything, some, _ = loss_with_parts(adjoint)
    both = eqx.tree_at(
        lambda f: (f.base.mean, f.transforms[0].field.curved.layers[0].weight),
        jax.tree.map(lambda _: None, everything),
        (everything.base.mean, everything.transforms[0].field.curved.layers[0].weight),
        is_leaf=lambda leaf: leaf is None,
    )
    assert jax.tree.structure(some) == jax.tree.structure(both)
    assert relative(ravel(some), ravel(both)) < TOLERANCE["algebra"]
    assert np.linalg.norm(ravel(some)) > 0.1


@pytest.mark.parametrize("adjoint", [pg.Discrete(), pg.Backsolve()])
def test_frozen_leaves_get_nothing_and_the_others_all(adjoint):
    everything, _, frozen = loss_with_parts(adjoint)
    field, cut = everything.transforms[0].field, frozen.transforms[0].field
    assert np.linalg.norm(ravel(field.curved)) > 0.1
    assert not ravel(cut.curved).any()
    for mine, reference in (
        (cut.matrix, field.matrix),
        (cut.shift, field.shift),
        (cut.bend, field.bend),
        (ravel(frozen.base), ravel(everything.base)),
    ):
        assert relative(mine, reference) < TOLERANCE["algebra"]


@pytest.mark.parametrize(
    ("adjoint", "steps", "kind"),
    [(pg.Discrete(), COARSE, "algebra"), (pg.Backsolve(), 100, None)],
    ids=["discrete", "backsolve"],
)
def test_gradient_in_the_starting_points_alone(adjoint, steps, kind):
    cnf = flow_with(pg.FixedStep(steps), adjoint).transforms[0]
    start, log_q = jr.normal(jr.key(3), (N, 2)), jnp.arange(N) / 3

    @jax.jit
    def both(start):
        def loss(x):
            draw = cnf.push(pg.Draw(x, log_q), jr.split(jr.key(4), N))
            return loss_of(draw.x, draw.log_q)

        own = lambda x: loss_of(*own_push(cnf.field, x, log_q))  # noqa: E731
        return jax.grad(loss)(start), jax.grad(own)(start)

    mine, own = both(start)
    # Backsolve has the gradient of the continuous flow, the loop that of its five steps.
    assert relative(mine, own) < (TOLERANCE[kind] if kind else 0.02)
    assert np.linalg.norm(own) > 0.1


def adaptive_flow(adjoint):
    cnf = pg.CNF(Sink(jnp.asarray(0.7)), None, pg.Adaptive(1e-6, 1e-6), adjoint, T0, T1)
    return pg.Flow(trained_base(), [cnf])


def test_too_little_room_for_recorded_steps_is_a_failure():
    def loss(flow, estimator):
        draw = estimator.draw(flow, key=jr.key(1), n=N)
        return loss_of(draw.x, draw.log_q), draw

    @eqx.filter_jit
    def run(flow):
        value_and_grad = eqx.filter_value_and_grad(loss, has_aux=True)
        return [value_and_grad(flow, e) for e in (pg.PathGradient(), pg.TotalGradient())]

    for (value, draw), gradient in run(adaptive_flow(pg.Discrete(max_steps=4))):
        assert not bool(draw.solve.succeeded)
        assert np.isnan(draw.x).all()
        assert np.isnan(draw.log_q).all()
        assert np.isnan(value)
        assert np.isnan(gradient.transforms[0].field.rate)


def test_too_little_room_raises_where_failures_raise():
    @eqx.filter_jit
    def gradient(flow):
        return eqx.filter_grad(lambda f: loss_of(*f.sample_and_log_prob(key=jr.key(1), n=N)))(flow)

    with pytest.raises(eqx.EquinoxRuntimeError, match=r"Discrete\(max_steps"):
        jax.block_until_ready(gradient(adaptive_flow(pg.Discrete(max_steps=4))))


def test_backsolve_does_not_depend_on_the_scale_of_the_loss():
    @eqx.filter_jit
    def gradient(flow, scale):
        return ravel(eqx.filter_grad(lambda f: scale * draw_loss(f, "log_q"))(flow))

    one, tiny = jnp.asarray(1.0), jnp.asarray(1e-8)
    flow = adaptive_flow(pg.Backsolve())
    plain = gradient(flow, one)
    assert relative(1e8 * gradient(flow, tiny), plain) < 1e-6
    fixed = flow.transforms[0].replace(integrator=pg.FixedStep(50), adjoint=pg.Discrete())
    assert relative(plain, gradient(pg.Flow(flow.base, [fixed]), one)) < 1e-4


def check(field, integrator, n=16):
    flow = pg.Flow(trained_base(), [pg.CNF(field, None, integrator, None, T0, T1)])
    return pg.check_gradients(flow, TARGET, key=jr.key(6), n=n)


def test_check_trusts_backsolve_on_a_mild_flow():
    verdict = check(Sink(jnp.asarray(0.3)), pg.FixedStep(20))
    assert verdict.trusted
    assert verdict.relative_difference < 1e-4
    # Sixteen draws do not know their gradient to a tenth of a per cent.
    assert 1e-3 < verdict.noise < 10
    assert "can be trusted" in str(verdict)


def test_check_warns_of_a_bias_below_the_noise():
    verdict = check(Sink(jnp.asarray(4.0)), pg.FixedStep(20))
    assert not verdict.trusted
    assert 0.01 < verdict.relative_difference < verdict.noise
    assert "doubtful" in str(verdict)
    assert "`Discrete()`" in str(verdict)


def test_check_warns_of_a_flow_that_cannot_be_retraced():
    # A step of -2.55 / rate: forwards a factor 0.7, backwards 11.3, and eight steps.
    verdict = check(Sink(jnp.asarray(12.0), straight=True), pg.FixedStep(8))
    assert not verdict.trusted
    assert verdict.relative_difference > 100
    assert "Do not trust" in str(verdict)
    assert "`Discrete()`" in str(verdict)


def test_check_does_not_trust_what_failed():
    """Every solve ends in infinity, so no gradient is finite: nothing can be said for backsolve."""
    verdict = check(Sink(jnp.asarray(-1e6), straight=True), pg.FixedStep(20), n=4)
    assert not verdict.trusted
    assert "not finite" in str(verdict)


def test_check_needs_a_solve():
    with pytest.raises(ValueError, match="no `CNF`"):
        pg.check_gradients(pg.Flow(trained_base()), TARGET, key=jr.key(6))
