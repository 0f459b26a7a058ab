r"""The algorithm of Vaitl et al. 2022: move draws along the flow, with path or total gradients.

(*Path-Gradient Estimators for Continuous Normalizing Flows*, ICML.) Along $\dot z = f(z, t)$ a draw carries
its log density and, for path gradients, the gradient of that, $s = \nabla_z \ln q$ (Theorem 4.1):

$$\frac{d}{dt}\ln q = -\nabla\cdot f, \qquad \frac{ds}{dt} = -s\,J_f - \nabla_z(\nabla\cdot f).$$

One vector-Jacobian product of $z \mapsto (f, \nabla\cdot f)$ with cotangent $(-s, -1)$ gives the whole
right-hand side of the second. `motion` is that system (Algorithm 1, "Forw-Aug"), `transport` the solve with
its gradient rule (the backward pass of Algorithm 2).

What the state carries decides between two gradient rules:

- *path*: the state has a score. Only `z` is differentiated. The backward pass is the adjoint of the sampling
  map alone and needs no divergence; this is where the path gradient is cheaper than the usual one.
- *total*: no score. Everything is differentiated, and the backward pass includes the divergence.
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
    """The state of a solve; `None` for what is not carried along."""

    x: Float[Array, "batch *event"]
    log_q: Float[Array, " batch"] | None = None
    score: Float[Array, "batch *event"] | None = None


class Dynamics(eqx.Module):
    """What moves the state. Leaves are shared by all draws or `PerDraw`, as the noise always is."""

    field: Any
    divergence: AbstractDivergence | None = None
    prepared: PyTree = None
    noise: PerDraw | None = None


class Route(eqx.Module):
    """How to solve: the integrator, the adjoint for the backward pass, and the time interval."""

    integrator: AbstractIntegrator
    adjoint: AbstractAdjoint
    interval: tuple[float, float]


class Live(NamedTuple):
    """What is differentiated."""

    state: State
    dynamics: Dynamics
    tally: Tally | None


def motion(t: Float[Array, ""], state: State, dynamics: Dynamics) -> State:
    """Return the time derivative of whatever the state carries: Algorithm 1 of Vaitl et al. 2022."""
    if state.log_q is None:
        return State(over_draws(lambda d, x: d.field(t, x), dynamics, state.x))

    def velocity_and_divergence(d, x):
        return d.divergence(d.field, t, x, d.prepared, d.noise)

    if state.score is None:
        velocity, divergence = over_draws(velocity_and_divergence, dynamics, state.x)
        return State(velocity, -divergence)

    def augmented(d, x, score):
        (velocity, divergence), pull = jax.vjp(lambda x: velocity_and_divergence(d, x), x)
        # Minus, because the score is a covector: Theorem 4.1.
        (score_rate,) = pull((-score, -jnp.ones_like(divergence)))
        return velocity, -divergence, score_rate

    return State(*over_draws(augmented, dynamics, state.x, state.score))


def transport(
    state: State, dynamics: Dynamics, route: Route, tally: Tally | None = None
) -> tuple[State, SolveInfo]:
    """Move a state from one end of the interval to the other, in one solve."""
    if state.score is None:
        return _transport(Live(state, dynamics, tally), None, route)
    live = Live(State(state.x), Dynamics(dynamics.field), tally)
    frozen = Frozen(state.log_q, state.score, dynamics.divergence, dynamics.prepared, dynamics.noise)
    return _transport(live, freeze(frozen), route)


class Frozen(NamedTuple):
    """What the path rule carries along without differentiating it."""

    log_q: Array | None
    score: Array
    divergence: AbstractDivergence | None
    prepared: PyTree
    noise: PerDraw | None


def _joined(live: Live, frozen: Frozen | None) -> tuple[State, Dynamics]:
    """Join the live part with the frozen one, if there is any."""
    if frozen is None:
        return live.state, live.dynamics
    return (
        State(live.state.x, frozen.log_q, frozen.score),
        Dynamics(live.dynamics.field, frozen.divergence, frozen.prepared, frozen.noise),
    )


def _live_part(state: State, frozen: Frozen | None) -> State:
    return state if frozen is None else State(state.x)


@eqx.filter_custom_vjp
def _transport(live, frozen, route):
    state, dynamics = _joined(live, frozen)
    return route.integrator.integrate(motion, state, dynamics, *route.interval, norm=largest_rms)


@_transport.def_fwd
def _transport_forward(perturbed, live, frozen, route):
    state, dynamics = _joined(live, frozen)
    state, info, memory = route.adjoint.forward(
        route.integrator, motion, state, dynamics, route.interval, live=lambda s: _live_part(s, frozen)
    )
    return (state, info), memory


@_transport.def_bwd
def _transport_backward(memory, cotangents, perturbed, live, frozen, route):
    state = live.state
    cotangent = _live_part(cotangents[0], frozen)
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
