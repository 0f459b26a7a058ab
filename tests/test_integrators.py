"""Integrators by themselves: against closed forms, against their own steps, and against a count."""

import functools

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._solve.integrators import runge_kutta_step
from pathgrad._solve.integrators.abstract import largest_rms

from .helpers import RTOL, T0, T1, TOLERANCE

INTEGRATORS = {
    "rk4": pg.FixedStep(200),
    "dopri5": pg.Adaptive(RTOL, RTOL, "dopri5"),
    "tsit5": pg.Adaptive(RTOL, RTOL, "tsit5"),
}
ADAPTIVE = ["dopri5", "tsit5"]
INTERVALS = {"forwards": (T0, T1), "backwards": (1.7, -0.9)}
RATE = np.float64(0.8)
START = {"growth": np.asarray(1.3), "turn": np.array([0.7, -1.1])}


def motion(t, state, rate):
    """y' = rate y cos t, and a rotation with the angular velocity 1 + rate t."""
    y, (u, v) = state["growth"], state["turn"]
    return {"growth": rate * y * jnp.cos(t), "turn": (1 + rate * t) * jnp.stack([-v, u])}


def solution(t, t0, rate=0.8):
    angle = (t - t0) + rate * (t**2 - t0**2) / 2
    cos, sin = np.cos(angle), np.sin(angle)
    return {
        "growth": START["growth"] * np.exp(rate * (np.sin(t) - np.sin(t0))),
        "turn": np.array([[cos, -sin], [sin, cos]]) @ START["turn"],
    }


def distance(a, b):
    return max(jax.tree.leaves(jax.tree.map(lambda x, y: float(np.abs(x - y).max()), a, b)))


def plain_rms(state):
    everything = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(state)])
    return jnp.sqrt(jnp.mean(jnp.square(everything)))


@functools.cache
def compiled(integrator, motion, norm=largest_rms):
    """Compile once a solve from `T0` to `T1`."""
    return jax.jit(lambda y, args: integrator.integrate(motion, y, args, T0, T1, norm=norm))


@functools.cache
def compiled_recorded(integrator, motion, keep=None, bound=256):
    """Compile once a recorded solve from anywhere to anywhere."""
    keep = keep or (lambda y: y)
    return jax.jit(
        lambda y, args, t0, t1: integrator.integrate_recorded(
            motion, y, args, t0, t1, norm=largest_rms, keep=keep, bound=bound
        )
    )


def turned(integrator, direction):
    return compiled_recorded(INTEGRATORS[integrator], motion)(START, RATE, *INTERVALS[direction])


@functools.cache
def compiled_replay(integrator):
    tableau = INTEGRATORS[integrator].tableau
    return jax.jit(jax.vmap(lambda t, dt, y: runge_kutta_step(tableau, motion, t, dt, y, RATE), in_axes=0))


@pytest.mark.parametrize("direction", INTERVALS)
@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_closed_form(integrator, direction):
    t0, t1 = INTERVALS[direction]
    state, info, _ = turned(integrator, direction)
    assert bool(info.succeeded)
    assert distance(state, solution(t1, t0)) < TOLERANCE["solve"]


def test_recording_changes_nothing():
    state, _, _ = turned("rk4", "forwards")
    plain, _ = compiled(INTEGRATORS["rk4"], motion)(START, RATE)
    assert distance(state, plain) < TOLERANCE["algebra"]


@pytest.mark.parametrize("direction", INTERVALS)
@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_trajectory_is_the_way_the_solve_went(integrator, direction):
    t0, t1 = INTERVALS[direction]
    state, _, trajectory = jax.tree.map(np.asarray, turned(integrator, direction))
    used = slice(0, int(trajectory.count))
    times, lengths = trajectory.times[used], trajectory.lengths[used]
    states = jax.tree.map(lambda a: a[used], trajectory.states)
    assert times[0] == t0
    assert np.abs(times + lengths - np.append(times[1:], t1)).max() < TOLERANCE["algebra"]
    assert (np.sign(lengths) == np.sign(t1 - t0)).all()
    for k in (0, len(times) // 3, len(times) - 1):
        here = jax.tree.map(lambda a, k=k: a[k], states)
        assert distance(here, solution(times[k], t0)) < TOLERANCE["solve"]

    # The discrete adjoint takes every step again from this record: it must be the same step.
    room = len(trajectory.times)
    replayed = compiled_replay(integrator)(
        trajectory.times, trajectory.lengths, jax.tree.map(lambda a: a[:room], trajectory.states)
    )
    following = jax.tree.map(lambda a, end: np.append(a[1:], end[None], axis=0), states, state)
    assert distance(jax.tree.map(lambda a: a[used], replayed), following) < TOLERANCE["algebra"]


def test_only_what_is_kept_is_recorded():
    _, _, whole = turned("rk4", "forwards")
    run = compiled_recorded(INTEGRATORS["rk4"], motion, lambda y: {"twice": 2 * y["turn"]})
    _, _, part = run(START, RATE, *INTERVALS["forwards"])
    assert distance(part.states, {"twice": 2 * whole.states["turn"]}) < TOLERANCE["algebra"]


def test_runge_kutta_is_of_order_four():
    errors = []
    for steps in (8, 16, 32, 64):
        state, info = compiled(pg.FixedStep(steps), motion)(START, RATE)
        assert int(info.evaluations) == 4 * steps
        errors.append(distance(state, solution(T1, T0)))
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert np.abs(orders - 4).max() < 0.35
    assert abs(orders[-1] - 4) < 0.1


@pytest.mark.parametrize("solver", ADAPTIVE)
def test_tolerance_is_met_and_refined(solver):
    coarse = pg.Adaptive(1e-4, 1e-4, solver)
    fine = coarse.refined(4)
    steps = []
    for integrator in (coarse, fine):
        state, info = compiled(integrator, motion)(START, np.float64(6.0))
        error = distance(state, solution(T1, T0, 6.0))
        assert 1e-2 * integrator.rtol < error < 1e2 * integrator.rtol
        steps.append((int(info.evaluations) - 1) / 6)
    # "As accurate as with four times the steps."
    assert 3 < steps[1] / steps[0] < 5


class Counted:
    """A motion through a narrow resonance, which counts how often it is really called."""

    def __init__(self):
        self.calls = 0

    def __call__(self, t, y, width):
        jax.debug.callback(self._count)
        return y * width / ((t - 1.2) ** 2 + width**2)

    def _count(self):
        self.calls += 1


@pytest.mark.parametrize("solver", ADAPTIVE)
def test_adaptive_evaluations_are_those_made(solver):
    counted, width = Counted(), 0.01
    run = compiled_recorded(pg.Adaptive(1e-6, 1e-6, solver), counted, lambda y: 3 * y)
    for t0, t1 in ((T0, T1), (T1, T0)):
        counted.calls = 0
        state, info, trajectory = run(np.asarray(0.4), np.asarray(width), t0, t1)
        jax.effects_barrier()
        exact = 0.4 * np.exp(np.arctan((t1 - 1.2) / width) - np.arctan((t0 - 1.2) / width))
        assert abs(state - exact) < 1e2 * 1e-6 * max(1, exact)
        assert float(trajectory.states[0]) == pytest.approx(3 * 0.4)
        assert int(info.evaluations) == counted.calls
        # The resonance is met with too long a step: rejected attempts cost six evaluations, too.
        assert counted.calls // 6 - int(trajectory.count) >= 2


def test_fixed_step_evaluations_are_those_made():
    counted = Counted()
    _, info = compiled(pg.FixedStep(7), counted)(np.asarray(0.4), np.asarray(0.5))
    jax.effects_barrier()
    assert int(info.evaluations) == counted.calls == 4 * 7


def bystander(t, state, rate):
    quiet, moved = state
    return jnp.zeros_like(quiet), motion(t, moved, rate)


def test_a_large_component_does_not_dilute_a_small_one():
    integrator = pg.Adaptive(1e-4, 1e-4, "dopri5")
    rate = np.float64(6.0)
    state = (np.ones(10_000), START)
    alone, alone_info = compiled(integrator, motion)(START, rate)
    (_, beside), info = compiled(integrator, bystander)(state, rate)
    (_, diluted), _ = compiled(integrator, bystander, plain_rms)(state, rate)
    assert int(info.evaluations) == int(alone_info.evaluations)
    assert distance(beside, alone) < TOLERANCE["algebra"]
    exact = solution(T1, T0, 6.0)
    assert distance(beside, exact) < 1e2 * integrator.rtol
    assert distance(diluted, exact) > 10 * distance(beside, exact)


def test_norm_is_the_largest_root_mean_square():
    state = {"a": np.array([3.0, -4.0, 0.0, 0.0]), "b": np.asarray(-2.0)}
    assert float(largest_rms(state)) == pytest.approx(2.5, rel=1e-15)
    assert float(largest_rms({"a": state["a"] / 2, "b": state["b"]})) == pytest.approx(2.0)


def test_too_few_steps_are_a_failure_and_not_a_half_way_state():
    # Enough room for these solves is 50 steps and more: `test_closed_form`.
    short = pg.Adaptive(RTOL, RTOL, "dopri5", max_steps=6)
    runs = [
        compiled(short, motion)(START, RATE),
        compiled_recorded(INTEGRATORS["tsit5"], motion, bound=6)(START, RATE, T0, T1),
    ]
    for state, info, *_ in runs:
        assert info.outcome == pg.Outcome.TOO_MANY_STEPS
        assert not bool(info.succeeded)
        assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(state))


def explosion(t, y, _):
    # y' = y^2 from y = 1 is infinite after a time of one, and the interval is longer.
    return y**2


def undefined(t, y, _):
    return jnp.sqrt(1.5 - t) + y


def off_the_scale(t, y, _):
    # Beside a state that is infinite the controller takes any finite error for small.
    return jnp.full_like(y, 1.5e308)


@pytest.mark.parametrize(
    ("integrator", "motion", "outcome"),
    [
        (pg.FixedStep(40), explosion, pg.Outcome.STATE_NOT_FINITE),
        (pg.Adaptive(1e-6, 1e-6, max_steps=200), explosion, pg.Outcome.TOO_MANY_STEPS),
        (pg.Adaptive(1e-6, 1e-6), undefined, pg.Outcome.STEP_TOO_SHORT),
        (pg.Adaptive(1e-6, 1e-6), off_the_scale, pg.Outcome.STATE_NOT_FINITE),
    ],
)
def test_an_explosion_is_a_failure_that_says_how_it_showed(integrator, motion, outcome):
    state, info = compiled(integrator, motion)(np.asarray(1.0), None)
    assert info.outcome == outcome
    assert info.outcome.dtype == jnp.int32
    assert not bool(info.succeeded)
    assert not np.isfinite(state)


def test_refined_fixed_steps():
    assert pg.FixedStep(5).refined(3) == pg.FixedStep(15)


def test_refined_tolerances():
    fine = pg.Adaptive(1e-4, 2e-4, "tsit5", max_steps=50).refined(2)
    assert (fine.solver, fine.max_steps) == ("tsit5", 100)
    assert (fine.rtol, fine.atol) == pytest.approx((1e-4 / 32, 2e-4 / 32))


def test_refined_tolerances_stay_above_rounding():
    tight = pg.Adaptive(1e-14, 1e-3)
    fine = tight.refined(100)
    assert fine.rtol == pytest.approx(10 * np.finfo(np.float64).eps)
    assert fine.atol == pytest.approx(1e-13)
    # A tolerance that is below the floor already is left as it is: never loosened.
    assert pg.Adaptive(1e-16, 1e-16).refined(2).rtol == 1e-16


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pg.FixedStep(0), "`steps` must be at least 1, got 0"),
        (
            lambda: pg.Adaptive(solver="rk45"),  # pyright: ignore[reportArgumentType]
            "`solver` must be .*dopri5.*tsit5.*'rk45'",
        ),
        (lambda: pg.Adaptive(rtol=-1e-3), "`rtol` must be zero or above.*got -0.001"),
        (lambda: pg.Adaptive(rtol=0.0, atol=0.0), "A tolerance must be positive"),
        (lambda: pg.Adaptive(max_steps=0), "`max_steps` must be at least 1, got 0"),
    ],
    ids=["steps", "solver", "negative", "zero", "max_steps"],
)
def test_construction_errors(make, message, monkeypatch):
    # Users run without type checks, which would be the first to find a wrong word.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        make()


def clock(t, y, _):
    assert t.dtype == jnp.float32
    return jnp.ones_like(y)


@pytest.mark.parametrize("integrator", [pg.FixedStep(1000), pg.Adaptive(1e-5, 1e-5)])
def test_single_precision_stays_single_and_ends_on_time(integrator):
    run = compiled_recorded(integrator, clock)
    eps = float(np.finfo(np.float32).eps)
    for t0, t1 in ((T0, T1), (T1, T0)):
        # Begin with the time itself: the state is a clock.
        state, info, trajectory = run(np.asarray([t0], np.float32), None, t0, t1)
        assert bool(info.succeeded)
        assert state.dtype == trajectory.times.dtype == trajectory.lengths.dtype == jnp.float32
        last = int(trajectory.count) - 1
        assert abs(float(trajectory.times[last] + trajectory.lengths[last]) - t1) < 2 * eps
        # A thousand roundings of the state, each of half a unit in the last place.
        assert abs(float(state[0]) - t1) < 1000 * eps
