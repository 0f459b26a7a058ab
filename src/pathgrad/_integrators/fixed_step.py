"""Classical Runge-Kutta steps of equal length."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from .._draw import SolveInfo
from .._outcome import Outcome, failure_if
from .abstract import AbstractIntegrator, Trajectory, time_dtype
from .runge_kutta import RK4, Tableau, runge_kutta_step


class FixedStep(AbstractIntegrator):
    """Take a fixed number of classical fourth-order Runge-Kutta steps, in one `lax.scan`.

    Written by us and not taken from Diffrax because it was measured: the gradient of a scan compiles 3.5
    to 5 times faster and runs 2.5 to 8 times faster than one through Diffrax with constant steps.

    Attributes:
        steps: Number of steps, each of four field evaluations.
    """

    steps: int = eqx.field(static=True, default=20)

    def __check_init__(self):
        if self.steps < 1:
            raise ValueError(f"`steps` must be at least 1, got {self.steps}.")

    @property
    def tableau(self) -> Tableau:
        return RK4

    def integrate(self, motion, state, args, t0, t1, norm):
        state, info, _ = self._scan(motion, state, args, t0, t1, lambda _: None)
        return state, info

    def integrate_recorded(self, motion, state, args, t0, t1, norm, keep, bound):
        return self._scan(motion, state, args, t0, t1, keep)

    def _scan(self, motion, state, args, t0, t1, keep):
        dtype = time_dtype(state)
        length = jnp.asarray((t1 - t0) / self.steps, dtype)
        # An integer counter: adding up `length` would drift, and in float32 end in an extra step.
        times = jnp.asarray(t0, dtype) + length * jnp.arange(self.steps, dtype=dtype)

        def step(y, t):
            return runge_kutta_step(RK4, motion, t, length, y, args), keep(y)

        state, states = lax.scan(step, state, times)
        finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(state)])
        outcome = failure_if(~jnp.all(finite), Outcome.STATE_NOT_FINITE)
        info = SolveInfo(jnp.asarray(4 * self.steps, jnp.int32), outcome)
        # A draw that ran off must not pass for one of density zero.
        state = jax.tree.map(lambda y: jnp.where(jnp.isfinite(y), y, jnp.nan), state)
        lengths = jnp.full_like(times, length)
        return state, info, Trajectory(times, lengths, states, self.steps)

    def refined(self, factor):
        return FixedStep(self.steps * factor)
