"""Steps whose length follows an error estimate, through Diffrax."""

import functools
from typing import Literal

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp

from ..._words.arguments import not_negative, one_of, whole
from ..._words.draw import SolveInfo
from ..._words.errors import ArgumentError, named
from ..._words.outcome import Outcome, failure_if, first_failure
from .abstract import AbstractIntegrator, Tableau, Trajectory

_SOLVERS = {"dopri5": diffrax.Dopri5, "tsit5": diffrax.Tsit5}


def _explicit(tableau: diffrax.ButcherTableau) -> Tableau:
    """Convert a Diffrax tableau, dropping the last stage if only the next step uses it."""
    used = max(i for i, b in enumerate(tableau.b_sol) if b != 0.0) + 1
    rows = ((), *(tuple(float(a) for a in row) for row in tableau.a_lower))
    nodes = (0.0, *(float(c) for c in tableau.c))
    weights = tuple(float(b) for b in tableau.b_sol)
    return Tableau(rows[:used], weights[:used], nodes[:used])


class Adaptive(AbstractIntegrator):
    """Choose step lengths by an error estimate: one controller for the whole batch.

    The error of each component of the state (`x`, `log q`, score) is its root mean square over the batch;
    the largest decides, as in the code of Vaitl et al. 2022.

    Attributes:
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        solver: `"dopri5"` (as in Vaitl et al. 2022) or `"tsit5"` (often a few evaluations cheaper).
        max_steps: A solve that needs more steps, rejected ones included, fails.
    """

    rtol: float = eqx.field(static=True, default=1e-5, converter=functools.partial(not_negative, "rtol"))
    atol: float = eqx.field(static=True, default=1e-5, converter=functools.partial(not_negative, "atol"))
    solver: Literal["dopri5", "tsit5"] = eqx.field(static=True, default="dopri5")
    max_steps: int = eqx.field(static=True, default=4096, converter=functools.partial(whole, "max_steps"))

    def __check_init__(self):
        one_of("solver", self.solver, tuple(_SOLVERS))
        if self.rtol == self.atol == 0:
            raise ArgumentError(
                f"A tolerance must be positive: {named('rtol')} and {named('atol')} are both 0."
            )

    @property
    def tableau(self) -> Tableau:
        return _explicit(_SOLVERS[self.solver].tableau)

    def integrate(self, motion, state, args, t0, t1, norm):
        solution = self._solve(motion, state, args, t0, t1, norm, diffrax.SaveAt(t1=True), self.max_steps)
        return self._finish(solution, jax.tree.map(lambda y: y[0], solution.ys))

    def integrate_recorded(self, motion, state, args, t0, t1, norm, keep, bound):
        end = diffrax.SubSaveAt(t1=True)
        steps = diffrax.SubSaveAt(t0=True, steps=True, fn=lambda t, y, args: keep(y))
        saveat = diffrax.SaveAt(subs=(end, steps))
        bound = min(bound, self.max_steps)
        solution = self._solve(motion, state, args, t0, t1, norm, saveat, bound)
        assert solution.ts is not None
        assert solution.ys is not None
        final, states = solution.ys
        state, info = self._finish(solution, jax.tree.map(lambda y: y[0], final))
        times = solution.ts[1]
        count = solution.stats["num_accepted_steps"]
        return state, info, Trajectory(times[:-1], times[1:] - times[:-1], states, count)

    def _solve(self, motion, state, args, t0, t1, norm, saveat, max_steps):
        dtype = jnp.result_type(*jax.tree.leaves(state))
        start = jnp.asarray(t0, dtype)
        controller = diffrax.PIDController(
            self.rtol,
            self.atol,
            norm=norm,
            # Where the field is NaN every step is rejected: fail soon, not after `max_steps`.
            dtmin=jnp.finfo(dtype).eps * abs(t1 - t0),
            force_dtmin=False,
        )
        return diffrax.diffeqsolve(
            diffrax.ODETerm(motion),
            _SOLVERS[self.solver](),
            t0=start,
            t1=jnp.asarray(t1, dtype),
            # Diffrax's own first step ignores the length of the interval. Fields of flows are smooth: for an
            # untrained autoencoder at a tolerance of 1e-5, starting with a hundredth of the interval took 4
            # steps, with a tenth 3, with a quarter 2. Too long a first step costs one rejection.
            dt0=jnp.asarray((t1 - t0) / 4, dtype),
            y0=state,
            args=args,
            # Diffrax would evaluate the first slope again after every rejection of the first step.
            solver_state=(jnp.asarray(False), motion(start, state, args)),
            saveat=saveat,
            stepsize_controller=controller,
            # The gradient rules are ours (`transport.py`): Diffrax only runs its loop.
            adjoint=diffrax.ForwardMode(),
            max_steps=max_steps,
            throw=False,
        )

    def _finish(self, solution, state):
        finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(state)])
        result = solution.result
        fine = (result == diffrax.RESULTS.successful) & jnp.all(finite)
        outcome = first_failure(
            failure_if(result == diffrax.RESULTS.max_steps_reached, Outcome.TOO_MANY_STEPS),
            failure_if(result == diffrax.RESULTS.dt_min_reached, Outcome.STEP_TOO_SHORT),
            failure_if(~fine, Outcome.STATE_NOT_FINITE),
        )
        # Both methods reuse the last slope of a step as the first of the next: six new ones per step,
        # and one more at the start.
        evaluations = (6 * solution.stats["num_steps"] + 1).astype(jnp.int32)
        # A solve that stopped halfway must not be mistaken for a draw.
        state = jax.tree.map(lambda y: jnp.where(fine, y, jnp.nan), state)
        return state, SolveInfo(evaluations, outcome)

    def refined(self, factor):
        factor = whole("factor", factor)
        shrink = float(factor) ** 5  # both methods are of order five
        floor = 10 * float(jnp.finfo(jnp.result_type(float)).eps)  # below it, a solve may not end
        rtol, atol = (min(tol, max(tol / shrink, floor)) for tol in (self.rtol, self.atol))
        return Adaptive(rtol, atol, self.solver, self.max_steps * factor)
