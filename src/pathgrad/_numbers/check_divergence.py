"""Is a field's own formula for its divergence right? A wrong one is trained against, and then certified."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key

from .._flow.flow import Flow
from .._flow.transforms import CNF
from .._ingredients.divergence import ClosedForm, exact_divergence
from .._words.arguments import instance, whole
from .._words.keys import one_key
from .._words.tree import number_of_draws, over_draws
from .verdict import WRONG_DIVERGENCE

_PASSES = 2**13  # one for each draw and dimension: on a large lattice, few draws are enough
_NUMBERS = 2**20  # of velocities, in memory at a time


@dataclasses.dataclass(frozen=True)
class DivergenceCheck:
    """Closed forms of divergences compared with automatic differentiation. Printed, it says what to do.

    Attributes:
        fields: How many fields have a closed form.
        error: By how much the closed forms change log q, in nats, on average over draws.
        velocity_error: Largest difference between the velocities that come with the closed form and those of
            `field(t, x)`, relative to their size.
        size: By how much the divergences themselves change log q, in nats.
    """

    fields: int
    error: float
    velocity_error: float
    size: float

    @property
    def worst(self) -> float:
        """The largest of the differences, relative to what they are differences of; infinite if unknown."""
        found = self.error / max(1.0, self.size), self.velocity_error
        return max(found) if all(map(math.isfinite, found)) else math.inf

    @property
    def is_right(self) -> bool:
        """Whether the differences are no more than rounding."""
        return self.worst <= WRONG_DIVERGENCE

    def __str__(self) -> str:
        if not self.fields:
            return "No field of this flow has a closed-form divergence: there is nothing to check."
        compared = (
            f"they differ from automatic differentiation by {self.error:.1e} nats of {self.size:.3g}, and "
            f"their velocities by {self.velocity_error:.1e}"
        )
        if self.is_right:
            return f"The closed-form divergences are right: {compared}."
        return (
            f"Do not trust this flow's densities: a closed-form divergence is wrong; {compared}. Correct "
            "`prepare` or `velocity_and_divergence` of the field, or use `Exact()`."
        )


def check_divergence(flow: Flow, *, key: Key[Array, ""], n: int = 16) -> DivergenceCheck:
    """Compare closed-form divergences of a flow's fields with automatic differentiation, on its own draws.

    Densities are exact only if these formulas are. `evaluate` runs this check for your own fields; those of
    the library are tested.

    Args:
        flow: Any flow.
        key: Source of the draws.
        n: Number of draws, fewer in more than 512 dimensions; with `PerDraw` leaves, there are as many as
            these have.
    """
    instance("flow", flow, Flow, "a `Flow`")
    key, n = one_key(key), whole("n", n)
    n = number_of_draws(flow) or min(n, max(1, _PASSES // math.prod(flow.shape)))
    chosen = [i for i, t in enumerate(flow.transforms) if isinstance(t, CNF) and _has_closed_form(t)]
    found = [np.asarray(_differences(flow, i, key, n), np.float64) for i in chosen]
    error, velocity_error, size = np.sum(found, axis=0) if found else np.zeros(3)
    return DivergenceCheck(len(found), float(error), float(velocity_error), float(size))


def has_foreign_formula(flow: Flow) -> bool:
    """Return whether a field has a closed-form divergence that is not of this library."""
    fields = [t.field for t in flow.transforms if isinstance(t, CNF) and _has_closed_form(t)]
    return any(not type(field).__module__.startswith("pathgrad.") for field in fields)


def _has_closed_form(cnf: CNF) -> bool:
    return isinstance(exact_divergence(cnf.field), ClosedForm)


def _by_autodiff(field: Any, t: Array, x: Array, at_once: int) -> tuple[Array, Array]:
    """Return velocity and divergence, some columns of the Jacobian at a time."""
    velocity, push = jax.linearize(lambda y: field(t, y), x)

    def entry(i: Array) -> Array:
        unit = jnp.zeros(x.size, x.dtype).at[i].set(1)
        return push(unit.reshape(x.shape)).ravel()[i]

    return velocity, jnp.sum(lax.map(entry, jnp.arange(x.size), batch_size=min(x.size, at_once)))


@eqx.filter_jit
def _differences(flow: Flow, i: int, key: Key[Array, ""], n: int) -> Float[Array, " 3"]:
    """Return the difference in nats, that of the velocities, and the nats themselves, for one field."""
    cnf = flow.transforms[i]
    assert isinstance(cnf, CNF)
    draw_key, time_key = jr.split(key)
    ends = [Flow(flow.base, flow.transforms[:k]).draw("x", key=draw_key, n=n, chunk=n).x for k in (i, i + 1)]
    # On the way from one end to the other, each draw at a time of its own.
    share = jr.uniform(time_key, (n,), ends[0].dtype)
    x = over_draws(lambda _, a, b, s: a + s * (b - a), None, *ends, share)
    t = cnf.t0 + share * (cnf.t1 - cnf.t0)
    at_once = max(1, _NUMBERS // x.size)

    def one(field, t, x):
        velocity, divergence = field.velocity_and_divergence(t, x, field.prepare())
        exact_velocity, exact = _by_autodiff(field, t, x, at_once)
        apart = jnp.sum((velocity - exact_velocity) ** 2), jnp.sum(exact_velocity**2)
        return jnp.stack([jnp.abs(divergence - exact), *apart, jnp.abs(exact)])

    error, apart, speed, size = jnp.mean(over_draws(one, cnf.field, t, x), axis=0)
    length = abs(cnf.t1 - cnf.t0)
    tiny = jnp.finfo(x.dtype).tiny
    return jnp.stack([length * error, jnp.sqrt(apart / (speed + tiny)), length * size])
