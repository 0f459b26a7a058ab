"""A Runge-Kutta step, written out so that it can be differentiated, and solves in equal steps."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree

from ..._words.arguments import whole
from ..._words.draw import SolveInfo
from ..._words.outcome import Outcome, failure_if
from .abstract import AbstractIntegrator, Tableau, Trajectory

RK4 = Tableau(
    a=((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), b=(1 / 6, 1 / 3, 1 / 3, 1 / 6), c=(0.0, 0.5, 0.5, 1.0)
)


def combine(state: PyTree, dt: Any, weights: tuple[float, ...], slopes: list[PyTree]) -> PyTree:
    """Return `state + dt * sum(weights * slopes)`, leaving out zero weights."""
    used = [(w, k) for w, k in zip(weights, slopes, strict=True) if w != 0.0]
    if not used:
        return state
    scaled = [jax.tree.map(lambda s, w=w: w * s, k) for w, k in used]
    total = scaled[0]
    for more in scaled[1:]:
        total = jax.tree.map(lambda p, q: p + q, total, more)
    return jax.tree.map(lambda y, s: y + dt.astype(y.dtype) * s, state, total)


def runge_kutta_step(tableau: Tableau, motion, t, dt, state: PyTree, args: PyTree) -> PyTree:
    """Advance `state` by one step of length `dt`."""
    slopes: list[PyTree] = []
    for row, node in zip(tableau.a, tableau.c, strict=True):
        slopes.append(motion(t + node * dt, combine(state, dt, row, slopes), args))
    return combine(state, dt, tableau.b, slopes)


class FixedStep(AbstractIntegrator):
    """Take a fixed number of classical fourth-order Runge-Kutta steps, in one `lax.scan`.

    Diffrax is not used here because it was measured to be slower: the gradient of this scan compiles 3.5
    to 5 times faster and runs 2.5 to 8 times faster than that of Diffrax with constant steps.

    Attributes:
        steps: Number of steps, each of four field evaluations.
    """

    steps: int = eqx.field(static=True, default=20, converter=functools.partial(whole, "steps"))

    @property
    def tableau(self) -> Tableau:
        return RK4

    def integrate(self, motion, state, args, t0, t1, norm):
        state, info, _ = self._scan(motion, state, args, t0, t1, lambda _: None)
        return state, info

    def integrate_recorded(self, motion, state, args, t0, t1, norm, keep, bound):
        return self._scan(motion, state, args, t0, t1, keep)

    def _scan(self, motion, state, args, t0, t1, keep):
        dtype = jnp.result_type(*jax.tree.leaves(state))
        length = jnp.asarray((t1 - t0) / self.steps, dtype)
        # An integer counter: adding up `length` would drift, and in float32 end in an extra step.
        times = jnp.asarray(t0, dtype) + length * jnp.arange(self.steps, dtype=dtype)

        def step(y, t):
            return runge_kutta_step(RK4, motion, t, length, y, args), keep(y)

        state, states = lax.scan(step, state, times)
        finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(state)])
        outcome = failure_if(~jnp.all(finite), Outcome.STATE_NOT_FINITE)
        info = SolveInfo(jnp.asarray(4 * self.steps, jnp.int32), outcome)
        # A draw that diverged must not be mistaken for one of density zero.
        state = jax.tree.map(lambda y: jnp.where(jnp.isfinite(y), y, jnp.nan), state)
        lengths = jnp.full_like(times, length)
        return state, info, Trajectory(times, lengths, states, self.steps)

    def refined(self, factor):
        return FixedStep(self.steps * whole("factor", factor))
