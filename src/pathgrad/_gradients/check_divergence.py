"""Is a field's own formula for its divergence right? A wrong one is trained against, and then certified."""

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from .._flow.flow import Flow
from .._flow.transforms import CNF
from .._ingredients.divergence import ClosedForm, Exact, exact_divergence
from .._words.tree import number_of_draws, over_draws

_TOLERANCE = 1e-3  # of the size of log q's change, which leaves room for single precision


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
    def is_right(self) -> bool:
        """Whether the differences are no more than rounding."""
        worst = max(self.error / max(1.0, self.size), self.velocity_error)
        return math.isfinite(worst) and worst <= _TOLERANCE

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

    Densities are exact only if these formulas are. `evaluate` runs this check once.

    Args:
        flow: Any flow.
        key: Source of the draws.
        n: Number of draws; with `PerDraw` leaves, there are as many as these have.
    """
    n = number_of_draws(flow) or n
    chosen = [i for i, t in enumerate(flow.transforms) if isinstance(t, CNF) and _has_closed_form(t)]
    found = [np.asarray(_differences(flow, i, key, n), np.float64) for i in chosen]
    error, velocity_error, size = np.sum(found, axis=0) if found else np.zeros(3)
    return DivergenceCheck(len(found), float(error), float(velocity_error), float(size))


def _has_closed_form(cnf: CNF) -> bool:
    return isinstance(exact_divergence(cnf.field), ClosedForm)


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

    def one(field, t, x):
        velocity, divergence = field.velocity_and_divergence(t, x, field.prepare())
        exact_velocity, exact = Exact()(field, t, x, None, None)
        apart = jnp.sum((velocity - exact_velocity) ** 2), jnp.sum(exact_velocity**2)
        return jnp.stack([jnp.abs(divergence - exact), *apart, jnp.abs(exact)])

    error, apart, speed, size = jnp.mean(over_draws(one, cnf.field, t, x), axis=0)
    length = abs(cnf.t1 - cnf.t0)
    tiny = jnp.finfo(x.dtype).tiny
    return jnp.stack([length * error, jnp.sqrt(apart / (speed + tiny)), length * size])
