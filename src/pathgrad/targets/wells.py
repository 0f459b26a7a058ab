"""Many wells: two modes in every other coordinate."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .density import LOG_2_PI, AbstractDensity

_NODES = 20_001
_EDGE = 4.0  # where the density of the first coordinate is e^-160 of its peak


class ManyWells(AbstractDensity):
    r"""Independent pairs $(u, v)$, each with two unequal modes (Noé et al. 2019, Midgley et al. 2023).

    $\log p = \sum \left( \tfrac12 u + 6 u^2 - u^4 - \tfrac12 v^2 \right)$. Coordinates alternate:
    $u_1, v_1, u_2, v_2, \ldots$

    Attributes:
        pairs: Number of pairs; there are twice as many dimensions and `2 ** pairs` modes.
    """

    pairs: int = eqx.field(static=True, default=16)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return (2 * self.pairs,)

    @property
    def log_z(self) -> float:
        """Log of the normalising constant, by quadrature."""
        _, weight, peak = _quadrature()
        return self.pairs * (math.log(float(np.sum(weight))) + peak + 0.5 * LOG_2_PI)

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density at one point."""
        u, v = x[::2], x[1::2]
        return jnp.sum(_well(u) - 0.5 * v**2)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " dim"]:
        """Return one sample, exact but for the quadrature that its distribution function comes from."""
        u_key, v_key = jr.split(key)
        node, weight, _ = _quadrature()
        below = np.cumsum(weight) - 0.5 * weight
        u = jnp.interp(
            jr.uniform(u_key, (self.pairs,)), jnp.asarray(below / np.sum(weight)), jnp.asarray(node)
        )
        return jnp.stack([u, jr.normal(v_key, (self.pairs,))], axis=1).ravel()


def _well(u: Array) -> Array:
    return (0.5 + (6 - u**2) * u) * u


def _quadrature() -> tuple[np.ndarray, np.ndarray, float]:
    """Return nodes of the trapezoid rule, weights with the density of one well in them, and its log scale."""
    node = np.linspace(-_EDGE, _EDGE, _NODES)
    log_p = (0.5 + (6 - node**2) * node) * node
    peak = float(np.max(log_p))
    return node, np.exp(log_p - peak) * (node[1] - node[0]), peak
