r"""Two ways to backpropagate through a solve.

Both pull a cotangent $a(t_1)$ of the final state back to the initial state and to the parameters:

$$\dot a = -a\,J_f, \qquad
  \frac{dL}{d\theta} = +\int_{t_0}^{t_1} a \cdot \frac{\partial f}{\partial\theta}\,dt .$$

(Vaitl et al. 2022 print a minus sign before the integral; with these limits it is a plus.)
"""

import functools
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PyTree

from .._words.arguments import whole
from .._words.draw import SolveInfo
from .integrators import AbstractIntegrator, Motion, Trajectory, runge_kutta_step
from .integrators.abstract import largest_rms


class AbstractAdjoint(eqx.Module):
    """A way to backpropagate: what the forward solve stores, and what the backward pass makes of it."""

    @abstractmethod
    def forward(
        self,
        integrator: AbstractIntegrator,
        motion: Motion,
        state: PyTree,
        args: PyTree,
        interval: tuple[float, float],
        live: Any,
    ) -> tuple[PyTree, SolveInfo, PyTree]:
        """Solve once. Return the final state, cost and outcome, and what `backward` will need.

        `live(state)` is the part of the state that is differentiated.
        """

    @abstractmethod
    def backward(
        self,
        integrator: AbstractIntegrator,
        motion: Motion,
        memory: PyTree,
        cotangent: PyTree,
        args: PyTree,
        interval: tuple[float, float],
        wanted: PyTree,
    ) -> tuple[PyTree, PyTree, Int[Array, ""]]:
        """Return the cotangents of the live initial state and of the leaves of `args` in `wanted`.

        Also return how many times the motion was evaluated and differentiated for that.
        """


class Discrete(AbstractAdjoint):
    """Differentiate every step that was taken, exactly; store the state at each.

    The result is the gradient of the numbers the solver really produced, whatever their accuracy.
    Memory grows with the number of steps. With `Adaptive` steps, the accepted ones are recorded; a
    solve that needs more than `max_steps` of them (rejected ones counted) fails.

    Attributes:
        max_steps: Largest number of steps that can be recorded. Only adaptive integrators use it.
    """

    max_steps: int = eqx.field(static=True, default=256, converter=functools.partial(whole, "max_steps"))

    def forward(self, integrator, motion, state, args, interval, live):
        return integrator.integrate_recorded(
            motion, state, args, *interval, norm=largest_rms, keep=live, bound=self.max_steps
        )

    def backward(self, integrator, motion, memory: Trajectory, cotangent, args, interval, wanted):
        tableau = integrator.tableau
        moving, fixed = eqx.partition(args, wanted)

        def step_back(i, carry):
            a, gradient = carry
            k = memory.count - 1 - i
            t, dt, y = jax.tree.map(lambda m: m[k], (memory.times, memory.lengths, memory.states))
            _, pull = jax.vjp(
                lambda y, moving: runge_kutta_step(tableau, motion, t, dt, y, eqx.combine(moving, fixed)),
                y,
                moving,
            )
            a, more = pull(a)
            return a, jax.tree.map(jnp.add, gradient, more)

        start = (cotangent, jax.tree.map(jnp.zeros_like, moving))
        a, gradient = lax.fori_loop(0, memory.count, step_back, start)
        return a, gradient, jnp.asarray(memory.count * len(tableau.b), jnp.int32)


class Backsolve(AbstractAdjoint):
    """Solve the adjoint equation backwards, together with the state: it needs the memory of one step.

    This is the method of Vaitl et al. 2022, and the usual one for neural ODEs. It gives the gradient of
    the continuous flow, not of the steps taken. Where the field contracts strongly, the state cannot be
    retraced backwards, and the gradient is silently wrong: `pathgrad.check_gradients` tests your own flow.
    """

    def forward(self, integrator, motion, state, args, interval, live):
        state, info = integrator.integrate(motion, state, args, *interval, norm=largest_rms)
        return state, info, live(state)

    def backward(self, integrator, motion, memory, cotangent, args, interval, wanted):
        moving, fixed = eqx.partition(args, wanted)
        # The equation is linear in the cotangent. Solve it at unit scale: the 1/N of a batch mean
        # would otherwise be small against the absolute tolerance.
        scale = largest_rms(cotangent)
        scale = jnp.where(scale > 0, scale, 1)
        cotangent = jax.tree.map(lambda a: a / scale, cotangent)

        def motion_back(t, state, args):
            y, a, _ = state
            moving, fixed = args
            velocity, pull = jax.vjp(lambda y, moving: motion(t, y, eqx.combine(moving, fixed)), y, moving)
            a_rate, gradient_rate = jax.tree.map(jnp.negative, pull(a))
            return velocity, a_rate, gradient_rate

        start = (memory, cotangent, jax.tree.map(jnp.zeros_like, moving))
        t0, t1 = interval
        (_, a, gradient), info = integrator.integrate(
            motion_back,
            start,
            (moving, fixed),
            t1,
            t0,
            # The parameter part is only an integral along the solution: letting it choose the steps
            # costs evaluations and gains no accuracy (Kidger, Chen, Lyons 2021).
            norm=lambda state: largest_rms(state[:2]),
        )
        a, gradient = jax.tree.map(lambda g: g * scale, (a, gradient))
        return a, gradient, info.evaluations
