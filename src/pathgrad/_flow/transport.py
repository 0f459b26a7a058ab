r"""The paper's algorithm: carry draws along the flow, and know which gradient goes back.

Along $\dot z = f(z, t)$ a draw takes with it its log density and, for path gradients, the gradient
$s = \nabla_z \ln q$ of it (Theorem 4.1 of Vaitl et al. 2022):

$$\frac{d}{dt}\ln q = -\nabla\cdot f, \qquad \frac{ds}{dt} = -s\,J_f - \nabla_z(\nabla\cdot f).$$

One vector-Jacobian product of $z \mapsto (f, \nabla\cdot f)$ with cotangent $(-s, -1)$ is the whole
right-hand side of the second. `motion` is that system (Algorithm 1, "Forw-Aug"), `transport` the solve with
its gradient rule (the reverse pass of Algorithm 2).

Two rules, told apart by what the state carries:

- *path*: the state has a score. Only `z` is live. The way back is the adjoint of the sampling map alone, so
  it needs no divergence at all; this is where the path gradient is cheaper than the usual one.
- *total*: no score. Everything carried is live, and the way back goes through the divergence too.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._ingredients.divergence import AbstractDivergence
from .._solve.adjoints import AbstractAdjoint
from .._solve.integrators import AbstractIntegrator
from .._solve.integrators.abstract import largest_rms
from .._words.draw import SolveInfo, Tally
from .._words.tree import PerDraw, freeze, over_draws


class State(eqx.Module):
    """What moves. `None` stands for what is not carried along."""

    x: Float[Array, "batch *event"]
    log_q: Float[Array, " batch"] | None = None
    score: Float[Array, "batch *event"] | None = None


class Dynamics(eqx.Module):
    """What makes it move: shared leaves, and `PerDraw` ones (the noise always)."""

    field: Any
    divergence: AbstractDivergence | None = None
    prepared: PyTree = None
    noise: PerDraw | None = None


class Route(eqx.Module):
    """From when to when, by which integrator, and by which adjoint back."""

    integrator: AbstractIntegrator
    adjoint: AbstractAdjoint
    interval: tuple[float, float]


class Live(NamedTuple):
    """What gradients go back to."""

    state: State
    dynamics: Dynamics
    tally: Tally | None


def motion(t: Float[Array, ""], state: State, dynamics: Dynamics) -> State:
    """Return the time derivative of whatever the state carries: Algorithm 1 of the paper."""
    if state.log_q is None:
        return State(over_draws(lambda d, x: d.field(t, x), dynamics, state.x))

    def velocity_and_divergence(d, x):
        return d.divergence(d.field, t, x, d.prepared, d.noise)

    if state.score is None:
        velocity, divergence = over_draws(velocity_and_divergence, dynamics, state.x)
        return State(velocity, -divergence)

    def augmented(d, x, score):
        (velocity, divergence), pull = jax.vjp(lambda x: velocity_and_divergence(d, x), x)
        # Minus, because a covector is carried along: Theorem 4.1.
        (score_rate,) = pull((-score, -jnp.ones_like(divergence)))
        return velocity, -divergence, score_rate

    return State(*over_draws(augmented, dynamics, state.x, state.score))


def transport(
    state: State, dynamics: Dynamics, route: Route, tally: Tally | None = None
) -> tuple[State, SolveInfo]:
    """Carry a state from one end of the route to the other, by one solve."""
    if state.score is None:
        return _transport(Live(state, dynamics, tally), None, route)
    live = Live(State(state.x), Dynamics(dynamics.field), tally)
    passengers = Passengers(state.log_q, state.score, dynamics.divergence, dynamics.prepared, dynamics.noise)
    return _transport(live, freeze(passengers), route)


class Passengers(NamedTuple):
    """What the path rule takes along without differentiating it."""

    log_q: Array | None
    score: Array
    divergence: AbstractDivergence | None
    prepared: PyTree
    noise: PerDraw | None


def _board(live: Live, taken: Passengers | None) -> tuple[State, Dynamics]:
    """Put the live part together with its passengers, where there are any."""
    if taken is None:
        return live.state, live.dynamics
    return (
        State(live.state.x, taken.log_q, taken.score),
        Dynamics(live.dynamics.field, taken.divergence, taken.prepared, taken.noise),
    )


def _live_part(state: State, taken: Passengers | None) -> State:
    return state if taken is None else State(state.x)


@eqx.filter_custom_vjp
def _transport(live, taken, route):
    state, dynamics = _board(live, taken)
    return route.integrator.integrate(motion, state, dynamics, *route.interval, norm=largest_rms)


@_transport.def_fwd
def _transport_forward(perturbed, live, taken, route):
    state, dynamics = _board(live, taken)
    state, info, memory = route.adjoint.forward(
        route.integrator, motion, state, dynamics, route.interval, live=lambda state: _live_part(state, taken)
    )
    return (state, info), memory


@_transport.def_bwd
def _transport_backward(memory, cotangents, perturbed, live, taken, route):
    state = live.state
    cotangent = _live_part(cotangents[0], taken)
    # An output that nothing depends on has the cotangent None.
    x_cotangent = jnp.zeros_like(state.x) if cotangent.x is None else cotangent.x
    log_q_cotangent = cotangent.log_q
    if state.log_q is not None and log_q_cotangent is None:
        log_q_cotangent = jnp.zeros_like(state.log_q)
    state_cotangent, gradient, evaluations = route.adjoint.backward(
        route.integrator,
        motion,
        memory,
        State(x_cotangent, log_q_cotangent),
        live.dynamics,
        route.interval,
        perturbed.dynamics,
    )
    counted = jax.tree.map(lambda zero: evaluations.astype(zero.dtype), live.tally)
    return Live(state_cotangent, gradient, counted)
