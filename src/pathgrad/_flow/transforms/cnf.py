"""Continuous normalizing flow: the map defined by following a velocity field over a time interval."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._ingredients.divergence import AbstractDivergence, exact_divergence
from ..._solve.adjoints import AbstractAdjoint, Backsolve, Discrete
from ..._solve.integrators import AbstractIntegrator, Adaptive, FixedStep
from ..._words.arguments import function, instance, number
from ..._words.draw import Draw, Tally, add_solves
from ..._words.errors import ArgumentError, named
from ..._words.tree import PerDraw, once_or_per_draw, one_draw, over_draws
from ..transport import Dynamics, Route, State, transport
from .abstract import AbstractTransform


class CNF(AbstractTransform):
    r"""Follow $\dot z = f(z, t)$ from `t0` to `t1`.

    Attributes:
        field: Any Equinox module called as `field(t, x)` for one point.
        divergence: How $\nabla \cdot f$ is computed. Default: `ClosedForm()` if the field offers it, else
            `Exact()`.
        integrator: How the equation is solved. Default: 20 Runge-Kutta steps.
        adjoint: How to backpropagate through the solve. Default: `Discrete()` for fixed steps, `Backsolve()`
            for adaptive ones.
        t0: Time at the base.
        t1: Time at the target; may be smaller than `t0`.
        tally: Differentiate with respect to it to count backward evaluations.
    """

    field: Any
    divergence: AbstractDivergence
    integrator: AbstractIntegrator
    adjoint: AbstractAdjoint
    t0: float = eqx.field(static=True)
    t1: float = eqx.field(static=True)
    tally: Tally | None

    def __init__(
        self,
        field: Any,
        divergence: AbstractDivergence | None = None,
        integrator: AbstractIntegrator = FixedStep(20),
        adjoint: AbstractAdjoint | None = None,
        t0: float = 0.0,
        t1: float = 1.0,
        tally: Tally | None = None,
    ) -> None:
        """Make the map of a field; the arguments are the attributes described above."""
        instance("integrator", integrator, AbstractIntegrator, "an integrator, such as `FixedStep(20)`")
        if adjoint is None:
            adjoint = Backsolve() if isinstance(integrator, Adaptive) else Discrete()
        self.field, self.integrator, self.adjoint, self.tally = field, integrator, adjoint, tally
        self.divergence = exact_divergence(field) if divergence is None else divergence
        self.t0, self.t1 = number("t0", t0), number("t1", t1)

    def __check_init__(self):
        if self.t0 == self.t1:
            raise ArgumentError(
                f"{named('t0')} and {named('t1')} are both {self.t0}: the flow would do nothing."
            )
        function("field", self.field, "field(t, x)")
        instance("divergence", self.divergence, AbstractDivergence, "a divergence, such as `Exact()`")
        instance("adjoint", self.adjoint, AbstractAdjoint, "an adjoint, such as `Discrete()`")
        if self.tally is not None:
            instance("tally", self.tally, Tally, "a `Tally`, or `None`")
        self.divergence.check(self.field)

    def check(self, shape):
        t = jax.ShapeDtypeStruct((), jnp.result_type(float))
        x = jax.ShapeDtypeStruct(shape, jnp.result_type(float))
        velocity = eqx.filter_eval_shape(lambda f, t, x: one_draw(f)(t, x), self.field, t, x)
        if getattr(velocity, "shape", None) != shape:
            raise ValueError(
                f"`field(t, x)` must return a velocity with the shape of x, {shape}; it returned "
                f"{getattr(velocity, 'shape', type(velocity).__name__)}."
            )
        if not jnp.issubdtype(velocity.dtype, jnp.floating):
            raise ValueError(
                f"`field(t, x)` must return floating-point numbers, got {velocity.dtype}. Write `1.0`, not "
                "`1`."
            )

    def push(self, draw, *, keys):
        state = State(draw.x, draw.log_q, draw.score)
        dynamics = Dynamics(self.field) if draw.log_q is None else self._dynamics(draw.x, keys)
        route = Route(self.integrator, self.adjoint, (self.t0, self.t1))
        state, solve = transport(state, dynamics, route, self.tally)
        return Draw(state.x, state.log_q, state.score, draw.log_choice, add_solves(draw.solve, solve))

    def pull(self, x, *, keys):
        start = State(x, jnp.zeros(x.shape[0], x.dtype))
        route = Route(self.integrator, self.adjoint, (self.t1, self.t0))
        state, solve = transport(start, self._dynamics(x, keys), route, self.tally)
        assert state.log_q is not None
        # Integrating d(log q)/dt = -div f from t1 back to t0 gives plus the integral of div f.
        return state.x, state.log_q, solve

    def _dynamics(self, x, keys) -> Dynamics:
        prepared = once_or_per_draw(self.divergence.prepare, self.field)
        shape, dtype = x.shape[1:], x.dtype
        noise = over_draws(lambda d, key: d.noise(shape, dtype, key=key), self.divergence, keys)
        return Dynamics(self.field, self.divergence, prepared, PerDraw(noise))

    @property
    def is_noisy(self):
        return self.divergence.is_noisy

    @property
    def is_solved(self):
        return True

    def exact(self):
        return self.replace(divergence=self.divergence.exact(self.field))

    def refined(self, factor):
        return self.replace(integrator=self.integrator.refined(factor))

    def tallied(self, tally):
        return self.replace(tally=tally)

    def replace(self, **changes: Any) -> "CNF":
        """Return a copy with some attributes changed."""
        return dataclasses.replace(self, **changes)
