"""The score term: the difference between the total and the path gradient."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key

from .._flow.flow import Flow
from .._words.arguments import instance, whole
from .._words.errors import ArgumentError, named
from .._words.keys import one_key
from .._words.tree import freeze, number_of_draws


class ScoreTerm(NamedTuple):
    """Moments of the score term over draws of the flow, with all parameters in one vector.

    Attributes:
        mean: Zero up to Monte Carlo error, whatever the flow.
        covariance: An estimate of the Fisher information of the flow: the covariance of the score term
            of *one* draw. A batch of N has 1/N of it.
        per_draw: The score term of each draw.
        unravel: Turns a vector of parameters back into a tree like the flow's.
    """

    mean: Float[Array, " parameter"]
    covariance: Float[Array, "parameter parameter"]
    per_draw: Float[Array, "draw parameter"]
    unravel: Callable[[Array], Any]


def score_term(flow: Flow, *, key: Key[Array, ""], n: int, at_once: int = 64) -> ScoreTerm:
    r"""Return $\partial_\theta \ln q_\theta(x)$ at fixed draws $x \sim q_\theta$, draw by draw.

    This is the part of `TotalGradient` that `PathGradient` leaves out. It is for diagnosis and small flows:
    one vector of all parameters is kept for every draw.

    Args:
        flow: Any flow without `PerDraw` leaves.
        key: Source of the draws and of any divergence noise.
        n: Number of draws.
        at_once: Draws differentiated at a time.
    """
    instance("flow", flow, Flow, "a `Flow`")
    key, n, at_once = one_key(key), whole("n", n, 2), whole("at_once", at_once)
    if number_of_draws(flow) is not None:
        raise ValueError("`score_term` cannot take `PerDraw` leaves: draws must share all parameters.")
    parameters, static = eqx.partition(flow, eqx.is_inexact_array)
    vector, unravel = ravel_pytree(parameters)
    if vector.size == 0:
        raise ArgumentError(f"This {named('flow')} has no parameters, so it has no score term.")
    keys = jr.split(key, n)

    @jax.jit
    def all_draws(vector, x):
        def one(point):
            x, k = point

            def log_q(v):
                return eqx.combine(unravel(v), static).pull(x[None], keys=k[None]).log_q[0]

            return jax.grad(log_q)(vector)

        return jax.lax.map(one, (x, keys), batch_size=min(at_once, n))

    per_draw = all_draws(vector, freeze(flow).sample(key=key, n=n))
    covariance = jnp.cov(per_draw, rowvar=False).reshape(vector.size, vector.size)
    return ScoreTerm(jnp.mean(per_draw, axis=0), covariance, per_draw, unravel)
